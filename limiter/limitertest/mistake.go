package limitertest

import (
	"errors"
	"fmt"

	"github.com/weirgo/weir/limiter"
)

// mistakes test invalid batches.
var mistakes = []testCase{
	{
		name: "an invalid batch is an error",
		why:  "Before they change anything, Decide and Reset call limiter.CheckCharges, and Settle calls limiter.CheckSettlements.",
		run: func(t *trial) {
			q := t.quota(samples[0])
			gold := t.named("rule", "gold", samples[0])
			again := t.quota(samples[1]) // the same counters, under a new limit
			good := limiter.Charge{Quota: q, Key: "key", Cost: 1}

			long := []limiter.Charge{good}
			for i := range limiter.MaxCharges {
				long = append(long, limiter.Charge{Quota: q, Key: fmt.Sprint("key ", i), Cost: 1})
			}
			for _, bad := range []struct {
				name    string
				charges []limiter.Charge
			}{
				{"no quota", []limiter.Charge{good, {Key: "key", Cost: 1}}},
				{"no quota, alone", []limiter.Charge{{Key: "key", Cost: 1}}},
				{"a negative cost", []limiter.Charge{good, {Quota: gold, Key: "key", Cost: -1}}},
				{"a negative cost, alone", []limiter.Charge{{Quota: q, Key: "key", Cost: -1}}},
				{"the most negative cost", []limiter.Charge{{Quota: q, Key: "key", Cost: -1 << 63}}},
				{"a negative Within", []limiter.Charge{good, {Quota: gold, Key: "key", Cost: 1, Within: -1}}},
				{"one key charged twice", []limiter.Charge{good, {Quota: gold, Key: "key", Cost: 1}, {Quota: q, Key: "key", Cost: 2}}},
				{"one key charged twice, through two quotas", []limiter.Charge{good, {Quota: again, Key: "key", Cost: 1}}},
				{"more than MaxCharges", long},
			} {
				t.mistaken("Decide", bad.name, t.store.Decide(t.Context(), bad.charges))
				t.mistaken("Settle", bad.name, t.store.Settle(t.Context(), owing(bad.charges...)))
				t.mistaken("Settle", bad.name, t.store.Settle(t.Context(), returning(bad.charges...)))
				t.mistaken("Reset", bad.name, t.store.Reset(t.Context(), bad.charges))
				t.remaining(q, "key", q.Capacity(), "after a batch with "+bad.name)
				t.remaining(gold, "key", q.Capacity(), "after a batch with "+bad.name)
			}

			t.take(q, "key", 3)
			t.mistaken("Settle", "a negative cost", t.store.Settle(t.Context(), returning(limiter.Charge{Quota: q, Key: "key", Cost: -1})))
			t.mistaken("Settle", "a negative Actual", t.store.Settle(t.Context(), owing(limiter.Charge{Quota: q, Key: "key", Cost: -1})))
			t.mistaken("Reset", "one key twice", t.store.Reset(t.Context(), []limiter.Charge{good, good}))
			t.remaining(q, "key", q.Capacity()-3, "after mistaken calls")
		},
	},
}

// mistaken fails unless err wraps ErrCharges.
func (t *trial) mistaken(method, what string, err error) {
	t.Helper()
	if !errors.Is(err, limiter.ErrCharges) {
		t.broken("%s of %s returned %v, want an error that wraps limiter.ErrCharges", method, what, err)
	}
}
