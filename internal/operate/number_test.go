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
	for d, want := range map[time.Duration]string{
		395_400 * time.Microsecond: "395ms", 1500 * time.Millisecond: "2s", 9 * time.Second: "9s", 10 * time.Minute: "10m", time.Hour: "1h", 90 * time.Minute: "1h30m", time.Hour + time.Second: "1h0m1s",
	} {
		assert.Equal(t, want, operate.Duration(d))
	}
}
