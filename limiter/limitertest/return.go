package limitertest

import (
	"time"

	"github.com/weirgo/weir/limiter"
)

// returns test refunds.
var returns = []testCase{
	{
		name: "a refunded turn does not move other turns together",
		why:  "An event in a leaky bucket has a turn when it is admitted. If the turn of an event in front of others were refunded, the next event would leave together with them. So only the last turn is refunded: pass the Receipt to Quota.Settle.",
		run: func(t *trial) {
			const distance = 2500 * time.Millisecond
			q := t.quota(limiter.Limit{Events: 4, Per: 10 * time.Second, Burst: 6, Algorithm: limiter.LeakyBucket})
			cancel := func(d limiter.Decision) {
				t.settle(returning(limiter.Charge{Quota: q, Key: "key", Cost: 1, Decision: limiter.Decision{Receipt: q.Undo(&d)}})...)
			}
			var last time.Duration // the turn of the last event that was not cancelled
			for range 10 {
				var cancelled []limiter.Decision
				for len(cancelled) < 5 {
					cancelled = append(cancelled, t.take(q, "key", 1))
				}
				turn := t.slept + t.take(q, "key", 1).Delay
				if last > 0 && turn < last+distance {
					t.broken("%d events in front of others were cancelled: two others leave %v apart, want %v", len(cancelled), turn-last, distance)
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
					t.broken("the last two events were cancelled, the last one first: a look says %+v, want %+v, as before these events", after, before)
				}
				t.sleep(before.ResetAfter - distance)
			}
		},
	},
}
