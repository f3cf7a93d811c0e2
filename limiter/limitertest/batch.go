package limitertest

import (
	"fmt"

	"github.com/weirgo/weir/limiter"
)

// batches are about charges that are decided on together.
var batches = []testCase{
	{
		name: "a batch takes every charge",
		why:  "What is decided together takes what it would take one by one.",
		run: func(t *trial) {
			together, apart := t.mixed("together"), t.mixed("apart")
			for range 2 {
				decisions := t.decide(together...)
				for i, c := range apart {
					if alone := t.take(c.Quota, c.Key, c.Cost); decisions[i] != alone {
						t.broken("in a batch, %v answers %+v, and alone %+v", c.Quota.Limit(), decisions[i], alone)
					}
				}
			}
		},
	},
	{
		name: "a batch takes nothing if one charge is refused",
		why:  "All or nothing: decide on every charge before writing one. Where that is impossible, give back what was taken.",
		each: func(t *trial, l limiter.Limit) {
			refusing := t.named("refusing", "", l)
			t.take(refusing, "key", refusing.Capacity())
			charges := t.mixed("others")
			t.decide(charges...) // so that there is something to change

			before := t.looks(charges)
			for at := range len(charges) + 1 {
				batch := insert(charges, at, limiter.Charge{Quota: refusing, Key: "key", Cost: 1})
				decisions := t.decide(batch...)
				if decisions[at].Allowed {
					t.broken("charge %d of %d, under an exhausted %v, was admitted", at+1, len(batch), l)
				}
				alone := t.refuse(refusing, "key", 1)
				if decisions[at] != alone {
					t.broken("in a batch, an exhausted %v answers %+v, and alone %+v", l, decisions[at], alone)
				}
				others := append(decisions[:at:at], decisions[at+1:]...)
				for i, c := range charges {
					if others[i] != before[i] {
						t.broken("charge %d of %d stood in the way; %v did not, and is described as %+v, want the look %+v",
							at+1, len(batch), c.Quota.Limit(), others[i], before[i])
					}
				}
				for i, after := range t.looks(charges) {
					if after != before[i] {
						t.broken("charge %d of %d stood in the way, and %v went from %+v to %+v",
							at+1, len(batch), charges[i].Quota.Limit(), before[i], after)
					}
				}
			}
		},
	},
	{
		name: "every charge that stands in the way is refused",
		why:  "Users are told of all rules that they have violated, each with its own RetryAfter.",
		run: func(t *trial) {
			var charges []limiter.Charge
			for i, l := range samples {
				q := t.named(l.Algorithm.String(), "", l)
				t.take(q, "key", q.Capacity()-int64(i%2))
				charges = append(charges, limiter.Charge{Quota: q, Key: "key", Cost: 2})
			}
			free := t.named("free", "", samples[0])
			charges = append(charges,
				limiter.Charge{Quota: free, Key: "key", Cost: free.Capacity() + 1},
				limiter.Charge{Quota: free, Key: "other", Cost: 1})
			decisions := t.decide(charges...)
			for i, c := range charges[:len(charges)-1] {
				if alone := t.refuse(c.Quota, c.Key, c.Cost); decisions[i] != alone {
					t.broken("in a batch that several charges stop, %v answers %+v, and alone %+v", c.Quota.Limit(), decisions[i], alone)
				}
			}
			if last := decisions[len(decisions)-1]; !last.Allowed {
				t.broken("a charge that does not stand in the way of its batch is not Allowed: %+v", last)
			}
		},
	},
	{
		name: "a batch can be empty",
		why:  "A request that no rule is for needs no special case.",
		run: func(t *trial) {
			if err := t.store.Decide(t.Context(), nil, nil); err != nil {
				t.broken("Decide of no charges returned error %q, want none", err)
			}
			t.refund()
			t.owe()
			t.reset()
		},
	},
	{
		name: "a batch can have MaxCharges charges",
		why:  "CheckCharges says which batches are too long; no store is stricter.",
		run: func(t *trial) {
			var charges []limiter.Charge
			for i := range limiter.MaxCharges {
				q := t.named(fmt.Sprint("rule ", i%13), "", samples[i%13%len(samples)])
				charges = append(charges, limiter.Charge{Quota: q, Key: fmt.Sprint("key ", i), Cost: 1})
			}
			for i, d := range t.decide(charges...) {
				if want := charges[i].Quota.Capacity() - 1; !d.Allowed || d.Remaining != want {
					t.broken("charge %d of %d under %v: %+v, want allowed with %d remaining",
						i+1, len(charges), charges[i].Quota.Limit(), d, want)
				}
			}
			last := charges[len(charges)-1]
			t.take(last.Quota, last.Key, last.Quota.Capacity()-1)
			before := t.looks(charges)
			t.decide(charges...)
			for i, d := range t.looks(charges) {
				if d != before[i] {
					t.broken("the last of %d charges stood in the way, and charge %d went from %+v to %+v", len(charges), i+1, before[i], d)
				}
			}
		},
	},
}

// mixed is charges under every sample limit and one great one, each a rule of its own.
func (t *trial) mixed(prefix string) []limiter.Charge {
	t.Helper()
	var charges []limiter.Charge
	for i, l := range append(samples[:len(samples):len(samples)], limiter.PerDay(5_000_000_000)) {
		q := t.named(fmt.Sprint(prefix, " ", i), "", l)
		charges = append(charges, limiter.Charge{Quota: q, Key: "key", Cost: int64(1 + i%2)})
	}
	return charges
}

// looks is a look at each charge's key, all at once.
func (t *trial) looks(charges []limiter.Charge) []limiter.Decision {
	t.Helper()
	free := make([]limiter.Charge, len(charges))
	for i, c := range charges {
		free[i] = limiter.Charge{Quota: c.Quota, Key: c.Key}
	}
	return t.decide(free...)
}

// insert is charges with one more at that index.
func insert(charges []limiter.Charge, at int, c limiter.Charge) []limiter.Charge {
	batch := append([]limiter.Charge{}, charges[:at]...)
	batch = append(batch, c)
	return append(batch, charges[at:]...)
}
