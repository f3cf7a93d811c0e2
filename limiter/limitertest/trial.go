package limitertest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirgo/weir/limiter"
)

// samples has one limit for each algorithm and one for the default. Their intervals are no whole numbers
// of microseconds, and they are small enough to be exhausted one by one.
var samples = []limiter.Limit{
	{Events: 7, Per: 10 * time.Second, Algorithm: limiter.SlidingWindow},
	{Events: 7, Per: 10 * time.Second, Burst: 5, Algorithm: limiter.TokenBucket},
	{Events: 7, Per: 10 * time.Second, Burst: 4, Algorithm: limiter.LeakyBucket},
	{Events: 7, Per: 10 * time.Second, Algorithm: limiter.FixedWindow},
	{Events: 7, Per: 10 * time.Second, Algorithm: limiter.SlidingLog},
	{Events: 7, Per: 10 * time.Second, Algorithm: limiter.SlidingCounter},
}

// tick is the resolution of every duration in a decision.
const tick = time.Microsecond

// A trial is a running case.
type trial struct {
	testing.TB
	store limiter.Store
	limit limiter.Limit // one of the case's
	why   string
	step  string // of a trace

	sleep     func(time.Duration) // moves the clock
	stepsBack bool                // the clock can
}

// broken ends the case: the store breaks its promise.
func (t *trial) broken(format string, args ...any) {
	t.Helper()
	step := ""
	if t.step != "" {
		step = "at " + t.step + ": "
	}
	t.Fatalf("%s%s\n%s", step, fmt.Sprintf(format, args...), t.why)
}

// want ends the case unless ok. d is the decision about c.
func (t *trial) want(ok bool, c limiter.Charge, d limiter.Decision, format string, args ...any) {
	t.Helper()
	if !ok {
		t.broken("cost %d under %v: %s: %+v", c.Cost, c.Quota.Limit(), fmt.Sprintf(format, args...), d)
	}
}

// sound ends the case if a method returned an error.
func (t *trial) sound(method string, err error) {
	t.Helper()
	if err != nil {
		t.broken("%s returned error %q, want none", method, err)
	}
}

// stale is the Decision of charges before the store decides.
var stale = limiter.Decision{
	Allowed: true, Limit: 1, Remaining: 1, RetryAfter: time.Hour, NextAfter: time.Hour, ResetAfter: time.Hour, Delay: time.Hour,
}

// decide returns the decisions about a batch, and requires that nothing else of the charges changes.
func (t *trial) decide(charges ...limiter.Charge) []limiter.Decision {
	t.Helper()
	before := slices.Clone(charges)
	for i := range charges {
		charges[i].Decision = stale
	}
	t.sound("Decide", t.store.Decide(t.Context(), charges))
	for i, c := range charges {
		if c.Decision = before[i].Decision; c != before[i] {
			t.broken("Decide changed charge %d from %+v to %+v", i+1, before[i], c)
		}
	}
	return decisionsOf(charges)
}

func decisionsOf(charges []limiter.Charge) []limiter.Decision {
	decisions := make([]limiter.Decision, len(charges))
	for i, c := range charges {
		decisions[i] = c.Decision
	}
	return decisions
}

// look returns the decision about a charge, as if its cost were 0.
func (t *trial) look(c limiter.Charge) limiter.Decision {
	t.Helper()
	c.Cost = 0
	d := t.decide(c)[0]
	t.want(d.Allowed, c, d, "a look is refused")
	return d
}

// looks looks at the keys of all charges in one batch.
func (t *trial) looks(charges []limiter.Charge) []limiter.Decision {
	t.Helper()
	free := slices.Clone(charges)
	for i := range free {
		free[i].Cost = 0
	}
	return t.decide(free...)
}

// take requires that a charge is admitted.
func (t *trial) take(c limiter.Charge) limiter.Decision {
	t.Helper()
	d := t.decide(c)[0]
	t.want(d.Allowed && d.RetryAfter == 0, c, d, "want admitted, with RetryAfter 0")
	return d
}

