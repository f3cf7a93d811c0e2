package limitertest

import (
	"fmt"
	"slices"

	"github.com/weirgo/weir/limiter"
)

// batches test charges that are decided together.
var batches = []testCase{
	{
		name: "a batch can be empty",
		why:  "Callers need no special case for a request without rules.",
		run: func(t *trial) {
			if err := t.store.Decide(t.Context(), nil); err != nil {
				t.broken("Decide of no charges returned error %q, want none", err)
			}
			t.settle()
			t.reset()
		},
	},
	{
		name:   "charges can be decided again",
		why:    "A caller that waits sends the same charges again. Decide sets each Decision anew, whatever it was, and changes nothing else of a charge.",
		limits: samples,
		run: func(t *trial) {
			q, full := t.quota(scaled(t.limit, 4)), t.named("full", "", limiter.PerHour(1))
			t.take(full, "key", 1)
			charges := []limiter.Charge{{Quota: q, Key: "key", Cost: 2}, {Quota: full, Key: "key", Cost: 1}}
			again := func(allowed ...bool) {
				before := slices.Clone(charges)
				for i, d := range t.decide(charges[:len(allowed)]...) {
					c := charges[i]
					if c.Decision = before[i].Decision; c != before[i] {
						t.broken("Decide changed charge %d from %+v to %+v", i+1, before[i], c)
					}
					if d.Allowed != allowed[i] || d.Allowed != (d.RetryAfter == 0) {
						t.broken("charge %d, decided again: %+v, want Allowed %v, and a RetryAfter if it is refused", i+1, d, allowed[i])
					}
				}
			}
			again(true, false)
			again(true, false)
			again(true)
			again(true, false)
			t.remaining(q, "key", q.Capacity()-2, "after one of four batches was taken")
			t.take(q, "key", q.Capacity()-2)
			again(false)
			t.reset(limiter.Charge{Quota: q, Key: "key"})
			again(true)
		},
	},
	{
		name: "a batch can have MaxCharges charges",
		why:  "Only CheckCharges decides which batches are too long.",
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
					t.broken("the last of %d charges was refused, and charge %d changed from %+v to %+v", len(charges), i+1, before[i], d)
				}
			}
		},
	},
}

// looks looks at the keys of all charges in one batch.
func (t *trial) looks(charges []limiter.Charge) []limiter.Decision {
	t.Helper()
	free := make([]limiter.Charge, len(charges))
	for i, c := range charges {
		free[i] = limiter.Charge{Quota: c.Quota, Key: c.Key}
	}
	return t.decide(free...)
}
