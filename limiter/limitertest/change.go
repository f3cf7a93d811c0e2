package limitertest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirgo/weir/limiter"
)

// changes test states over a long time, and under changed limits.
var changes = []testCase{
	{
		name: "decides as Quota does",
		why:  "A store makes no decisions of its own: its decisions are those of TakeAll of package store for the states that it holds.",
		run: func(t *trial) {
			// Only the store's clock says which window it is; a fixed window shows it.
			const period = 10 * time.Second
			clock := t.named("clock", "", limiter.Limit{Events: 1, Per: period, Algorithm: limiter.FixedWindow})
			now := (100*period - t.take(clock, "key", 1).ResetAfter).Microseconds()

			var counters []limiter.Charge
			for i, l := range samples {
				q := t.named(fmt.Sprint("rule ", i), "", l)
				q.Settles = i%2 == 1
				counters = append(counters, limiter.Charge{Quota: q, Key: "a"}, limiter.Charge{Quota: q, Key: "b"})
			}
			m := model{}
			type taken struct{ here, there limiter.Receipt } // when, on the store's clock and on the model's
			times := []taken{{}}
			random := rand.New(rand.NewPCG(1, 2))
			for step := range 800 {
				if random.IntN(2) == 0 {
					pause := time.Duration(random.Int64N(int64(period/3))) / tick * tick
					t.sleep(pause)
					now += pause.Microseconds()
				}
				var charges []limiter.Charge
				for _, i := range random.Perm(len(counters))[:1+random.IntN(3)] {
					c := counters[i]
					c.Cost = random.Int64N(4)
					c.Within = max(0, time.Duration(random.Int64N(int64(2*period)))-period)
					charges = append(charges, c)
				}
				switch random.IntN(12) {
				case 0, 1:
					known := slices.Clone(charges)
					for i := range charges {
						at := times[random.IntN(len(times))]
						charges[i].Decision.Receipt, known[i].Decision.Receipt = at.here, at.there
					}
					t.settle(returning(charges...)...)
					m.settle(returning(known...), now)
				case 2:
					t.settle(owing(charges...)...)
					m.settle(owing(charges...), now)
				case 3:
					t.reset(charges[:1]...)
					m.reset(charges[:1])
				default:
					got := t.decide(charges...)
					for i, want := range m.decide(charges, now) {
						times = append(times[max(0, len(times)-6):], taken{got[i].Receipt, want.Receipt})
						got[i].Receipt = want.Receipt // which is the store's own
						if got[i] != want {
							t.broken("in step %d of a trace, the decision for charge %d of %s is\n%+v, and Quota's is\n%+v",
								step+1, i+1, describe(charges), got[i], want)
						}
					}
				}
			}
		},
	},
}

// scaled returns l with another number of events, and with an equal burst if l has one.
func scaled(l limiter.Limit, events int64) limiter.Limit {
	l.Events = events
	if l.Burst != 0 {
		l.Burst = events
	}
	return l
}

// slow returns l scaled, with a period that outlasts every case.
func slow(l limiter.Limit, events int64) limiter.Limit {
	l.Per = 300 * 24 * time.Hour
	return scaled(l, events)
}