// refuse requires that a charge is refused.
func (t *trial) refuse(c limiter.Charge) limiter.Decision {
	t.Helper()
	d := t.decide(c)[0]
	t.want(!d.Allowed && d.RetryAfter >= tick, c, d, "want refused, with RetryAfter 1µs or more")
	isNever := d.RetryAfter == limiter.Never
	t.want(isNever == (c.Cost > c.Quota.Capacity()), c, d, "want RetryAfter Never if the cost is above the limit, and only then")
	return d
}

// left requires that so many units remain.
func (t *trial) left(c limiter.Charge, want int64) {
	t.Helper()
	d := t.look(c)
	t.want(d.Remaining == want, c, d, "want %d remaining", want)
}

// settlements returns refunds of the charges' costs, or debts.
func settlements(charges []limiter.Charge, owed bool) []limiter.Settlement {
	all := make([]limiter.Settlement, len(charges))
	for i, c := range charges {
		all[i].Charge = c
		if owed {
			all[i].Cost, all[i].Actual = 0, c.Cost
		}
	}
	return all
}

func (t *trial) settle(settlements []limiter.Settlement) {
	t.Helper()
	t.sound("Settle", t.store.Settle(t.Context(), settlements))
}

func (t *trial) reset(charges ...limiter.Charge) {
	t.Helper()
	t.sound("Reset", t.store.Reset(t.Context(), charges))
}

// retry requires that a charge is refused, refused again a tick before its RetryAfter, and admitted then.
func (t *trial) retry(c limiter.Charge) {
	t.Helper()
	d := t.refuse(c)
	wait := d.RetryAfter
	t.want(wait <= 3*c.Quota.Window(), c, d, "RetryAfter is longer than the limit's units take to return")
	t.sleep(wait - tick)
	d = t.decide(c)[0]
	t.want(!d.Allowed && d.RetryAfter == tick, c, d, "RetryAfter was %v; want refused for another 1µs 1µs before", wait)
	t.sleep(tick)
	d = t.decide(c)[0]
	t.want(d.Allowed, c, d, "RetryAfter was %v; want admitted then", wait)
}

// fill requires that more units remain at each NextAfter, and not before, until all remain.
func (t *trial) fill(c limiter.Charge) {
	t.Helper()
	d := t.look(c)
	for d.Remaining < d.Limit {
		wait := d.NextAfter
		t.sleep(max(0, wait-tick))
		early := t.look(c)
		t.want(early.Remaining == d.Remaining && early.NextAfter == tick, c, early, "want %d remaining until NextAfter, %v", d.Remaining, wait)
		t.sleep(tick)
		d = t.look(c)
		t.want(d.Remaining > early.Remaining, c, d, "want more than %d remaining at NextAfter, %v", early.Remaining, wait)
	}
	t.want(d.NextAfter == 0, c, d, "all remain: want NextAfter 0")
}

// empty requires that all units remain at ResetAfter, and not before.
func (t *trial) empty(c limiter.Charge) {
	t.Helper()
	wait := t.look(c).ResetAfter
	t.sleep(wait - tick)
	d := t.look(c)
	t.want(d.Remaining < d.Limit && d.ResetAfter == tick, c, d, "want used units until ResetAfter, %v", wait)
	t.sleep(tick)
	d = t.look(c)
	t.want(d.Remaining == d.Limit && d.ResetAfter == 0, c, d, "want all remaining at ResetAfter, %v", wait)
}

// begin sleeps until a window of that length begins.
func (t *trial) begin(q *limiter.Quota, length time.Duration) {
	t.Helper()
	now := t.look(limiter.Charge{Quota: q, Key: "a key to ask for the time"}).Receipt.At
	_, end := q.WindowAt(now)
	for range 2000 {
		var start int64
		if start, end = q.WindowAt(end); time.Duration(end-start)*tick == length {
			t.sleep(time.Duration(start-now) * tick)
			return
		}
	}
	t.Fatalf("limitertest: no window of %v is %v long", q.Limit(), length)
}
