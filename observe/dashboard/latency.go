package dashboard

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// latency is how long decisions took, in the last 10 to 20 seconds.
type latency struct {
	present [bucketCount]atomic.Uint32
	before  [bucketCount]uint32
}

const (
	bucketCount = 4 * 64 // four for each power of two: a quantile is at most a quarter too high
	generation  = 10     // seconds
)

func (l *latency) add(d time.Duration) { l.present[bucketOf(uint64(d))].Add(1) }

// bucketOf is where so many nanoseconds are counted.
func bucketOf(ns uint64) int {
	if ns < 4 {
		return int(ns)
	}
	power := bits.Len64(ns) - 1
	return 4*power + int(ns>>(power-2))&3
}

// bound is the least that is above a bucket.
func bound(bucket int) time.Duration {
	if bucket < 4 {
		return time.Duration(bucket + 1)
	}
	power, quarter := bucket/4, bucket%4
	return time.Duration((4 + quarter + 1) << power >> 2)
}

func (l *latency) fold(last, now int64) {
	switch now/generation - last/generation {
	case 0:
		return
	case 1:
		for i := range l.present {
			l.before[i] = l.present[i].Swap(0)
		}
	default:
		l.before = [bucketCount]uint32{}
		for i := range l.present {
			l.present[i].Store(0)
		}
	}
}

// quantile is what a share of decisions took at most, or 0 if none was measured.
func (l *latency) quantile(share float64) time.Duration {
	var all [bucketCount]uint64
	var total uint64
	for i := range all {
		all[i] = uint64(l.before[i]) + uint64(l.present[i].Load())
		total += all[i]
	}
	rank := uint64(share * float64(total))
	var seen uint64
	for i, n := range all {
		if seen += n; seen > rank || n > 0 && seen == total {
			return bound(i)
		}
	}
	return 0
}
