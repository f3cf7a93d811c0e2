// Package demand measures how much each client of a log asked for, and so which clients any limit
// would have refused.
//
// It reads the log once. Its memory depends on the number of keys, not of requests. It chooses a limit
// by the distribution over keys, as one robot dominates every mean over requests.
package demand

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirgo/weir/limiter"
)

// limits are the candidates: round numbers. From 10 on they grow by at most a third.
var limits = func() (all []int64) {
	for n := range int64(9) {
		all = append(all, n+1)
	}
	for decade := int64(1); decade < 100_000; decade *= 10 {
		for _, n := range []int64{10, 12, 15, 20, 25, 30, 40, 50, 60, 80} {
			all = append(all, n*decade)
		}
	}
	return append(all, 1_000_000)
}()

// A Meter measures the demand of keys. Only one goroutine may use it.
type Meter struct {
	per    time.Duration
	period int64 // in microseconds

	// window is a sliding window with the largest of limits. Up to exact events it is a log, above a
	// counter.
	window *limiter.Quota
	exact  int64

	keys     map[string]*key
	requests int64
	begin    int64 // the log's first time
}

// A key is the demand of one key.
type key struct {
	counted limiter.State // under Meter.window
	most    int64         // the highest count in counted

	// peak is the highest demand in any period, which ended at peakAt. slots has the demand of the
	// last period, by thousandths of it; the first gone slots are over.
	peak, peakAt, recent int64
	slots                []slot
	gone                 int
}

type slot struct{ at, n uint32 }

// slots is the number of slots in a period.
const slots = 1000

// mostCost is the highest cost of a request, so that no sum overflows.
const mostCost = 1_000_000

// NewMeter returns a Meter for sliding windows of a period.
func NewMeter(per time.Duration) (*Meter, error) {
	m := &Meter{per: per, period: per.Microseconds(), keys: map[string]*key{}}
	if m.period < slots {
		return nil, fmt.Errorf("the period is %v: it must be at least a millisecond", per)
	}
	for _, n := range limits {
		var err error
		if m.window, err = limiter.NewQuota("demand", "", limiter.Limit{Events: n, Per: per}); err != nil {
			return nil, err
		}
		if m.window.Algorithm() == limiter.SlidingLog {
			m.exact = n
		}
	}
	return m, nil
}

// Add counts a request's cost for a key, at a time no earlier than the last. It copies the key.
func (m *Meter) Add(name string, at, cost int64) {
	k := m.keys[name]
	if k == nil {
		k = &key{}
		m.keys[strings.Clone(name)] = k
	}
	cost = min(cost, mostCost)
	if m.begin == 0 {
		m.begin = at
	}
	m.requests++
	if state, ok := m.window.Take(k.counted, at, cost); ok {
		k.counted = state
		d := m.window.Describe(state, at, cost, true)
		k.most = max(k.most, d.Limit-d.Remaining)
	} else {
		k.most = m.window.Capacity() + 1
	}
	m.measurePeak(k, at, cost)
}

// need returns the lowest limit that refuses the key nothing. A sliding counter may refuse a key that keeps
// to the limit, as it assumes that the previous window's requests came evenly: then all lower limits, which
// are exact, count as too low, too.
func (m *Meter) need(k *key) int64 {
	if k.most > m.exact {
		return k.most
	}
	return min(k.peak, m.exact+1)
}

// measurePeak updates peak with two pointers: one at the newest slot, the other a period behind it.
func (m *Meter) measurePeak(k *key, at, cost int64) {
	now := uint32((at - m.begin) * slots / m.period)
	for k.gone < len(k.slots) && now-k.slots[k.gone].at >= slots { // also if now has wrapped around
		k.recent -= int64(k.slots[k.gone].n)
		k.gone++
	}
	switch {
	case k.gone == len(k.slots):
		k.slots, k.gone = k.slots[:0], 0
	case len(k.slots) == cap(k.slots) && k.gone >= (len(k.slots)+1)/2:
		k.slots, k.gone = k.slots[:copy(k.slots, k.slots[k.gone:])], 0
	}
	if last := len(k.slots) - 1; last >= k.gone && k.slots[last].at == now {
		k.slots[last].n += uint32(cost)
	} else {
		k.slots = append(k.slots, slot{now, uint32(cost)})
	}
	if k.recent += cost; k.recent > k.peak {
		k.peak, k.peakAt = k.recent, at
	}
}
