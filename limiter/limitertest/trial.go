package limitertest

import (
	"fmt"
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

// quota returns l as a quota under the rule name that most cases use.
func (t *trial) quota(l limiter.Limit) *limiter.Quota {
	t.Helper()
	return t.named("rule", "", l)
}

func (t *trial) named(rule, tier string, l limiter.Limit) *limiter.Quota {
	t.Helper()
	q, err := limiter.NewQuota(rule, tier, l)
	if err != nil {
		t.Fatalf("limitertest: NewQuota(%q, %q, %v): %v", rule, tier, l, err)
	}
	return q
}

// decide returns the decisions about a batch, and requires that the error is nil.
func (t *trial) decide(charges ...limiter.Charge) []limiter.Decision {
	t.Helper()
	if err := t.store.Decide(t.Context(), charges); err != nil {
		t.broken("Decide(%s) returned error %q, want none", describe(charges), err)
	}
	return decisionsOf(charges)
}

// ask returns the decision about one charge.
func (t *trial) ask(q *limiter.Quota, key string, cost int64) limiter.Decision {
	t.Helper()
	return t.decide(limiter.Charge{Quota: q, Key: key, Cost: cost})[0]
}

// look returns the decision about a charge of cost 0.
func (t *trial) look(q *limiter.Quota, key string) limiter.Decision {
	t.Helper()
	d := t.ask(q, key, 0)
	if !d.Allowed {
		t.broken("cost 0 under %v: Allowed is false: a look is always allowed", q.Limit())
	}
	return d
}

func (t *trial) take(q *limiter.Quota, key string, cost int64) limiter.Decision {
	t.Helper()
	return t.taken(limiter.Charge{Quota: q, Key: key, Cost: cost})
}

// taken requires that a charge is admitted.
func (t *trial) taken(c limiter.Charge) limiter.Decision {
	t.Helper()
	d := t.decide(c)[0]
	if !d.Allowed {
		t.broken("cost %d under %v was refused, want admitted: %+v", c.Cost, c.Quota.Limit(), d)
	}
	if d.RetryAfter != 0 {
		t.broken("cost %d under %v was admitted with RetryAfter %v, want 0", c.Cost, c.Quota.Limit(), d.RetryAfter)
	}
	return d
}

func (t *trial) refuse(q *limiter.Quota, key string, cost int64) limiter.Decision {
	t.Helper()
	return t.refused(limiter.Charge{Quota: q, Key: key, Cost: cost})
}

// refused requires that a charge is refused.
func (t *trial) refused(c limiter.Charge) limiter.Decision {
	t.Helper()
	q, cost := c.Quota, c.Cost
	d := t.decide(c)[0]
	if d.Allowed {
		t.broken("cost %d under %v was admitted, want refused: %+v", cost, q.Limit(), d)
	}
	if d.RetryAfter < tick {
		t.broken("cost %d under %v was refused with RetryAfter %v, want at least 1µs", cost, q.Limit(), d.RetryAfter)
	}
	if isNever := d.RetryAfter == limiter.Never; isNever != (cost > q.Capacity()) {
		t.broken("cost %d under %v was refused with RetryAfter %v, want Never if it is above the limit", cost, q.Limit(), d.RetryAfter)
	}
	return d
}

// remaining requires that so many units remain.
func (t *trial) remaining(q *limiter.Quota, key string, want int64, after string) {
	t.Helper()
	if d := t.look(q, key); d.Remaining != want {
		t.broken("under %v %d of %d remain %s, want %d", q.Limit(), d.Remaining, d.Limit, after, want)
	}
}

// returning returns refunds of the charges' costs.
func returning(charges ...limiter.Charge) []limiter.Settlement {
	refunds := make([]limiter.Settlement, len(charges))
	for i, c := range charges {
		refunds[i].Charge = c
	}
	return refunds
}

// owing returns debts of the charges' costs.
func owing(charges ...limiter.Charge) []limiter.Settlement {
	debts := make([]limiter.Settlement, len(charges))
	for i, c := range charges {
		debts[i] = limiter.Settlement{Charge: c, Actual: c.Cost}
		debts[i].Cost = 0
	}
	return debts
}

func (t *trial) settle(settlements ...limiter.Settlement) {
	t.Helper()
	if err := t.store.Settle(t.Context(), settlements); err != nil {
		t.broken("Settle(%+v) returned error %q, want none", settlements, err)
	}
}

func (t *trial) reset(charges ...limiter.Charge) {
	t.Helper()
	if err := t.store.Reset(t.Context(), charges); err != nil {
		t.broken("Reset(%s) returned error %q, want none", describe(charges), err)
	}
}

// describe returns the charges as text, each as rule/tier[key]*cost.
func describe(charges []limiter.Charge) string {
	text := ""
	for i, c := range charges {
		if i > 0 {
			text += ", "
		}
		rule := "no quota"
		if c.Quota != nil {
			rule = c.Quota.Rule() + "/" + c.Quota.Tier()
		}
		text += fmt.Sprintf("%s[%.20q]*%d", rule, c.Key, c.Cost)
	}
	return text
}

// retry requires that a charge is refused, refused again a tick before its RetryAfter, and admitted then.
func (t *trial) retry(c limiter.Charge) {
	t.Helper()
	q, cost := c.Quota, c.Cost
	wait := t.refused(c).RetryAfter
	if wait > 3*q.Window() {
		t.broken("cost %d under %v: RetryAfter is %v, which is longer than the limit's units take to return", cost, q.Limit(), wait)
	}
	t.sleep(wait - tick)
	if d := t.decide(c)[0]; d.Allowed || d.RetryAfter != tick {
		t.broken("cost %d under %v: RetryAfter was %v; 1µs before, Allowed is %v and RetryAfter %v",
			cost, q.Limit(), wait, d.Allowed, d.RetryAfter)
	}
	t.sleep(tick)
	if d := t.decide(c)[0]; !d.Allowed {
		t.broken("cost %d under %v: RetryAfter was %v; then it is refused for another %v", cost, q.Limit(), wait, d.RetryAfter)
	}
}

// fill requires that more units remain at each NextAfter, and not before, until all remain.
func (t *trial) fill(q *limiter.Quota, key string) {
	t.Helper()
	for d := t.look(q, key); d.Remaining < d.Limit; {
		if d.NextAfter < tick {
			t.broken("%d of %d remain under %v and NextAfter is %v, want at least 1µs", d.Remaining, d.Limit, q.Limit(), d.NextAfter)
		}
		t.sleep(d.NextAfter - tick)
		if early := t.look(q, key); early.Remaining != d.Remaining || early.NextAfter != tick {
			t.broken("under %v %d remain and NextAfter is %v; 1µs before, %d remain and NextAfter is %v",
				q.Limit(), d.Remaining, d.NextAfter, early.Remaining, early.NextAfter)
		}
		t.sleep(tick)
		next := t.look(q, key)
		if next.Remaining <= d.Remaining {
			t.broken("under %v %d remain and NextAfter is %v; then %d remain, want more", q.Limit(), d.Remaining, d.NextAfter, next.Remaining)
		}
		d = next
	}
	if d := t.look(q, key); d.NextAfter != 0 {
		t.broken("all remain under %v and NextAfter is %v, want 0", q.Limit(), d.NextAfter)
	}
}

// empty requires that all units remain at ResetAfter, and not before.
func (t *trial) empty(q *limiter.Quota, key string) {
	t.Helper()
	reset := t.look(q, key).ResetAfter
	t.sleep(reset - tick)
	if d := t.look(q, key); d.Remaining == d.Limit || d.ResetAfter != tick {
		t.broken("under %v ResetAfter is %v; 1µs before, %d of %d remain and ResetAfter is %v", q.Limit(), reset, d.Remaining, d.Limit, d.ResetAfter)
	}
	t.sleep(tick)
	if d := t.look(q, key); d.Remaining != d.Limit || d.ResetAfter != 0 {
		t.broken("under %v ResetAfter is %v; then %d of %d remain and ResetAfter is %v", q.Limit(), reset, d.Remaining, d.Limit, d.ResetAfter)
	}
}
