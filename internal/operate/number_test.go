package operate_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/internal/operate"
)

func TestNumbersAreWrittenForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		assert.Equal(t, want, operate.Number(n))
	}
	for share, want := range map[float64]string{0: "0%", 1: "100%", 0.00001: "<0.01%", 0.99999: ">99.99%", 0.0012: "0.12%", 0.9988: "99.88%", 0.123456: "12.3%", 0.5: "50%"} {
		assert.Equal(t, want, operate.Percent(share))
	}
	assert.Equal(t, "12.5%", operate.Share(int64(1), 8))
	assert.Equal(t, "0%", operate.Share(uint64(0), 0))
	assert.Equal(t, "1 client", operate.Count(1, "client", "clients"))
	assert.Equal(t, "2,000 clients", operate.Count(2000, "client", "clients"))
	for d, want := range map[time.Duration]string{
		395_400 * time.Microsecond: "395ms", 1500 * time.Millisecond: "2s", 9 * time.Second: "9s", 10 * time.Minute: "10m", time.Hour: "1h", 90 * time.Minute: "1h30m", time.Hour + time.Second: "1h0m1s",
	} {
		assert.Equal(t, want, operate.Duration(d))
	}
	for d, want := range map[time.Duration]string{
		time.Second: "second", time.Minute: "minute", 24 * time.Hour: "day", 7 * 24 * time.Hour: "7 days", 90 * time.Minute: "90 minutes", 1500 * time.Millisecond: "1.5s",
	} {
		assert.Equal(t, want, operate.Period(d))
	}
}
