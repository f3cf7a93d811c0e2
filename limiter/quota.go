package limiter

import (
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/invalid"
)

// A Quota is a checked [Limit] with a name. A [Store] counts against it. It also holds the
// algorithm as pure functions of a [State], so a store holds states and decides nothing itself.
//
// Make Quotas once, at start-up. Many goroutines may use a Quota at once.
type Quota struct {
	// OnOutage says how the rule decides while the store's server gives no answer. Set it
	// before the first use.
	OnOutage Outage

	// Settles says that refunds come long after the units were taken, when the real cost is known. A
	// TokenBucket then records its lowest Level since the units were taken, so a refund returns all of
	// them that it has not refilled since. Without Settles a refund leaves out all units that it can
	// have refilled. Set it before the first use.
	Settles bool

	rule, tier string
	family     []*Quota // of one rule and tier, this one among them; nil: it is alone
	limit      Limit
	algorithm  *algorithm
	capacity   int64 // the most units that can pass at once

	// Buckets: an event adds unit to the level, a microsecond takes refill away.
	unit, refill int64
	drain        int64 // microseconds in which a full bucket drains

	// Windows, in microseconds. SlidingWindow fades the previous window in steps.
	window, step, steps int64
	calendar            *calendarWindows // nil: windows are multiples of window

	// What word.go needs of the above.
	full                      int64 // a bucket's level
	bursts, queue, fades      bool
	byUnit, byRefill          divisor
	byWindow, byStep, bySteps divisor

	// How Memory finds and packs this quota's states.
	salt   uint64
	layout layout // of a window's word
	bound  atomic.Pointer[binding]
}

// NewQuota returns a quota for l, after it has checked l. Rule and tier name the quota's counters: each
// tier of a rule has counters of its own. The tier is empty for a rule without tiers. A name has 1 to
// 128 characters of printable ASCII, without a space at either end.
func NewQuota(rule, tier string, l Limit) (*Quota, error) {
	if err := errors.Join(checkNames(rule, tier), l.Validate()); err != nil {
		return nil, err
	}
	q := compiled(l)
	q.rule, q.tier = rule, tier
	q.salt = saltOf(rule, tier)
	return q, nil
}

// compiled returns a quota without a name, for a valid limit.
func compiled(l Limit) *Quota {
	q := &Quota{limit: l}
	q.algorithm, _ = l.algorithm().lookup()
	q.algorithm.compile(q)
	q.compileWord()
	return q
}

// concurrentSuffix follows the rule in the name of the counter of its slots. The name is the same
// whether there are limits beside it or not, so the count survives when that changes.
const concurrentSuffix = ".concurrent"

