package limiter

import (
	"errors"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/invalid"
)

// A Quota is a [Limit] that was checked and given a name: what a [Store] counts
// against. It also is the algorithm, as pure functions of a [State], so that a
// store holds state and decides nothing by itself.
//
// A Quota is made once, at start-up, and may be used by many goroutines.
type Quota struct {
	// OnOutage says what happens while the store's server gives no answer. To be set
	// before the first use.
	OnOutage Outage

	rule, tier string
	limit      Limit
	algorithm  *algorithm
	capacity   int64 // the most units that can pass at once

	// Buckets: an event adds unit to the level, a microsecond takes refill away.
	unit, refill int64
	drain        int64 // microseconds in which a full bucket drains

	// Windows, in microseconds. SlidingWindow fades the previous window in steps.
	window, step, steps int64

	// What word.go needs of the above.
	full                      int64 // a bucket's level
	queue, fades              bool
	byUnit, byRefill          divisor
	byWindow, byStep, bySteps divisor

	// How Memory finds and packs this quota's states.
	salt   uint64
	layout layout
	bound  atomic.Pointer[binding]
}

// NewQuota checks l and names the counters it is for. A rule's tiers are counted
// apart from each other; tier is empty for a rule without tiers. Names are 1 to 128
// characters of printable ASCII without a space at either end.
func NewQuota(rule, tier string, l Limit) (*Quota, error) {
	err := checkName("rule name", rule)
	if tier != "" {
		err = errors.Join(err, checkName("tier name", tier))
	}
	if err := errors.Join(err, l.Validate()); err != nil {
		return nil, err
	}
	q := &Quota{rule: rule, tier: tier, limit: l}
	q.algorithm, _ = l.Algorithm.lookup()
	q.algorithm.compile(q)
	q.compileWord()
	q.salt = maphash.String(seed, rule+"\x00"+tier)
	q.layout = layoutOf(q)
	return q, nil
}

func checkName(what, name string) error {
	if name == "" {
		return invalid.New("limiter", "the %s is empty", what)
	}
	if len(name) > 128 {
		return invalid.New("limiter", "the %s %.20q... has %d characters: at most 128 are allowed", what, name, len(name))
	}
	for _, c := range []byte(name) {
		if c < ' ' || c > '~' {
			return invalid.New("limiter", "the %s %q has a character outside printable ASCII", what, name)
		}
	}
	if name[0] == ' ' || name[len(name)-1] == ' ' {
		return invalid.New("limiter", "the %s %q begins or ends with a space", what, name)
	}
	return nil
}

// Rule is the name of the rule.
func (q *Quota) Rule() string { return q.rule }

// Tier is the name of the tier, or empty.
func (q *Quota) Tier() string { return q.tier }

// Limit is the limit as it was given.
func (q *Quota) Limit() Limit { return q.limit }

// Algorithm is how q counts: what the limit says, or what its zero Algorithm stands for at
// the limit's size. Stores go by it, not by the limit's field.
func (q *Quota) Algorithm() Algorithm { return q.limit.Algorithm }

// Capacity is the most units that can pass at once, Decision.Limit.
func (q *Quota) Capacity() int64 { return q.capacity }

// Window is the limit's period, or for buckets the time in which a full one drains.
func (q *Quota) Window() time.Duration {
	if q.algorithm.bursts {
		return micros(q.drain)
	}
	return q.limit.Per
}

// Take is s after an event of that cost at time now, in microseconds since 1970.
// When there is no room it is s itself, and false. Cost 0 takes nothing and succeeds;
// a negative cost, or one above the capacity, fails.
func (q *Quota) Take(s State, now, cost int64) (State, bool) {
	taken, ok := q.takeNow(q.at(s, now), cost)
	if !ok || cost == 0 {
		return s, ok
	}
	return taken, true
}

// takeNow is Take for a state already brought to the present.
func (q *Quota) takeNow(s State, cost int64) (State, bool) {
	if cost <= 0 || cost > q.capacity {
		return s, cost == 0
	}
	return q.algorithm.take(q, s, cost)
}

// Refund is s at time now with up to n units less used, of those that were taken at a time
// that Describe gave as [Decision.At]. Never more than Limit remain. It may change s.Log in
// place.
//
// Units return to the window that they were taken in, or to the log's entries of that time,
// and to nothing if those are gone. A bucket does not say which units have drained meanwhile,
// so it keeps what could have drained of these: a refund that is late by d is less by what d
// refills. Where the time is not known (0), the units that were taken last are returned,
// which may admit more than the limit if they were not the ones.
func (q *Quota) Refund(s State, now, n, at int64) State {
	if n <= 0 {
		return s
	}
	return q.algorithm.refund(q, q.at(s, now), min(n, q.capacity), at)
}

// UndoAt is the [Charge.At] for a refund that undoes d at once, as stores do where a batch is
// not taken after all: of a bucket it is in the future, so that what drained meanwhile is not
// lost.
func (q *Quota) UndoAt(d *Decision) int64 {
	const future = 1 << 52
	switch {
	case !q.algorithm.bursts || d.At == 0:
		return d.At
	case d.At < 0: // on counters beside the store's own, as package failover has them
		return -future
	}
	return future
}

// Describe is the Decision on an event of that cost, where s is the state that Take
// returned for it and allowed is what Take said.
func (q *Quota) Describe(s State, now, cost int64, allowed bool) Decision {
	behind := max(0, s.Last-now)
	return q.describe(q.at(s, now), behind, cost, allowed)
}

// describe is Describe for a state already brought to the present, behind which
// the clock is by so many microseconds: nothing drains until it has caught up.
func (q *Quota) describe(s State, behind, cost int64, allowed bool) Decision {
	remaining, reset := q.algorithm.look(q, s)
	d := Decision{Allowed: allowed, Limit: q.capacity, Remaining: remaining, At: s.Last}
	if remaining < q.capacity {
		d.NextAfter = micros(behind + q.algorithm.wait(q, s, remaining+1))
		d.ResetAfter = micros(behind + reset)
	}
	switch {
	case allowed && q.algorithm.delay != nil:
		d.Delay = micros(q.algorithm.delay(q, q.algorithm.refund(q, s, cost, 0)))
	case !allowed && (cost < 0 || cost > q.capacity):
		d.RetryAfter = Never
	case !allowed:
		d.RetryAfter = micros(behind + q.algorithm.wait(q, s, cost))
	}
	return d
}

// at brings s to the present, which is never before its own past.
func (q *Quota) at(s State, now int64) State {
	return q.algorithm.advance(q, s, max(now, s.Last, 0))
}

// Convert is a state that was written under another quota as one of q's: what was used stays
// used, up to q's capacity. Under an equal limit it is s itself; from is nil for a key that
// was never seen. It is to be written only with what is taken or refunded: a conversion to a
// lower limit forgets what was used above it, and two limits that are asked in turn would
// make room for each other.
func (q *Quota) Convert(from *Quota, s State, now int64) State {
	if from == nil || from.limit == q.limit {
		return s
	}
	s = from.at(s, now)
	remaining, _ := from.algorithm.look(from, s)
	used := min(from.capacity-remaining, q.capacity)
	converted, _ := q.algorithm.take(q, q.at(State{}, s.Last), used)
	return converted
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
