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
		name: "a changed limit keeps what was used",
		why:  "A new configuration forgives no client: of a state written under another limit, the units in use are carried over, at most the new limit. Looks and refusals change nothing, so the state becomes the new limit's with the first admission under it, from which on all that is answered is exact.",
		each: func(t *trial, l limiter.Limit) {
			for i, to := range samples {
				for _, changed := range []limiter.Limit{to, scaled(to, 11), scaled(to, 2)} {
					rule := fmt.Sprint("rule ", i, changed.Events)
					before, after := t.named(rule, "", l), t.named(rule, "", changed)
					t.take(before, "key", 4)
					at := t.take(before, "given back", 4).At
					want := max(0, after.Capacity()-4)
					used := t.look(before, "key")
					t.remaining(after, "key", want, "of 4 that were used under "+l.String())
					t.refuse(after, "key", want+1)
					// Not all of a batch fits, though this key's charge may.
					t.decide(
						limiter.Charge{Quota: after, Key: "key", Cost: max(1, want)},
						limiter.Charge{Quota: after, Key: "too much", Cost: after.Capacity() + 1},
					)
					if d := t.look(before, "key"); d != used {
						t.broken("after a look and refusals under %v a key looks %+v under %v, want %+v as before", changed, d, l, used)
					}
					if want > 0 {
						t.take(after, "key", want)
					}
					t.refund(limiter.Charge{Quota: after, Key: "given back", Cost: 1, At: at})
					t.remaining(after, "given back", max(0, after.Capacity()-3), "of 4 that were used and 1 given back")
					if want > 0 {
						t.retry(after, "key", 2)
					}
				}
			}
		},
	},
	{
		name: "two limits in turn admit no more than the larger",
		why:  "While a new configuration is rolled out, some processes ask under the old limit and some under the new one. What one of them is refused must not be stored as the other's state: cut down to the lower limit, it would leave room under the higher one, time after time.",
		each: func(t *trial, l limiter.Limit) {
			for i, other := range samples {
				for first := range 2 {
					rule := fmt.Sprint("rule ", i, first)
					turns := []*limiter.Quota{t.named(rule, "", slow(l, 10)), t.named(rule, "", slow(other, 12))}
					want := max(turns[0].Capacity(), turns[1].Capacity())
					admitted := int64(0)
					for turn := range 30 {
						if t.ask(turns[(first+turn)%2], "key", 1).Allowed {
							admitted++
						}
					}
					if admitted != want {
						t.broken("%v and %v, in turn, admitted %d of 30 at once, want %d", turns[0].Limit(), turns[1].Limit(), admitted, want)
					}
				}
			}
		},
	},
	{
		name: "what is settled under an old limit forgets nothing",
		why:  "Events that reserved before a limit was raised are settled after it, when more is used than the old limit has: refund a state under the quota that it was written under, and owe by Quota.OweFrom. Converted to the old limit, it would make room for all that is above that.",
		each: func(t *trial, l limiter.Limit) {
			for i, to := range samples {
				rule := fmt.Sprint("rule ", i)
				before, after := t.named(rule, "", slow(l, 10)), t.named(rule, "", slow(to, 50))
				before.Settles, after.Settles = true, true
				held := t.take(before, "key", 2)
				t.take(before, "key", 2)
				t.take(after, "key", after.Capacity()-4)
				c := limiter.Charge{Quota: before, Key: "key", Cost: 2, At: held.At}
				t.settle(limiter.Settlement{Charge: c, Actual: 1})
				if d := t.look(after, "key"); d.Remaining > 1 {
					t.broken("all of %v was used, and 1 came back of what was reserved under %v: %d remain, want at most 1", after.Limit(), before.Limit(), d.Remaining)
				}
				t.settle(limiter.Settlement{Charge: c, Actual: 3})
				t.refuse(after, "key", 1)
				t.reset(c)
				t.remaining(after, "key", after.Capacity(), "after a reset under the old limit")
			}
		},
	},
	{
		name: "a raised limit is one for keys that only owe, too",
		why:  "Where events are charged when they are over, nothing is ever taken under the new limit, and what is owed is all that can make the state the new limit's: Quota.OweFrom.",
		each: func(t *trial, l limiter.Limit) {
			for i, to := range samples {
				rule := fmt.Sprint("rule ", i)
				before, after := t.named(rule, "", slow(l, 10)), t.named(rule, "", slow(to, 50))
				t.owe(limiter.Charge{Quota: before, Key: "key", Cost: 3})
				t.owe(limiter.Charge{Quota: after, Key: "key", Cost: after.Capacity() - 4})
				t.remaining(after, "key", 1, "after all but one were owed, 3 of them under the limit before")
				t.owe(limiter.Charge{Quota: before, Key: "key", Cost: 1})
				t.refuse(after, "key", 1)
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
				q.Settles = i%2 == 1
				counters = append(counters, limiter.Charge{Quota: q, Key: "a"}, limiter.Charge{Quota: q, Key: "b"})
			}
			m := model{}
			type taken struct{ here, there int64 } // when, on the store's clock and on the model's
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
						charges[i].At, known[i].At = at.here, at.there
					}
					t.refund(charges...)
					m.refund(known, now)
				case 2:
					t.owe(charges...)
					m.owe(charges, now)
				case 3:
					t.reset(charges[:1]...)
					m.reset(charges[:1])
				default:
					got := t.decide(charges...)
					for i, want := range m.decide(charges, now) {
						times = append(times[max(0, len(times)-6):], taken{got[i].At, want.At})
						got[i].At = want.At // which is the store's own
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
