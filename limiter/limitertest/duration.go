package limitertest

import (
	"time"

	"github.com/weirgo/weir/limiter"
)

// durations are about what decisions say of the future, which then is tried.
var durations = []testCase{
	{
		name: "RetryAfter is exact",
		why:  "The same cost is refused until exactly then and admitted from then on: time is counted in microseconds, and a state lives at least that long.",
		each: func(t *trial, l limiter.Limit) {
			q := t.quota(l)
			for cost := int64(1); cost <= q.Capacity(); cost++ {
				key := string(rune('a' + cost))
				t.take(q, key, 2)
				t.sleep(1_234_567 * tick)
				t.take(q, key, t.look(q, key).Remaining)
				t.retry(q, key, cost)
			}
		},
	},
	{
		name: "RetryAfter is exact while some remain",
		why:  "A cost of which only a part is there waits for the rest, and no longer.",
		each: func(t *trial, l limiter.Limit) {
			q := t.quota(l)
			for used := int64(1); used < q.Capacity(); used++ {
				key := string(rune('a' + used))
				t.take(q, key, used)
				t.retry(q, key, q.Capacity()-used+1)
			}
		},
	},
	{
		name: "NextAfter is exact",
		why:  "Remaining grows exactly then and not before.",
		each: func(t *trial, l limiter.Limit) {
			q := t.quota(l)
			t.take(q, "key", 3)
			t.sleep(2_222_222 * tick)
			t.take(q, "key", t.look(q, "key").Remaining)
			for d := t.look(q, "key"); d.Remaining < d.Limit; {
				if d.NextAfter < tick {
					t.broken("%d of %d remain under %v and NextAfter is %v, want at least 1µs", d.Remaining, d.Limit, l, d.NextAfter)
				}
				t.sleep(d.NextAfter - tick)
				if early := t.look(q, "key"); early.Remaining != d.Remaining || early.NextAfter != tick {
					t.broken("under %v %d remain and NextAfter is %v; 1µs before, %d remain and NextAfter is %v",
						l, d.Remaining, d.NextAfter, early.Remaining, early.NextAfter)
				}
				t.sleep(tick)
				next := t.look(q, "key")
				if next.Remaining <= d.Remaining {
					t.broken("under %v %d remain and NextAfter is %v; then %d remain, want more", l, d.Remaining, d.NextAfter, next.Remaining)
				}
				d = next
			}
			if d := t.look(q, "key"); d.NextAfter != 0 {
				t.broken("all remain under %v and NextAfter is %v, want 0", l, d.NextAfter)
			}
		},
	},
	{
		name: "ResetAfter is exact",
		why:  "All remain exactly then and not before: a state that expires has to live at least that long.",
		each: func(t *trial, l limiter.Limit) {
			q := t.quota(l)
			for used := int64(1); used <= q.Capacity(); used++ {
				key := string(rune('a' + used))
				d := t.take(q, key, used)
				t.sleep(d.ResetAfter - tick)
				if early := t.look(q, key); early.Remaining == early.Limit || early.ResetAfter != tick {
					t.broken("%d were taken under %v and ResetAfter is %v; 1µs before, %d of %d remain and ResetAfter is %v",
						used, l, d.ResetAfter, early.Remaining, early.Limit, early.ResetAfter)
				}
				t.sleep(tick)
				if then := t.look(q, key); then.Remaining != then.Limit || then.ResetAfter != 0 {
					t.broken("%d were taken under %v and ResetAfter is %v; then %d of %d remain and ResetAfter is %v",
						used, l, d.ResetAfter, then.Remaining, then.Limit, then.ResetAfter)
				}
			}
		},
	},
	{
		name: "a clock that steps back costs a period at most and grants one burst",
		why:  "A state may be ahead of the clock, by up to a period: nothing is granted until the clock has caught up. If it is further ahead the limit begins anew, or a clock that was a year fast would refuse for a year.",
		each: func(t *trial, l limiter.Limit) {
			if !t.stepsBack {
				return
			}
			q := t.quota(l)
			for _, key := range []string{"near", "far"} {
				t.take(q, key, q.Capacity())
			}
			t.sleep(-q.Window() / 2)
			t.retry(q, "near", 1)
			t.sleep(-time.Hour)
			for range q.Capacity() {
				t.take(q, "far", 1)
			}
			t.retry(q, "far", 1)
		},
	},
}

// retry sees a cost refused, refused a tick before its RetryAfter, and admitted then.
func (t *trial) retry(q *limiter.Quota, key string, cost int64) {
	t.Helper()
	wait := t.refuse(q, key, cost).RetryAfter
	if wait > 3*q.Window() {
		t.broken("cost %d under %v: RetryAfter is %v, which is longer than the limit takes to come back", cost, q.Limit(), wait)
	}
	t.sleep(wait - tick)
	if d := t.ask(q, key, cost); d.Allowed || d.RetryAfter != tick {
		t.broken("cost %d under %v: RetryAfter was %v; 1µs before, Allowed is %v and RetryAfter %v",
			cost, q.Limit(), wait, d.Allowed, d.RetryAfter)
	}
	t.sleep(tick)
	if d := t.ask(q, key, cost); !d.Allowed {
		t.broken("cost %d under %v: RetryAfter was %v; then it is refused for another %v", cost, q.Limit(), wait, d.RetryAfter)
	}
}
