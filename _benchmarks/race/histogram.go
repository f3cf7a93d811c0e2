package race

import (
	"math"
	"math/bits"
	"time"
)

// A Histogram counts durations in buckets no wider than 1/128 of what is in them, so a
// Quantile is off by less than half a percent. Longer than 2^40 ns, 18 minutes, is
// counted as that.
type Histogram struct {
	buckets [(40 - fineBits + 1) << fineBits]uint32
	count   int
}

const (
	fineBits = 7
	longest  = 1<<40 - 1
)

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) {
	h.buckets[bucketOf(d)]++
	h.count++
}

// bucketOf keeps the first eight bits of d and how many follow them.
func bucketOf(d time.Duration) int {
	n := uint64(min(max(d, 0), longest))
	shift := max(bits.Len64(n)-fineBits-1, 0)
	return shift<<fineBits + int(n>>shift)
}

// middle is of bucket i.
func middle(i int) time.Duration {
	shift := max(i>>fineBits-1, 0)
	low := uint64(i-shift<<fineBits) << shift
	return time.Duration(low + 1<<shift/2)
}

// Merge counts what other has counted.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
	h.count += other.count
}

// Quantile is the duration that so large a part of all do not exceed; 0 when there are none.
func (h *Histogram) Quantile(part float64) time.Duration {
	rank := int(math.Ceil(part * float64(h.count)))
	for i, n := range h.buckets {
		if rank -= int(n); rank <= 0 && n > 0 {
			return middle(i)
		}
	}
	return 0
}
