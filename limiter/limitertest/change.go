package limitertest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirgo/weir/limiter"
)

// changes are about states that live on: under another limit, and over a long time.
var changes = []testCase{
	{
		name: "decides as the quota does",
		why:  "A store decides nothing by itself: what it answers is what Quota.Take and Quota.Describe say of the state it holds.",
		run: func(t *trial) {
			// Which window it is, the store's clock alone knows; a fixed window tells.
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
					charges = append(charges, c)
				}
				switch random.IntN(12) {
				case 0, 1:
					known := slices.Clone(charges)
					for i := range charges {
						at := times[random.IntN(len(times))]
						charges[i].Receipt, known[i].Receipt = at.here, at.there
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
							t.broken("in step %d of a trace, charge %d of %s was answered\n%+v, and\n%+v is what Quota says",
								step+1, i+1, describe(charges), got[i], want)
						}
					}
				}
			}
		},
	},
}

// scaled is l with another number of events, and as great a burst if it has one.
func scaled(l limiter.Limit, events int64) limiter.Limit {
	l.Events = events
	if l.Burst != 0 {
		l.Burst = events
	}
	return l
}

// slow is l scaled, in a period that no case sees the end of.
func slow(l limiter.Limit, events int64) limiter.Limit {
	l.Per = 300 * 24 * time.Hour
	return scaled(l, events)
}
