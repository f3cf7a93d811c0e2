package limiter

import (
	"math"
	"math/bits"
)

// A divisor divides by multiplication: a division would cost more than the rest of a decision. The inverse
// is 1/by in units of 2^-64, rounded down, so the quotient is at most one too small before it is corrected.
type divisor struct{ by, inverse uint64 }

func newDivisor(by int64) divisor {
	by = max(1, by) // 0: the algorithm has no such divisor, and never uses it
	return divisor{uint64(by), math.MaxUint64 / uint64(by)}
}

// down returns n/by, for n >= 0. It has no branch, because a branch here is unpredictable.
func (d divisor) down(n int64) int64 {
	quotient, _ := bits.Mul64(uint64(n), d.inverse)
	_, complete := bits.Sub64(uint64(n)-quotient*d.by, d.by, 0)
	return int64(quotient + 1 - complete)
}

// up returns n/by rounded up, for n >= 0.
func (d divisor) up(n int64) int64 { return d.down(n + int64(d.by) - 1) }
