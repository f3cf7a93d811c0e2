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

// rates are those of the buckets, in events per period.
var rates = func() (all []int64) {
	for decade := int64(1); decade < 100_000; decade *= 10 {
		for _, n := range []int64{1, 2, 3, 5, 7} {
			all = append(all, n*decade)
		}
	}
	return append(all, 100_000)
}()

// A Meter measures the demand of keys. It is for one goroutine.
type Meter struct {
	per    time.Duration
	period int64 // in microseconds

	quotas []*limiter.Quota // for each of limits
	groups []group
	plain  bool // it measures neither peaks nor bursts

	keys     map[string]*key
	requests int64
	refused  []int64 // by limit

	// The log in parts, for what is found in one to be tried on another.
	begin, width int64
	parts        [mostParts]part
}

// A group is limits, from and to, that count in the same way: what one of them has counted
// is what each of them has, until it refuses something.
type group struct{ from, to int }

// mostParts is how many parts of equal length a log has at most, all of them even.
const mostParts = 16

// A part is what came in one.
type part struct {
	requests int64
	refused  [64]int64 // by limit
}

// A key is what one key has asked for.
type key struct {
	groups []counted

	// demand is, for each part of the log, how many of limits refused something, and one
	// more; 0: it did not come. The higher refuse no more than the lower, but for two cases: in
	// a part, one that has admitted more before; and a sliding window of more events than are
	// counted exactly. Then the key counts as one that the lower refused too.
	demand [mostParts]uint8

	*needed // nil: not measured
}

// needed is what else a key would have needed.
type needed struct {
	// peak is the most that came in any period, found with what came in the last: slots of a
	// thousandth of a period, and how much came in each.
	peak, recent int64
	slots        []slot

	// Of a bucket for each of rates, how full it is, in events times microseconds of the
	// period, and how full it ever was. A key that came once has none yet: they hold first.
	first, last    int64
	levels, bursts []int64
}

// counted is what a group's limits have counted.
type counted struct {
	refused int           // how many of them have refused something: those that are lower
	own     []exceeded    // what each of these has counted
	shared  limiter.State // what each of the others has
}

// exceeded is what a limit has counted that refused something. Until then it refuses whatever
// comes, as what is refused changes nothing.
type exceeded struct {
	limiter.State
	until int64
}

type slot struct{ at, n uint32 }

// slots is how many a period has.
const slots = 1000

// NewMeter returns a meter for limits on that period, counted as the algorithm does, which
// must not be one with a burst.
func NewMeter(per time.Duration, algorithm limiter.Algorithm) (*Meter, error) {
	m := &Meter{
		per: per, period: per.Microseconds(), keys: map[string]*key{}, refused: make([]int64, len(limits)),
		width: max(per.Microseconds(), 1_000_000),
	}
	if m.period < slots {
		return nil, fmt.Errorf("the period is %v: it must be at least a millisecond", per)
	}
	most := len(limits)
	for i, n := range limits {
		quota, err := limiter.NewQuota("demand", "", limiter.Limit{Events: n, Per: per, Algorithm: algorithm})
		if err != nil && i > 0 {
			most = i // a sliding log's most
			break
		}
		if err != nil {
			return nil, err
		}
		m.quotas = append(m.quotas, quota)
	}
	for i := range most {
		if i == 0 || m.quotas[i].Algorithm() != m.quotas[i-1].Algorithm() {
			m.groups = append(m.groups, group{i, i})
		}
		m.groups[len(m.groups)-1].to = i + 1
	}
	return m, nil
}

// NewCurve is NewMeter for a curve alone: its Result has no Peaks and no Buckets, and a key takes
// half of the memory.
func NewCurve(per time.Duration, algorithm limiter.Algorithm) (*Meter, error) {
	m, err := NewMeter(per, algorithm)
	if err == nil {
		m.plain = true
	}
	return m, err
}

// Add notes a request of a key that costs so much, at a time that is no earlier than the
// last. The key's text is copied.
func (m *Meter) Add(name string, at, cost int64) {
	cost = min(cost, mostCost)
	k := m.keys[name]
	if k == nil {
		k = &key{groups: make([]counted, len(m.groups))}
		if !m.plain {
			k.needed = &needed{}
		}
		m.keys[strings.Clone(name)] = k
	}
	if m.begin == 0 {
		m.begin = at
	}
	in := m.part(at)
	m.requests++
	m.parts[in].requests++
	k.demand[in] = max(k.demand[in], 1)
	for i := range m.groups {
		m.count(k, &m.groups[i], &k.groups[i], in, at, cost)
	}
	if m.plain {
		return
	}
	m.measurePeak(k, at, cost)
	m.fill(k, at, cost)
}

