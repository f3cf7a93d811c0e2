package limitertest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirgo/weir/limiter"
)

// changes are about states that live on: under another limit, and over a long time.
var changes = []testCase{
	{
		name: "a changed limit keeps what was used",
		why:  "A new configuration forgives nobody: of a state written under another limit, the units in use are carried over, at most the new limit. What is answered from then on is exact, so the state is rewritten even by a refusal.",
		each: func(t *trial, l limiter.Limit) {
			for i, to := range samples {
				for _, changed := range []limiter.Limit{to, scaled(to, 11), scaled(to, 2)} {
					rule := fmt.Sprint("rule ", i, changed.Events)
					before, after := t.named(rule, "", l), t.named(rule, "", changed)
					t.take(before, "key", 4)
					t.take(before, "given back", 4)
					want := max(0, after.Capacity()-4)
					t.remaining(after, "key", want, "of 4 that were used under "+l.String())
					t.refuse(after, "key", want+1)
					if want > 0 {
						t.take(after, "key", want)
					}
					t.giveBack(limiter.Charge{Quota: after, Key: "given back", Cost: 1})
					t.remaining(after, "given back", after.Capacity()-min(4, after.Capacity())+1, "of 4 that were used and 1 given back")
					t.retry(after, "key", 2)
				}
			}
		},
	},
	{
		name: "the same limit in a new quota changes nothing",
		why:  "A process that starts again finds what it left: nothing of a state may depend on the Quota's address.",
		each: func(t *trial, l limiter.Limit) {
			before := t.take(t.quota(l), "key", 3)
			if after := t.look(t.quota(l), "key"); after.Remaining != before.Remaining || after.ResetAfter != before.ResetAfter {
				t.broken("through another quota for %v a key looks %+v, want %+v", l, after, before)
			}
		},
	},
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
				counters = append(counters, limiter.Charge{Quota: q, Key: "a"}, limiter.Charge{Quota: q, Key: "b"})
			}
			m := model{}
			random := rand.New(rand.NewPCG(1, 2))
			for step := range 500 {
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
				case 0:
					t.giveBack(charges...)
					m.giveBack(charges, now)
				case 1:
					t.reset(charges[:1]...)
					m.reset(charges[:1])
				default:
					got := t.decide(charges...)
					for i, want := range m.decide(charges, now) {
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
