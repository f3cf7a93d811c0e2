package limitertest

import (
	"time"

	"github.com/weirgo/weir/limiter"
)

// debts test debts, and events whose cost is known only later.
var debts = []testCase{
	{
		name: "units that are refunded late were in use until then",
		why:  "If a quota Settles, units are refunded long after they were taken. Only units that still count are refunded, so the state must keep what Quota.Settle needs (State.Log). In no period is more than the limit really used.",
		run: func(t *trial) {
			const period, answer = 10 * time.Second, time.Second
			for _, l := range samples {
				if l.Algorithm == limiter.LeakyBucket { // a turn cannot be refunded if others follow it
					continue
				}
				l = scaled(l, 20)
				q := t.named("rule "+l.String(), "", l)
				q.Settles = true
				type event struct {
					at time.Duration
					limiter.Settlement
				}
				var pending, done []event
				for step := range 60 {
					for len(pending) > 0 && t.slept-pending[0].at >= answer {
						t.settle(pending[0].Settlement)
						done, pending = append(done, pending[0]), pending[1:]
					}
					cost := int64(3 + step%5)
					if d := t.ask(q, "key", cost); d.Allowed {
						c := limiter.Charge{Quota: q, Key: "key", Cost: cost, Decision: d}
						pending = append(pending, event{t.slept, limiter.Settlement{Charge: c, Actual: int64(step % 3)}})
					}
					t.sleep(answer / 3 / tick * tick)
				}
				for _, e := range done {
					within := int64(0)
					for _, other := range done {
						if other.at >= e.at && other.at < e.at+period {
							within += other.Actual
						}
					}
					if most := mostInPeriod(q); within > most {
						t.broken("under %v, %d units were really used within %v, want at most %d", l, within, period, most)
					}
				}
				if len(done) < 20 {
					t.broken("60 events under %v reserved 3 to 7 units and used 0 to 2: %d were admitted and settled, want 20 or more: unused units are not refunded", l, len(done))
				}
			}
		},
	},
}

// mostInPeriod returns how many units q admits in a period at most.
func mostInPeriod(q *limiter.Quota) int64 {
	switch l := q.Limit(); q.Algorithm() {
	case limiter.SlidingLog:
		return l.Events
	case limiter.TokenBucket, limiter.LeakyBucket:
		return q.Capacity() + l.Events
	default:
		return 2 * l.Events
	}
}