// count has a group's limits decide.
func (m *Meter) count(k *key, g *group, c *counted, in int, at, cost int64) {
	refuse := func(limit int) {
		m.refused[limit]++
		m.parts[in].refused[limit]++
		k.demand[in] = max(k.demand[in], uint8(limit+2))
	}
	for i := range c.own {
		own, quota := &c.own[i], m.quotas[g.from+i]
		if at < own.until {
			refuse(g.from + i)
			continue
		}
		state, ok := quota.Take(own.State, at, cost)
		if ok {
			own.State = state
		} else {
			own.until = until(quota, &own.State, at)
			refuse(g.from + i)
		}
	}
	for ; g.from+c.refused < g.to; c.refused++ {
		quota := m.quotas[g.from+c.refused]
		state, ok := quota.Take(c.shared, at, cost)
		if ok {
			c.shared = state // and so would those above say
			return
		}
		own := exceeded{c.shared, until(quota, &c.shared, at)}
		own.Log = slices.Clone(own.Log)
		c.own = append(c.own, own)
		refuse(g.from + c.refused)
	}
}

// until is when a quota has room for anything again.
func until(quota *limiter.Quota, s *limiter.State, at int64) int64 {
	d := quota.Describe(*s, at, 1, false)
	return at + d.RetryAfter.Microseconds()
}

// measurePeak is how two pointers find the most in any period: one is at the newest slot,
// the other a period behind it.
func (m *Meter) measurePeak(k *key, at, cost int64) {
	now := uint32((at - m.begin) * slots / m.period)
	gone := 0
	for gone < len(k.slots) && k.slots[gone].at+slots <= now {
		k.recent -= int64(k.slots[gone].n)
		gone++
	}
	if k.slots = k.slots[gone:]; len(k.slots) > 0 && k.slots[len(k.slots)-1].at == now {
		k.slots[len(k.slots)-1].n += uint32(cost)
	} else {
		k.slots = append(k.slots, slot{now, uint32(cost)})
	}
	k.recent += cost
	k.peak = max(k.peak, k.recent)
}

// fill is Lindley's recursion: a bucket's level is what it was, less what drained since, and
// what came. The burst that never refuses is the highest level.
func (m *Meter) fill(k *key, at, cost int64) {
	if k.first == 0 {
		k.first, k.last = cost, at
		return
	}
	if k.levels == nil {
		room := make([]int64, 2*len(rates))
		k.levels, k.bursts = room[:len(rates)], room[len(rates):]
		for i := range rates {
			k.levels[i], k.bursts[i] = k.first*m.period, k.first*m.period
		}
	}
	passed, came := min(at-k.last, longest), cost*m.period
	k.last = at
	for i, rate := range rates {
		level := min(max(0, k.levels[i]-passed*rate)+came, fullest)
		k.levels[i], k.bursts[i] = level, max(k.bursts[i], level)
	}
}

// What is beyond these makes a burst longer at most, and no number too large.
const (
	longest  = 1 << 40 // a pause, in microseconds: 12 days
	fullest  = 1 << 61
	mostCost = 1_000_000
)

// burst is how many events the bucket of that rate has to hold never to refuse one.
func (m *Meter) burst(k *key, rate int) int64 {
	if k.bursts == nil {
		return k.first
	}
	return (k.bursts[rate] + m.period - 1) / m.period
}

// part is the part of the log that a time is in. A log that grows longer has its parts made
// longer, two into one.
func (m *Meter) part(at int64) int {
	for (at-m.begin)/m.width >= mostParts {
		for i := range mostParts / 2 {
			m.parts[i] = m.parts[2*i].with(&m.parts[2*i+1])
		}
		clear(m.parts[mostParts/2:])
		for _, k := range m.keys {
			for i := range mostParts / 2 {
				k.demand[i] = max(k.demand[2*i], k.demand[2*i+1])
			}
			clear(k.demand[mostParts/2:])
		}
		m.width *= 2
	}
	return int((at - m.begin) / m.width)
}

func (p part) with(other *part) part {
	p.requests += other.requests
	for i := range p.refused {
		p.refused[i] += other.refused[i]
	}
	return p
}
