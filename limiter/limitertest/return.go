package limitertest

import (
	"math"
	"time"

	"github.com/weirgo/weir/limiter"
)

// returns are about units that are given back, and keys that are forgotten.
var returns = []testCase{
	{
		name: "what is given back can be taken again",
		why:  "Refund is for events that did not happen after all.",
		each: func(t *trial, l limiter.Limit) {
			q := t.quota(l)
			at := t.take(q, "key", q.Capacity()).At
			t.refuse(q, "key", 2)
			t.refund(limiter.Charge{Quota: q, Key: "key", Cost: 2, At: at})
			t.remaining(q, "key", 2, "after 2 were given back")
			t.take(q, "key", 2)
			t.refuse(q, "key", 1)
		},
	},
	{
		name: "no more can be given back than was taken",
		why:  "More than the limit never remain, and nothing is saved up for later: use Quota.Refund.",
		each: func(t *trial, l limiter.Limit) {
			q := t.quota(l)
			for _, n := range []int64{2, 3, q.Capacity(), q.Capacity() + 1, 1 << 53, math.MaxInt64} {
				at := t.take(q, "key", 2).At
				t.refund(limiter.Charge{Quota: q, Key: "key", Cost: n, At: at})
				t.remaining(q, "key", q.Capacity(), "after more was given back than taken")
			}
			t.take(q, "key", q.Capacity())
			t.refuse(q, "key", 1)
		},
	},
	{
		name: "a refund is of the units that its decision took",
		why:  "Charge.At says when the units were taken. If they return to a window or to entries of another time, more than the limit is really used there: pass At to Quota.Refund, and fill in Decision.At, as Quota.Describe does.",
		run: func(t *trial) {
			const period = time.Minute
			clock := t.named("clock", "", limiter.Limit{Events: 1, Per: period, Algorithm: limiter.FixedWindow})
			t.sleep(t.take(clock, "key", 1).ResetAfter + 55*time.Second)

			fixed := t.named("fixed", "", limiter.PerMinute(100).With(limiter.FixedWindow))
			log := t.named("log", "", limiter.PerMinute(100).With(limiter.SlidingLog))
			for _, q := range []*limiter.Quota{fixed, log} {
				first := t.take(q, "key", 50)
				if first.At == 0 {
					t.broken("an event under %v was admitted with Decision.At 0", q.Limit())
				}
				t.sleep(10 * time.Second)
				second := t.take(q, "key", t.look(q, "key").Remaining)
				back := limiter.Charge{Quota: q, Key: "key", Cost: 40, At: first.At}
				t.refund(back)
				if q == fixed {
					t.remaining(q, "key", 0, "after units of the window before were refunded")
					t.sleep(50 * time.Second)
					continue
				}
				t.sleep(time.Second)
				t.take(q, "key", 40)
				t.refuse(q, "key", 1)
				t.sleep(49 * time.Second)
				t.remaining(q, "key", 10, "a minute after 50 of which 40 were refunded")
				t.take(q, "key", 10)
				t.refund(back)
				t.remaining(q, "key", 0, "after units of expired entries were refunded")
				back.Cost, back.At = 100, second.At
				t.refund(back)
				t.remaining(q, "key", 50, "after the other 50 were refunded")
			}
		},
	},
	{
		name: "a turn that is given back brings no others together",
		why:  "Events in a leaky bucket have their turns when they are admitted. What is given back of one that others are behind would let the next event out together with them, so only the last one's units return: pass At to Quota.Refund.",
		run: func(t *trial) {
			const distance = 2500 * time.Millisecond
			q := t.quota(limiter.Limit{Events: 4, Per: 10 * time.Second, Burst: 6, Algorithm: limiter.LeakyBucket})
			cancel := func(d limiter.Decision) {
				t.refund(limiter.Charge{Quota: q, Key: "key", Cost: 1, At: q.UndoAt(&d)})
			}
			var last time.Duration // the turn of the last event that was not cancelled
			for range 10 {
				var cancelled []limiter.Decision
				for len(cancelled) < 5 {
					cancelled = append(cancelled, t.take(q, "key", 1))
				}
				turn := t.slept + t.take(q, "key", 1).Delay
				if last > 0 && turn < last+distance {
					t.broken("%d events were cancelled that were before others: two others leave %v apart, want %v", len(cancelled), turn-last, distance)
				}
				last = turn
				for _, d := range cancelled {
					cancel(d)
				}
				t.sleep(distance / 10)
				before := t.look(q, "key")
				one := t.ask(q, "key", 1)
				two := t.ask(q, "key", 1)
				if two.Allowed {
					cancel(two)
				}
				if one.Allowed {
					cancel(one)
				}
				if after := t.look(q, "key"); after != before {
					t.broken("after the last two events were cancelled, the last one first, a look says %+v, want %+v as before them", after, before)
				}
				t.sleep(before.ResetAfter - distance)
			}
		},
	},
	{
		name: "giving nothing back changes nothing",
		why:  "Cost 0 of Refund is 0 units, not all of them and not one.",
		each: func(t *trial, l limiter.Limit) {
			q := t.quota(l)
			before := t.take(q, "key", 3)
			t.refund(limiter.Charge{Quota: q, Key: "key"})
			t.remaining(q, "key", before.Remaining, "after 0 were given back")
		},
	},
	{
		name: "giving back to an unknown key is harmless",
		why:  "A key that has nothing to get back, or was forgotten in between, gets nothing.",
		each: func(t *trial, l limiter.Limit) {
			q := t.quota(l)
			t.refund(limiter.Charge{Quota: q, Key: "key", Cost: 3})
			t.remaining(q, "key", q.Capacity(), "after 3 were given back to a new key")
			t.take(q, "key", q.Capacity())
			t.refuse(q, "key", 1)

			t.sleep(t.look(q, "key").ResetAfter)
			t.refund(limiter.Charge{Quota: q, Key: "key", Cost: 3})
			t.take(q, "key", q.Capacity())
			t.refuse(q, "key", 1)
		},
	},
	{
		name: "a batch is given back to each of its keys",
		why:  "Every charge of Refund gets its own Cost back, to its own key only.",
		run: func(t *trial) {
			charges := t.mixed("rule")
			t.decide(charges...)
			before := t.looks(charges)
			for i, d := range t.decide(charges...) {
				charges[i].At = d.At
			}
			t.refund(append(charges, limiter.Charge{Quota: t.quota(samples[0]), Key: "unknown", Cost: 1})...)
			for i, d := range t.looks(charges) {
				if d.Remaining != before[i].Remaining {
					t.broken("under %v %d remain after %d were taken and given back, want %d",
						charges[i].Quota.Limit(), d.Remaining, charges[i].Cost, before[i].Remaining)
				}
			}
		},
	},
	{
		name: "a reset key is as if never seen",
		why:  "Reset forgets all about a key, under the charge's rule and tier only. Its Cost means nothing.",
		each: func(t *trial, l limiter.Limit) {
			q, gold := t.quota(l), t.named("rule", "gold", l)
			fresh := t.look(q, "key")
			t.take(q, "key", q.Capacity())
			t.take(q, "other", 3)
			t.take(gold, "key", 3)
			t.reset(
				limiter.Charge{Quota: q, Key: "key", Cost: 1},
				limiter.Charge{Quota: q, Key: "never seen"},
			)
			if d := t.look(q, "key"); d != fresh {
				t.broken("under %v a key that was reset looks %+v, want %+v", l, d, fresh)
			}
			t.remaining(q, "other", q.Capacity()-3, "for another key")
			t.remaining(gold, "key", q.Capacity()-3, "in another tier")
			t.take(q, "key", q.Capacity())
			t.refuse(q, "key", 1)
		},
	},
}