// NewQuotas is [NewQuota] for an [Allowance]. The first limit's quota has the rule's name. The names of
// further quotas end with their period in seconds, such as "api.3600". The quota of AtOnce comes last,
// as from [NewConcurrency], with the name "api.concurrent". To charge an event, a batch has a charge
// for each of these quotas, one after the other.
func NewQuotas(rule, tier string, a Allowance) ([]*Quota, error) {
	limits, atOnce, err := Split(a)
	if err != nil {
		return nil, errors.Join(checkNames(rule, tier), err)
	}
	var quotas []*Quota
	var errs []error
	for i, l := range limits {
		name := rule
		if i > 0 {
			name += "." + strconv.FormatFloat(l.Per.Seconds(), 'f', -1, 64)
		}
		q, err := NewQuota(name, tier, l)
		errs = append(errs, err)
		quotas = append(quotas, q)
	}
	family := quotas
	if atOnce != (Concurrency{}) {
		q, err := NewConcurrency(rule+concurrentSuffix, tier, atOnce.Max)
		errs = append(errs, err)
		quotas = append(quotas, q)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(family) > 1 {
		for _, q := range family {
			q.family = family
		}
	}
	return quotas, nil
}

// Family returns all quotas that [NewQuotas] made together with q, including q, or nil if q is
// the only one. A store may hold their states of a key together.
func (q *Quota) Family() []*Quota { return q.family }

func checkNames(rule, tier string) error {
	err := checkName("rule name", rule)
	if tier == "" {
		return err
	}
	return errors.Join(err, checkName("tier name", tier))
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

// Rule returns the name of the rule.
func (q *Quota) Rule() string { return q.rule }

// Tier returns the name of the tier, or an empty string.
func (q *Quota) Tier() string { return q.tier }

// Limit returns the limit that NewQuota was given.
func (q *Quota) Limit() Limit { return q.limit }

// Algorithm returns how q counts. If the limit's Algorithm is zero, it returns the algorithm for a
// limit of that size ([SlidingWindow]). Stores must use this method, not the limit's field.
func (q *Quota) Algorithm() Algorithm { return q.limit.algorithm() }

// Capacity returns the most units that can pass at once, which is Decision.Limit.
func (q *Quota) Capacity() int64 { return q.capacity }

// Window returns the limit's period, or for buckets the time in which a full one drains. For a
// calendar limit it is the usual length; [Quota.WindowAt] has the real one.
func (q *Quota) Window() time.Duration {
	if q.algorithm.bursts {
		return micros(q.drain)
	}
	return q.limit.Per
}

// Take returns s after an event of that cost at time now, in microseconds since 1970. If there is no
// room, it returns s itself and false. Cost 0 takes nothing and succeeds. A negative cost fails, and so
// does a cost above the capacity.
//
// If s was written under another limit, the used units stay used, up to q's capacity, as if they had
// been used now. Debts stay too, up to one more capacity. A store must write the returned State only if
// an event with a cost was taken. Under a lower limit, the State is cut to that limit's capacity. If a
// check of cost 0 wrote it, the units cut off would be free again under a higher limit.
func (q *Quota) Take(s State, now, cost int64) (State, bool) {
	taken, ok := q.takeNow(q.present(s, now), cost)
	if !ok || cost == 0 {
		return s, ok
	}
	taken.Quota = q
	return taken, true
}

// present returns s as a state of q at time now, with a log that may be changed in place.
func (q *Quota) present(s State, now int64) State { return q.at(q.own(q.convert(s, now)), now) }

// own returns s with a log that may be changed in place.
func (q *Quota) own(s State) State {
	if q.hasLows() {
		s.Log = slices.Clone(s.Log)
	}
	return s
}

// takeNow is Take for a state at the present. It may change the log in place.
func (q *Quota) takeNow(s State, cost int64) (State, bool) {
	if cost <= 0 || cost > q.capacity {
		return s, cost == 0
	}
	return q.algorithm.take(q, s, cost)
}

// Settle returns s at time now, once it is known that c cost Actual units and not Cost. It may change
// s.Log in place.
//
// If less was used, the difference is refunded, up to the units that were taken at [Receipt.At].
// Remaining never exceeds Limit. What returns depends on the algorithm:
//
//   - Windows: the units return to the window that they were taken in, if it still counts.
//   - SlidingLog: the units return to the entries of that time, if they still count.
//   - TokenBucket: only units return that the bucket has not refilled since then. These are at most the
//     lowest State.Level since [Receipt.At]. That level is recorded only with [Quota.Settles]; without
//     it, a refund after a time d leaves out all units that can refill in d.
//   - LeakyBucket: only the units of the last event in the queue return. Later events keep their turns.
//
// If the time is unknown (0), the units that were taken last return, and a LeakyBucket returns none. If
// other events took those units, more than the limit may pass.
//
// If more was used, the difference is a debt, even if there is no room. The debt is at most one
// capacity above the limit; the rest is forgiven. Later events are refused until the debt is paid.
// Units above the limit outlive their window and count first in the next one.
//
// If s was written under another limit, a refund leaves s.Quota as it is. A debt sets s.Quota to q, as
// Take does, unless q's limit is lower than the other: units used above q's limit would then be
// forgotten.
func (q *Quota) Settle(s State, now int64, c Settlement) State {
	from := s.Quota
	if from == nil || q.InFlight() { // a lower limit may be in force, and all of the slots are released
		from = q
	}
	owed := c.Actual - c.Cost
	var settled State
	switch {
	case owed == 0:
		return s
	case owed < 0:
		settled = from.refund(s, now, -owed, c.Decision.Receipt.At)
		settled.Quota = from
		return settled
	}
	settled = q.owe(q.convert(s, now), now, owed)
	settled.Quota = q
	if from.limit == q.limit || from.isOver(s, now) || from.used(from.at(from.own(s), now)) == 0 {
		return settled
	}
	if kept := from.owe(s, now, owed); from.used(kept) > q.used(settled) {
		kept.Quota = from
		return kept
	}
	return settled
}

// refund returns s with up to n units less used, of those that were taken at that time.
func (q *Quota) refund(s State, now, n, at int64) State {
	if q.isOver(s, now) {
		return s
	}
	return q.algorithm.refund(q, q.at(s, now), min(n, q.capacity), at)
}

// owe returns s with n units more used.
func (q *Quota) owe(s State, now, n int64) State {
	return q.algorithm.owe(q, q.at(s, now), min(n, 2*q.capacity))
}

// isOver reports whether s is of a calendar's window that has ended. No units return to such a
// window, and a debt begins a state of the next one: a store's server knows only the window of
// a state and the next one ([Quota.Numbers]).
func (q *Quota) isOver(s State, now int64) bool {
	return q.calendar != nil && now >= q.calendar.at(s.Last).end
}

// Undo returns the receipt with which a store refunds d at once, when it has taken this charge but
// cannot take the whole batch. For a bucket and for slots the receipt's At is zero, which marks an
// undo: a bucket returns all units of the charge, even units that it has refilled since, and slots
// leave the event out of their average duration.
func (q *Quota) Undo(d *Decision) Receipt {
	r := d.Receipt
	if q.algorithm.bursts && q.algorithm.delay == nil || q.InFlight() {
		r.At = 0
	}
	return r
}

// Describe returns the Decision on an event of that cost, where s and allowed are the results
// of Take.
func (q *Quota) Describe(s State, now, cost int64, allowed bool) Decision {
	s = q.present(s, now)
	return q.describe(s, max(0, s.Last-now), cost, allowed)
}

// describe is Describe for a state at the present. If the clock is behind the state, by that
// many microseconds, nothing drains until it has caught up.
func (q *Quota) describe(s State, behind, cost int64, allowed bool) Decision {
	used, reset := q.algorithm.look(q, s)
	remaining := max(0, q.capacity-used)
	d := Decision{Allowed: allowed, Limit: q.capacity, Remaining: remaining, Receipt: Receipt{s.Last, ByStore}}
	if remaining < q.capacity {
		d.NextAfter = micros(behind + q.algorithm.wait(q, s, remaining+1))
		d.ResetAfter = micros(behind + reset)
	}
	if q.algorithm.delay != nil {
		d.Receipt.At += reset // the end of the queue, by which leaveQueue knows the event
	}
	switch {
	case allowed && q.algorithm.delay != nil:
		d.Delay = micros(q.algorithm.delay(q, State{Level: s.Level - cost*q.unit}))
	case !allowed && (cost < 0 || cost > q.capacity):
		d.RetryAfter = Never
	case !allowed && cost == remaining+1:
		d.RetryAfter = max(time.Microsecond, d.NextAfter)
	case !allowed:
		d.RetryAfter = micros(max(1, behind+q.algorithm.wait(q, s, cost)))
	}
	return d
}

// at brings s to the present, which is never before the state's own time, unless that is too
// far ahead. It may change s.Log in place.
func (q *Quota) at(s State, now int64) State {
	if s.Last > now && q.isAhead(s, now) {
		s = State{}
	}
	return q.algorithm.advance(q, s, max(now, s.Last, 0))
}

// isAhead reports whether the clock has stepped back by more than one period of the limit, or
// for a calendar by more than the window of s. Such a state no longer counts: otherwise a clock
// that was a year fast would refuse for a year. Like a step forward by a period, this grants
// one burst.
func (q *Quota) isAhead(s State, now int64) bool {
	switch {
	case q.InFlight():
		return false
	case q.calendar != nil:
		w := q.calendar.at(s.Last)
		return w.start-now > w.end-w.start
	}
	return s.Last-now > q.Window().Microseconds()
}

// convert returns s as a state of q, as [Quota.Take] says. Under an equal limit it is s itself.
func (q *Quota) convert(s State, now int64) State {
	switch from := s.Quota; {
	case from == nil || from == q:
		return s
	case from.limit == q.limit:
		if q.algorithm.bursts && !q.hasLows() {
			s.Log = nil
		}
		return s
	case q.InFlight() && from.InFlight():
		return s // all that are in flight are, whatever the limit is now
	}
	from := s.Quota
	s = from.at(from.own(s), now)
	used := from.used(s)
	owed := max(0, used-from.capacity)
	t := q.at(State{}, now)
	if used > 0 {
		t, _ = q.algorithm.take(q, t, min(used-owed, q.capacity))
	}
	return q.algorithm.owe(q, t, min(owed, q.capacity))
}

// used returns how many units of s are used or owed, at its time and up to twice the capacity.
func (q *Quota) used(s State) int64 {
	switch {
	case q.algorithm.bursts:
		return divUp(s.Level, q.unit)
	case q.fades:
		return min(q.countsUsed(s), 2*q.capacity)
	}
	return s.Level
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
