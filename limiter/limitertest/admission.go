package limitertest

import (
	"math"
	"time"

	"github.com/weirgo/weir/limiter"
)

// admissions are about what one charge takes.
var admissions = []testCase{
	{
		name: "admits exactly the limit at once",
		why:  "N events pass and no more: a state that was taken from has to be the one that is found next.",
		each: func(t *trial, l limiter.Limit) {
			q := t.quota(l)
			for n := q.Capacity(); n > 0; n-- {
				d := t.take(q, "key", 1)
				if d.Limit != q.Capacity() || d.Remaining != n-1 {
					t.broken("an admitted event left %d of %d, want %d of %d", d.Remaining, d.Limit, n-1, q.Capacity())
				}
			}
			if d := t.refuse(q, "key", 1); d.Remaining != 0 {
				t.broken("a refusal says that %d remain, want 0", d.Remaining)
			}
		},
	},
	{
		name: "admits the limit as one event of that cost",
		why:  "An event of cost n takes what n events of cost 1 do.",
		each: func(t *trial, l limiter.Limit) {
			q := t.quota(l)
			t.take(q, "key", q.Capacity())
			t.refuse(q, "key", 1)
			t.take(q, "other", q.Capacity()-1)
			t.refuse(q, "other", 2)
			t.take(q, "other", 1)
		},
	},
	{
		name: "a refusal takes nothing and changes nothing",
		why:  "A client that asks too often must not wait longer than one that waits: write nothing back when Quota.Take says false.",
		each: func(t *trial, l limiter.Limit) {
			q := t.quota(l)
			t.take(q, "key", q.Capacity()-1)
			before := t.look(q, "key")
			for range 10 {
				t.refuse(q, "key", q.Capacity())
				t.refuse(q, "key", 2)
			}
			if after := t.look(q, "key"); after != before {
				t.broken("twenty refusals under %v turned %+v into %+v", l, before, after)
			}
			t.take(q, "key", 1)
			wait := t.refuse(q, "key", 1).RetryAfter
			pause := max(wait/4/tick*tick, tick)
			for slept := pause; slept < wait; slept += pause {
				t.sleep(pause)
				if d := t.refuse(q, "key", 1); d.RetryAfter != wait-slept {
					t.broken("under %v RetryAfter was %v, and %v later it is %v, want %v", l, wait, slept, d.RetryAfter, wait-slept)
				}
			}
		},
	},
	{
		name: "an event of cost 0 looks",
		why:  "A look takes nothing, whatever remains, and says what the next event would find.",
		each: func(t *trial, l limiter.Limit) {
			q := t.quota(l)
			fresh := limiter.Decision{Allowed: true, Limit: q.Capacity(), Remaining: q.Capacity()}
			for range 10 {
				d := t.look(q, "key")
				fresh.At = d.At // which is the store's own
				if d != fresh {
					t.broken("a look at a new key under %v is %+v, want %+v", l, d, fresh)
				}
			}
			taken := t.take(q, "key", 3)
			for range 10 {
				d := t.look(q, "key")
				d.Delay, d.At = taken.Delay, taken.At // that delay is of the next event
				if d != taken {
					t.broken("an event under %v was answered %+v, and a look after it %+v", l, taken, d)
				}
			}
			t.take(q, "key", q.Capacity()-3)
			t.remaining(q, "key", 0, "after the limit was taken")
		},
	},
	{
		name: "a cost above the limit is refused for ever and takes nothing",
		why:  "It can never be admitted, so RetryAfter is Never; and no sum of costs may overflow.",
		each: func(t *trial, l limiter.Limit) {
			q := t.quota(l)
			for _, used := range []int64{0, 2} {
				if used > 0 {
					t.take(q, "key", used)
				}
				for _, cost := range []int64{q.Capacity() + 1, 1 << 31, 1 << 53, math.MaxInt64/2 + 1, math.MaxInt64} {
					if d := t.refuse(q, "key", cost); d.RetryAfter != limiter.Never {
						t.broken("cost %d under %v: RetryAfter is %v, want Never", cost, l, d.RetryAfter)
					}
					t.remaining(q, "key", q.Capacity()-used, "after a cost above the limit")
				}
			}
		},
	},
	{
		name: "a long pause grants one limit and no more",
		why:  "A key that was away for years comes back to what a new one has.",
		each: func(t *trial, l limiter.Limit) {
			q := t.quota(l)
			for _, pause := range []time.Duration{0, time.Hour, 3 * 366 * 24 * time.Hour} {
				t.sleep(pause)
				t.take(q, "key", q.Capacity())
				t.refuse(q, "key", 1)
			}
		},
	},
	{
		name: "counts exactly at the greatest limits",
		why:  "What the states hold goes up to 2^53: nothing may be kept in 32 bits or rounded as a float.",
		run: func(t *trial) {
			const day = 24 * time.Hour
			for _, l := range []limiter.Limit{
				{Events: 1, Per: 30 * day},
				{Events: 10_000_000, Per: time.Second},
				{Events: 10_000_000, Per: day},
				{Events: 999_999_999_999, Per: 30 * day},
				{Events: 1_000_000_000_000, Per: 30 * day},
				{Events: 7, Per: 366*day - tick},
			} {
				for _, a := range []limiter.Algorithm{limiter.SlidingWindow, limiter.TokenBucket, limiter.LeakyBucket, limiter.FixedWindow, limiter.SlidingCounter} {
					q := t.named("rule "+l.With(a).String(), "", l.With(a))
					all := q.Capacity()
					if all > 2 {
						t.take(q, "key", all/2)
						t.remaining(q, "key", all-all/2, "after half was taken")
						t.take(q, "key", all-all/2)
					} else {
						t.take(q, "key", all)
					}
					d := t.refuse(q, "key", 1)
					t.sleep(d.RetryAfter - tick)
					t.refuse(q, "key", 1)
					t.sleep(tick)
					t.take(q, "key", 1)
				}
			}
		},
	},
	{
		name: "a leaky bucket lets events out at a constant rate",
		why:  "Delay is how long the queue is that an event finds: one by one they leave at equal distances.",
		run: func(t *trial) {
			q := t.quota(limiter.Limit{Events: 4, Per: 10 * time.Second, Burst: 6, Algorithm: limiter.LeakyBucket})
			const distance = 2500 * time.Millisecond
			for i := range time.Duration(7) {
				if d := t.take(q, "key", 1); d.Delay != i*distance {
					t.broken("event %d of a burst has Delay %v, want %v", i+1, d.Delay, i*distance)
				}
			}
			t.refuse(q, "key", 1)
			t.sleep(distance + time.Second)
			// Six are in the queue, one of them for another 1.5 seconds.
			if d := t.take(q, "key", 1); d.Delay != 6*distance-time.Second {
				t.broken("the event after a pause has Delay %v, want %v", d.Delay, 6*distance-time.Second)
			}
			if d := t.look(q, "key"); d.Delay != 7*distance-time.Second {
				t.broken("a look at the queue has Delay %v, want %v: what an event would wait", d.Delay, 7*distance-time.Second)
			}
			for _, l := range samples {
				if q := t.named(l.Algorithm.String(), "", l); l.Algorithm != limiter.LeakyBucket {
					t.take(q, "key", 1)
					if d := t.take(q, "key", 1); d.Delay != 0 {
						t.broken("%v has no queue, and Delay is %v", l, d.Delay)
					}
				}
			}
		},
	},
}
