package limitertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/store"
)

// slots test events in flight, on stores that count slots ([store.Checker]).
var slots = []testCase{
	{
		name:  "RetryAfter estimates when a slot is released",
		slots: true,
		why:   "If N slots are each held for time d, one of them is released after d/N.",
		run: func(t *trial) {
			q := t.concurrency("rule", "", 4)
			if d := t.take(q, "key", 3); d.Receipt == (limiter.Receipt{}) {
				t.broken("the decision about slots has no Receipt, which says how long a slot was held when it is released")
			}
			for range 40 {
				d := t.take(q, "key", 1)
				t.sleep(80 * time.Millisecond)
				t.leave(q, "key", d)
			}
			t.take(q, "key", 1)
			if d := t.refuse(q, "key", 1); d.RetryAfter < 10*time.Millisecond || d.RetryAfter > 40*time.Millisecond {
				t.broken("events take 80 ms and there are 4 slots: RetryAfter is %v, want about 20 ms", d.RetryAfter)
			}
		},
	},
	{
		name:  "a context that has ended takes no slot",
		slots: true,
		why:   "Nobody would release it.",
		run: func(t *trial) {
			q := t.concurrency("rule", "", 1)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			err := t.store.Decide(ctx, []limiter.Charge{{Quota: q, Key: "key", Cost: 1}})
			if err != nil && !errors.Is(err, context.Canceled) {
				t.broken("Decide with an ended context returned error %q, want none or the context's", err)
			}
			if err != nil {
				t.take(q, "key", 1)
			}
		},
	},
	{
		name:  "at most the limit is in flight in a race",
		slots: true,
		why:   "Reading, deciding and writing are one step, and so is releasing, in batches with other charges too.",
		run: func(t *trial) {
			const most = 3
			q, rate := t.concurrency("slots", "", most), t.named("rate", "", limiter.PerHour(1_000_000))
			none := t.named("none", "", limiter.PerHour(1))
			t.take(none, "key", 1)
			keys := []string{"a", "b"}
			var held, reached [2]atomic.Int64
			t.race(60, func(ctx context.Context, random *rand.Rand) error {
				i := random.IntN(len(keys))
				charges := []limiter.Charge{{Quota: q, Key: keys[i], Cost: 1}, {Quota: rate, Key: "user", Cost: 1}, {Quota: none, Key: "key", Cost: 1}}
				d, err := t.try(ctx, charges[:1+random.IntN(3)]...)
				for _, d := range d {
					if err != nil || !d.Allowed {
						return err
					}
				}
				now := held[i].Add(1)
				for before := reached[i].Load(); now > before && !reached[i].CompareAndSwap(before, now); before = reached[i].Load() {
				}
				held[i].Add(-1)
				charges[0].Decision = d[0]
				return t.store.Settle(ctx, []limiter.Settlement{{Charge: charges[0]}})
			})
			for i, key := range keys {
				if n := reached[i].Load(); n > most {
					t.broken("%d events of a key were in flight at once, want at most %d", n, most)
				}
				t.remaining(q, key, most, "after all events have ended")
				t.take(q, key, most)
				t.refuse(q, key, 1)
			}
		},
	},
}

func (t *trial) concurrency(rule, tier string, most int64) *limiter.Quota {
	t.Helper()
	q, err := limiter.NewConcurrency(rule, tier, most)
	if err != nil {
		t.Fatalf("limitertest: NewConcurrency(%q, %q, %d): %v", rule, tier, most, err)
	}
	return q
}

// countsSlots reports whether the store counts slots.
func (t *trial) countsSlots() bool {
	t.Helper()
	return store.CheckQuota(t.store, t.concurrency("slots", "", 1)) == nil
}

// leave ends an event that d admitted.
func (t *trial) leave(q *limiter.Quota, key string, d limiter.Decision) {
	t.Helper()
	t.settle(limiter.Settlement{Charge: limiter.Charge{Quota: q, Key: key, Cost: 1, Decision: d}})
}
