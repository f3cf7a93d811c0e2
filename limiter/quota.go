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

	// An event adds unit to the level. A microsecond lowers a bucket's level by refill. Without buckets, unit is 1.
	unit, refill int64
	drain        int64 // microseconds in which a full bucket drains

	// Windows, in microseconds. SlidingWindow fades the previous window in steps.
	window, step, steps int64
	calendar            *calendarWindows // nil: windows are multiples of window

	full                      int64 // a bucket's highest level
	logs                      bool  // the algorithm remembers every event
	isBucket, queue, fades    bool  // copies of algorithm's
	byUnit, byRefill          divisor
	byWindow, byStep, bySteps divisor

	// How Memory finds and packs this quota's states.
	salt   uint64
	layout layout // of a window's word
	bound  atomic.Pointer[binding]
}

// NewQuota returns a quota for l, after it has checked l. Rule and tier name the quota's counters: each
// tier of a rule has counters of its own. The tier is empty for a rule without tiers. A name has 1 to
// 128 characters of printable ASCII, without a space at either end. A rule's may have 16 more, for the
// further counters of one rule, such as "api.3600" ([NewQuotas]).
func NewQuota(rule, tier string, l Limit) (*Quota, error) {
	if err := errors.Join(checkNames(rule, tier, mostName+mostSuffix), l.Validate()); err != nil {
		return nil, err
	}
	return compiled(l).named(rule, tier), nil
}

// named gives q its name.
func (q *Quota) named(rule, tier string) *Quota {
	q.rule, q.tier, q.salt = rule, tier, saltOf(rule, tier)
	return q
}

// compiled returns a quota without a name, for a valid limit.
func compiled(l Limit) *Quota {
	q := &Quota{limit: l, unit: 1}
	q.algorithm, _ = l.algorithm().lookup()
	q.algorithm.compile(q)
	q.full = q.capacity * q.unit
	q.logs = q.algorithm.mostEvents > 0
	q.isBucket, q.queue, q.fades = q.algorithm.isBucket, q.algorithm.queue, q.algorithm.fades
	q.byUnit, q.byRefill = newDivisor(q.unit), newDivisor(q.refill)
	q.byWindow, q.byStep, q.bySteps = newDivisor(q.window), newDivisor(q.step), newDivisor(q.steps)
	q.layout = layoutOf(q)
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
	if err := errors.Join(checkNames(rule, tier, mostName), err); err != nil {
		return nil, err
	}
	var quotas []*Quota
	for i, l := range limits {
		name := rule
		if i > 0 {
			name += "." + strconv.FormatFloat(l.Per.Seconds(), 'f', -1, 64)
		}
		quotas = append(quotas, compiled(l).named(name, tier))
	}
	if len(quotas) > 1 {
		for _, q := range quotas {
			q.family = quotas
		}
	}
	if atOnce != (Concurrency{}) {
		quotas = append(quotas, slots(atOnce.Max).named(rule+concurrentSuffix, tier))
	}
	return quotas, nil
}

// Family returns all quotas that [NewQuotas] made together with q, including q, or nil if q is
// the only one. A store may hold their states of a key together.
func (q *Quota) Family() []*Quota { return q.family }

const (
	mostName   = 128 // characters of a rule or a tier
	mostSuffix = 16  // that NewQuotas appends, and package middleware
)

func checkNames(rule, tier string, most int) error {
	err := checkName("rule name", rule, most)
	if tier == "" {
		return err
	}
	return errors.Join(err, checkName("tier name", tier, mostName))
}

