package shed

import (
	"math/bits"
	"time"
)

// latencies is a histogram of a window's latencies, with eight buckets for each power of two of
// microseconds.
type latencies struct {
	n       int
	buckets [8 * 34]uint32
}

func (l *latencies) add(d time.Duration) {
	l.n++
	l.buckets[min(bucketOf(d), len(l.buckets)-1)]++
}

func bucketOf(d time.Duration) int {
	us := uint64(d / time.Microsecond)
	if us < 8 {
		return int(us)
	}
	power := bits.Len64(us) - 4 // so that us>>power is 8 to 15
	return 8*power + int(us>>power)
}

// middleOf returns the middle of a bucket, in seconds.
func middleOf(bucket int) float64 {
	if bucket < 8 {
		return (float64(bucket) + 0.5) / 1e6
	}
	power := bucket/8 - 1
	return (float64(8+bucket%8) + 0.5) * float64(uint64(1)<<power) / 1e6
}

// lower returns the mean latency of the fastest three quarters of requests, in seconds. of is the number of
// requests, answered or not. The slowest quarter says nothing about how long the others wait.
func (l *latencies) lower(of int) float64 {
	most := max(1, min(l.n, 3*of/4))
	sum, left := 0.0, most
	for i, n := range l.buckets {
		k := min(int(n), left)
		if k > 0 {
			sum += float64(k) * middleOf(i)
		}
		if left -= k; left == 0 {
			break
		}
	}
	return sum / float64(most)
}
