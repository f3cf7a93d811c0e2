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

	keys     map[string]*key
	requests int64
	refused  []int64 // by limit

	// The log in parts, for what is found in one to be tried on another.
	begin, width int64
	parts        [mostParts]part
	now          int   // the part of the last request
	until        int64 // when that ends
}

// A group is limits, from and to, that count in the same way: what one of them has counted
// is what each of them has, until it refuses something.
type group struct {
	from, to int
}

// mostGroups is how many a meter has at most: a sliding window is a log or a counter.
const mostGroups = 2

// mostParts is how many parts of equal length a log has at most, all of them even.
const mostParts = 16

// A part is what came in one.
type part struct {
	requests int64
	refused  [64]int64 // by limit
}

// A key is what one key has asked for.
type key struct {
	groups [mostGroups]counted

	// demand is, for each part of the log, how many of limits refused something, and one
	// more; 0: it did not come. The higher refuse no more than the lower, but for two cases: in
	// a part, one that has admitted more before; and a sliding window of more events than are
	// counted exactly. Then the key counts as one that the lower refused too.
	demand [mostParts]uint8

	// peak is the most that came in any period, found with what came in the last: slots of a
	// thousandth of a period, and how much came in each, of which the first are gone. That period
	// ended at peakAt.
	peak, peakAt, recent int64
	slots                []slot
	gone                 int

	// last is when it came last, and came the level that this adds to buckets: that of each
	// that was empty. The first busy of them, the slowest, were not. Most is the most it added.
	last, came, most int64
	busy             int
	apart            bool // see setApart
	buckets          []bucket
}

// A bucket is how full it is, in events times microseconds of the period, and how full it ever
// was when it was not empty before.
type bucket struct{ level, burst int64 }

// counted is what a group's limits have counted.
type counted struct {
	own    []limiter.State // of those that have refused something, which are the lower
	until  []int64         // when each of these may admit something again
	shared limiter.State   // of each of the others
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
	if at >= m.until {
		m.now = m.part(at)
		m.until = m.begin + int64(m.now+1)*m.width
	}
	m.requests++
	m.parts[m.now].requests++
	k.demand[m.now] = max(k.demand[m.now], 1)
	for i := range m.groups {
		m.count(k, &m.groups[i], &k.groups[i], at, cost)
	}
	m.measurePeak(k, at, cost)
	m.fill(k, at, cost)
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
	m.parts[m.now].refused[limit]++
	k.demand[m.now] = max(k.demand[m.now], uint8(limit+2))
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

// fill is Lindley's recursion: a bucket's level is what it was, less what drained since, and
// what came. The burst that never refuses is the highest level. A bucket that is faster is no
// fuller, so behind the first that has drained all have, and need not be looked at.
func (m *Meter) fill(k *key, at, cost int64) {
	passed, came := min(at-k.last, longest), min(cost, fullest/m.period)*m.period
	i := 0
	for ; i < len(rates); i++ {
		level := k.came
		if i < k.busy {
			level = k.buckets[i].level
		}
		level -= passed * rates[i]
		if level <= 0 {
			break
		}
		if i == len(k.buckets) {
			k.buckets = append(k.buckets, bucket{})
		}
		level = min(level+came, fullest)
		k.buckets[i] = bucket{level, max(k.buckets[i].burst, level)}
	}
	k.busy, k.last, k.came, k.most = i, at, came, max(k.most, came)
}

// What is beyond these makes a burst longer at most, and no number too large.
const (
	longest  = 1 << 40 // a pause, in microseconds: 12 days
	fullest  = 1 << 61
	mostCost = 1_000_000
)

// burst is how many events the bucket of that rate has to hold never to refuse one.
func (m *Meter) burst(k *key, rate int) int64 {
	most := k.most
	if rate < len(k.buckets) {
		most = max(most, k.buckets[rate].burst)
	}
	return (most + m.period - 1) / m.period
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
