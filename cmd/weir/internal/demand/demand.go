// Package demand finds out what limit a log's clients need: how much each of them asked for, and so
// which of them any limit would have refused something.
//
// It is one pass, and its memory goes by the keys, not by the requests. The distribution
// over keys is what a limit is chosen by: one robot rules every mean over requests.
package demand

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirgo/weir/limiter"
)

// limits are the candidates: round numbers, at most a third apart from 10 on.
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

// A Meter measures the demand of keys. It is for one goroutine.
type Meter struct {
	per    time.Duration
	period int64 // in microseconds

	// window is the largest of limits: a sliding window, which up to exact events keeps the time
	// of each and above counts them by windows.
	window *limiter.Quota
	exact  int64

	keys     map[string]*key
	requests int64
	begin    int64 // of the log
}

// A key is what one key has asked for.
type key struct {
	counted limiter.State // by Meter.window
	most    int64         // that window held at a time

	// peak is the most that came in any period, found with what came in the last: slots of a
	// thousandth of a period, and how much came in each, of which the first are gone. That period
	// ended at peakAt.
	peak, peakAt, recent int64
	slots                []slot
	gone                 int

	apart bool // see setApart
}

type slot struct{ at, n uint32 }

// slots is how many a period has.
const slots = 1000

// mostCost is the most that one request counts as: no number gets too large.
const mostCost = 1_000_000

// NewMeter returns a meter for sliding windows of that period.
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

// Add notes a request of a key that costs so much, at a time that is no earlier than the
// last. The key's text is copied.
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

// need is the lowest number that no limit may be below, for the key to be refused nothing. A window
// that is counted may refuse a key that keeps to its limit, as it takes what came in the window
// before to have come evenly: then the lower limits, which are exact, count as too low as well.
func (m *Meter) need(k *key) int64 {
	if k.most > m.exact {
		return k.most
	}
	return min(k.peak, m.exact+1)
}

// measurePeak is how two pointers find the most in any period: one is at the newest slot,
// the other a period behind it.
func (m *Meter) measurePeak(k *key, at, cost int64) {
	now := uint32((at - m.begin) * slots / m.period)
	for k.gone < len(k.slots) && now-k.slots[k.gone].at >= slots { // also where now has wrapped around
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