func checkName(what, name string, most int) error {
	if name == "" {
		return invalid.New("limiter", "the %s is empty", what)
	}
	if len(name) > most {
		return invalid.New("limiter", "the %s %.20q... has %d characters: at most %d are allowed", what, name, len(name), most)
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
	if q.isBucket {
		return micros(q.drain)
	}
	return q.limit.Per
}

// A usage is a State without its Quota and its Log. It has four words at most: a larger struct would not
// stay in registers.
type usage struct {
	at, n, prev int64 // Last, Level and Prev

	index int64 // of the window of at, if all windows of q are equally long
}

// usage returns the usage of q with these numbers.
func (q *Quota) usage(at, n, prev int64) usage {
	u := usage{at: at, n: n, prev: prev}
	if q.window > 0 && !q.logs {
		u.index = q.byWindow.down(at)
	}
	return u
}

// state returns a State of q.
func (q *Quota) state(u usage, log []Entry) State {
	return State{Quota: q, Last: u.at, Level: u.n, Prev: u.prev, Log: log}
}

// take returns the usage after an event of that cost, for which there is room.
func (q *Quota) take(u usage, log []Entry, cost int64) (usage, []Entry) {
	u.n += cost * q.unit
	if q.logs || q.Settles {
		log = q.record(u, log, cost)
	}
	return u, log
}

// record returns the log after an event of that cost, which u has.
func (q *Quota) record(u usage, log []Entry, cost int64) []Entry {
	switch {
	case q.logs:
		return append(log, Entry{u.at, cost})
	case q.hasLows():
		return addLow(log, Entry{u.at, u.n})
	}
	return log
}

// own returns a log that may be changed in place.
func (q *Quota) own(log []Entry) []Entry {
	if q != nil && q.hasLows() {
		return slices.Clone(log)
	}
	return log
}

// decide decides whether cost units fit, given that used units of u are taken at u.at, the present. It sets d, and
// returns the usage after the event. from is the quota that wrote u, mostly q itself; the first result is the quota of
// the new usage. Cost 0 is a look. All algorithms and all stores in Go decide here; the Lua files are the counterpart.
func (q *Quota) decide(from *Quota, u usage, log []Entry, used, cost int64, within time.Duration, d *Decision) (*Quota, usage, []Entry) {
	free, late := q.capacity-used, int64(0)
	if q.queue && cost > 0 {
		late = q.late(from, u, log, used, within)
	}
	d.Allowed = cost <= free && late == 0 || cost == 0
	d.Degraded, d.Overflow = false, false
	d.RetryAfter, d.NextAfter, d.ResetAfter, d.Delay, d.Window = 0, 0, 0, 0, 0
	d.Receipt = Receipt{u.at, ByStore}
	if d.Allowed {
		if q.queue {
			d.Delay = micros(q.byRefill.up(q.level(from, u, used)))
		}
		if cost > 0 {
			if from != q {
				from, u, log, used = q.adopt(from, u, log, u.at)
				free = q.capacity - used
				d.Receipt.At = u.at
			}
			u, log = q.take(u, log, cost)
			free -= cost
		}
	}
	free = max(0, free)
	d.Limit, d.Remaining = q.capacity, free
	if free < q.capacity {
		next, reset := q.wait(from, u, log, free+1)
		d.NextAfter, d.ResetAfter = micros(next), micros(reset)
		if q.queue {
			d.Receipt.At += reset // when the queue is empty; see leaveQueue
		}
	}
	switch {
	case d.Allowed:
	case cost > q.capacity:
		d.RetryAfter = Never
	case cost == free+1:
		d.RetryAfter = max(time.Microsecond, d.NextAfter, micros(late))
	default:
		fit, _ := q.wait(from, u, log, cost)
		d.RetryAfter = micros(max(1, fit, late))
	}
	return from, u, log
}

// wait returns the microseconds until n units fit under q, and until no unit is used. The quota from wrote u.
func (q *Quota) wait(from *Quota, u usage, log []Entry, n int64) (fit, reset int64) {
	if from == q {
		return q.algorithm.wait(q, u, log, n)
	}
	fit, reset = from.algorithm.wait(from, u, log, q.unitsOf(from, n))
	if !q.hasShapeOf(from) {
		reset, _ = from.algorithm.wait(from, u, log, q.unitsOf(from, q.capacity))
	}
	return fit, reset
}

// level returns the level of the bucket q. from wrote u, of which used units are taken under q.
func (q *Quota) level(from *Quota, u usage, used int64) int64 {
	if from == q || q.hasShapeOf(from) {
		return u.n
	}
	return used * q.unit
}

// late returns in how many microseconds the queue is no longer than within, or 0 if it is now or within is 0. from
// wrote u.
func (q *Quota) late(from *Quota, u usage, log []Entry, used int64, within time.Duration) int64 {
	longest := within.Microseconds()
	if within == 0 || longest >= q.drain {
		return 0
	}
	late := q.byRefill.up(q.level(from, u, used)) - longest
	if late > 0 && !q.hasShapeOf(from) {
		late, _ = q.wait(from, u, log, q.capacity-q.byUnit.down(longest*q.refill))
	}
	return max(0, late)
}

// at advances a usage to now. If the clock has stepped back, the usage keeps its time, or is dropped if that is too far
// ahead. The log may change in place.
func (q *Quota) at(u usage, log []Entry, now int64) (_ usage, _ []Entry, used int64) {
	if u.at > now && q.isAhead(u.at, now) {
		u, log = usage{}, nil
	}
	return q.algorithm.advance(q, u, log, max(now, u.at, 0))
}

// isAhead reports whether the clock has stepped back by more than one period of the limit, or
// for a calendar by more than the window of a state of time last. Such a state no longer counts:
// otherwise a clock that was a year fast would refuse for a year. Like a step forward by a period,
// this grants one burst.
func (q *Quota) isAhead(last, now int64) bool {
	switch {
	case q.InFlight():
		return false
	case q.calendar != nil:
		w := q.calendar.at(last)
		return w.start-now > w.end-w.start
	}
	return last-now > q.Window().Microseconds()
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
