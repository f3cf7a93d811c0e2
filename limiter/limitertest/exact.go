package limitertest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirgo/weir/limiter"
)

// exacts are about windows of few events, logs, and rules of several limits.
var exacts = []testCase{
	{
		name: "a window of few events is exact",
		why:  "Quota.Algorithm says that it is a SlidingLog: never are more than N in any period, and a caller that waits for exactly RetryAfter is admitted. A store that goes by Limit.Algorithm counts N+1 around a boundary.",
		run: func(t *trial) {
			const period = 10 * time.Second
			random := rand.New(rand.NewPCG(5, 6))
			for _, n := range []int64{1, 2, 3, 10} {
				l := limiter.Limit{Events: n, Per: period}
				q := t.named(fmt.Sprint("rule ", n), "", l)
				var admitted []time.Duration
				for range 60 {
					d := t.ask(q, "key", 1)
					if !d.Allowed {
						t.sleep(d.RetryAfter)
						if d = t.ask(q, "key", 1); !d.Allowed {
							t.broken("under %v a caller that waited for exactly RetryAfter is refused for another %v", l, d.RetryAfter)
						}
					}
					now := t.slept
					admitted = append(admitted, now)
					if i := len(admitted) - 1 - int(n); i >= 0 && now-admitted[i] < period {
						t.broken("under %v %d events were admitted within %v, want at most %d in %v", l, n+1, now-admitted[i], n, period)
					}
					if random.IntN(3) == 0 {
						t.sleep(time.Duration(random.Int64N(int64(period))) / tick * tick)
					}
				}
			}
		},
	},
	{
		name: "several limits of a rule are charged together",
		why:  "The quotas of a family are charged in one batch under one key, and each has its own count.",
		run: func(t *trial) {
			limits := []limiter.Limit{
				{Events: 5, Per: 10 * time.Second},
				{Events: 40, Per: time.Minute, Algorithm: limiter.SlidingCounter},
				{Events: 60, Per: 24 * time.Hour, Burst: 12, Algorithm: limiter.TokenBucket},
			}
			family, err := limiter.NewQuotas("family", "", limiter.Join(limits, limiter.Concurrency{}))
			if err != nil {
				t.Fatalf("limitertest: NewQuotas(%v): %v", limits, err)
			}
			gold, _ := limiter.NewQuotas("family", "gold", limiter.Join(limits, limiter.Concurrency{}))
			batch := func(cost int64) (charges []limiter.Charge) {
				for _, q := range family {
					charges = append(charges, limiter.Charge{Quota: q, Key: "key", Cost: cost})
				}
				return append(charges, limiter.Charge{Quota: gold[0], Key: "key"}, limiter.Charge{Quota: family[0], Key: "other"})
			}
			see := func(what string, want ...int64) {
				t.Helper()
				for i, q := range family {
					t.remaining(q, "key", want[i], what)
				}
				t.remaining(gold[0], "key", 5, what+", in another tier")
				t.remaining(family[0], "other", 5, what+", for another key")
			}
			took := t.decide(batch(4)...)
			see("after 4 were taken", 1, 36, 8)
			for i, d := range t.decide(batch(2)...) {
				if d.Allowed != (i != 0) {
					t.broken("charge %d of an event that the first limit has no room for: %+v", i+1, d)
				}
			}
			see("after a refusal by the first limit", 1, 36, 8)
			back := batch(3)
			for i := range back {
				back[i].At = took[i].At
			}
			t.refund(back...)
			see("after 3 were refunded", 4, 39, 11)
			t.owe(batch(6)...)
			see("after 6 were owed", 0, 33, 5)
			t.reset(batch(0)[1])
			see("after the second was reset", 0, 40, 5)
		},
	},
}
