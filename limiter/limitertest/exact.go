package limitertest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirgo/weir/limiter"
)

// exacts test windows of few events.
var exacts = []testCase{
	{
		name: "a window of few events is exact",
		why:  "Quota.Algorithm is SlidingLog: at most N events are admitted in any period, and a caller that waits for exactly RetryAfter is admitted. A store that uses Limit.Algorithm instead admits N+1 around a boundary.",
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
}
