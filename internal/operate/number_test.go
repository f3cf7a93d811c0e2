package operate_test

import (
	"testing"

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
}
