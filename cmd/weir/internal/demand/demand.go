// Package demand finds out what limit a log's clients need: how much each of them asked for,
// and so which of them, and how many of their requests, any limit would have refused.
//
// It is one pass, and its memory goes by the keys, not by the requests. The distribution
// over keys is what a limit is chosen by: one robot rules every mean over requests.
package demand

import (
	"fmt"
	"slices"
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

	quotas []*limiter.Quota // for each of limits
	groups []group

	keys     map[string]*key
	requests int64
	begin    int64   // of the log
	refused  []int64 // by limit
}

// A group is limits, from and to, that count in the same way: what one of them has counted
// is what each of them has, until it refuses something.
type group struct {
	from, to int
}

// mostGroups is how many a meter has at most: a sliding window is a log or a counter.
const mostGroups = 2

// A key is what one key has asked for.
type key struct {
	groups [mostGroups]counted

	// demand is how many of limits refused something. The higher refuse no more than the lower,
	// but for a sliding window of more events than are counted exactly. Then the key counts as
	// refused by the lower too.
	demand uint8

	// peak is the most that came in any period, found with what came in the last: slots of a
	// thousandth of a period, and how much came in each, of which the first are gone. That period
	// ended at peakAt.
	peak, peakAt, recent int64
	slots                []slot
	gone                 int

	apart bool // see setApart
}

// counted is what a group's limits have counted.
type counted struct {
	own    []limiter.State // of those that have refused something, which are the lower
	until  []int64         // when each of these may admit something again
	shared limiter.State   // of each of the others
}

type slot struct{ at, n uint32 }

// slots is how many a period has.
const slots = 1000

// mostCost is the most that one request counts as: no number gets too large.
const mostCost = 1_000_000

// NewMeter returns a meter for sliding windows of that period.
func NewMeter(per time.Duration) (*Meter, error) {
	m := &Meter{per: per, period: per.Microseconds(), keys: map[string]*key{}, refused: make([]int64, len(limits))}
	if m.period < slots {
		return nil, fmt.Errorf("the period is %v: it must be at least a millisecond", per)
	}
	for i, n := range limits {
		quota, err := limiter.NewQuota("demand", "", limiter.Limit{Events: n, Per: per})
		if err != nil {
			return nil, err
		}
		m.quotas = append(m.quotas, quota)
		if i == 0 || quota.Algorithm() != m.quotas[i-1].Algorithm() {
			m.groups = append(m.groups, group{i, i})
		}
		m.groups[len(m.groups)-1].to = i + 1
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
	for i := range m.groups {
		m.count(k, &m.groups[i], &k.groups[i], at, cost)
	}
	m.measurePeak(k, at, cost)
}

// count has a group's limits decide.
func (m *Meter) count(k *key, g *group, c *counted, at, cost int64) {
	for i, until := range c.until {
		limit := g.from + i
		if at >= until {
			if m.take(limit, &c.own[i], at, cost) {
				continue
			}
			c.until[i] = m.roomAt(limit, c.own[i], at)
		}
		m.refuse(k, limit)
	}
	for limit := g.from + len(c.own); limit < g.to; limit++ {
		if m.take(limit, &c.shared, at, cost) {
			return // and so would those above say
		}
		own := c.shared
		own.Log = slices.Clone(own.Log)
		c.own, c.until = append(c.own, own), append(c.until, m.roomAt(limit, own, at))
		m.refuse(k, limit)
	}
}

// take has a limit count an event, or refuse it.
func (m *Meter) take(limit int, s *limiter.State, at, cost int64) bool {
	state, ok := m.quotas[limit].Take(*s, at, cost)
	if ok {
		*s = state
	}
	return ok
}

// roomAt is when a limit has room for anything again: a refusal changes nothing until then.
func (m *Meter) roomAt(limit int, s limiter.State, at int64) int64 {
	if _, ok := m.quotas[limit].Take(s, at, 1); ok {
		return at // only a higher cost was refused
	}
	return at + m.quotas[limit].Describe(s, at, 1, false).RetryAfter.Microseconds()
}

func (m *Meter) refuse(k *key, limit int) {
	m.refused[limit]++
	k.demand = max(k.demand, uint8(limit+1))
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
