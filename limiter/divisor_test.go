package limiter

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// These tests are in the package: rounding shows in no decision of an hour.

func TestADivisorDivides(t *testing.T) {
	number := rapid.OneOf(
		rapid.Int64Range(1, math.MaxInt64),
		rapid.Int64Range(1, 1000),
		rapid.Custom(func(t *rapid.T) int64 { return 1 << rapid.IntRange(0, 62).Draw(t, "power") }),
	)
	rapid.Check(t, func(t *rapid.T) {
		by := number.Draw(t, "by")
		n := rapid.OneOf(
			rapid.Int64Range(0, math.MaxInt64),
			rapid.Custom(func(t *rapid.T) int64 { // where the quotient changes
				q := rapid.Int64Range(0, math.MaxInt64/by).Draw(t, "quotient")
				return max(0, q*by+rapid.Int64Range(-1, 0).Draw(t, "off"))
			}),
		).Draw(t, "n")
		d := newDivisor(by)
		require.Equal(t, n/by, d.down(n), "%d/%d", n, by)
		if n <= math.MaxInt64-by {
			require.Equal(t, divUp(n, by), d.up(n), "%d/%d rounded up", n, by)
		}
	})
}

func TestMulDivUpRoundsUpAndSaturates(t *testing.T) {
	for _, tt := range []struct{ a, b, c, want int64 }{
		{6, 7, 2, 21},
		{6, 7, 4, 11},
		{1, 1, math.MaxInt64, 1},
		{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64},
		{math.MaxInt64, 2, 1, math.MaxInt64},
		{math.MaxInt64, math.MaxInt64, 1, math.MaxInt64},
		{1 << 62, 4, 2, math.MaxInt64},
	} {
		assert.Equal(t, tt.want, mulDivUp(tt.a, tt.b, tt.c), "%d*%d/%d", tt.a, tt.b, tt.c)
	}
}
