package limiter

import (
	"math"
	"math/bits"
)

// A divisor divides without a division, which is most of what a decision would cost. The
// inverse is 1/by in units of 2^-64, rounded down, so what it gives is at most one short.
type divisor struct{ by, inverse uint64 }

func newDivisor(by int64) divisor {
	by = max(1, by) // what an algorithm does not have is never divided by
	return divisor{uint64(by), math.MaxUint64 / uint64(by)}
}

// down is n/by for an n that is not negative. It has no branch, as none could be predicted.
func (d divisor) down(n int64) int64 {
	quotient, _ := bits.Mul64(uint64(n), d.inverse)
	_, complete := bits.Sub64(uint64(n)-quotient*d.by, d.by, 0)
	return int64(quotient + 1 - complete)
}

// up is n/by rounded up.
func (d divisor) up(n int64) int64 { return d.down(n + int64(d.by) - 1) }
