package limitertest

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir/limiter"
)

// callers is the number of goroutines in a race.
const callers = 16

// races test many callers at once. They find a store that reads, decides and writes in more than one
// step, though maybe not in the first run. go test -race helps.
var races = []testCase{
	{
		name:   "exactly N of many callers are admitted",
		why:    "Of M callers at once, exactly N are admitted. Reading the state, deciding and writing must be one step.",
		limits: samples,
		run: func(t *trial) {
			q := t.quota(scaled(t.limit, 100))
			var admitted atomic.Int64
			t.race(20, func(ctx context.Context, _ *rand.Rand) error {
				d, err := t.try(ctx, limiter.Charge{Quota: q, Key: "key", Cost: 1})
				if d[0].Allowed {
					admitted.Add(1)
				}
				return err
			})
			if n := admitted.Load(); n != q.Capacity() {
				t.broken("%d of %d callers were admitted at once under %v, want %d", n, 20*callers, q.Limit(), q.Capacity())
			}
			t.remaining(q, "key", 0, "after a race for all")
		},
	},
	{
		name:   "exactly N of many batches are taken",
		why:    "All or nothing holds in a race too, whatever keys batches share and in whatever order. If the case never ends, locks are taken in different orders.",
		limits: samples,
		run: func(t *trial) {
			shared := t.named("shared", "", scaled(t.limit, 60))
			wide := t.named("wide", "", limiter.PerHour(1000))
			names := []string{"a", "b", "c", "d", "e"}
			taken := make([]atomic.Int64, len(names))
			var admitted atomic.Int64
			t.race(15, func(ctx context.Context, random *rand.Rand) error {
				charges := []limiter.Charge{{Quota: shared, Key: "key", Cost: 1}}
				picked := random.Perm(len(names))[:3]
				for _, i := range picked {
					charges = append(charges, limiter.Charge{Quota: wide, Key: names[i], Cost: int64(i)})
				}
				random.Shuffle(len(charges), func(i, j int) { charges[i], charges[j] = charges[j], charges[i] })
				decisions, err := t.try(ctx, charges...)
				for _, d := range decisions {
					if !d.Allowed {
						return err
					}
				}
				admitted.Add(1)
				for _, i := range picked {
					taken[i].Add(int64(i))
				}
				return err
			})
			if n := admitted.Load(); n != shared.Capacity() {
				t.broken("%d of %d batches were taken at once under %v, want %d", n, 15*callers, shared.Limit(), shared.Capacity())
			}
			for i, name := range names {
				t.remaining(wide, name, wide.Capacity()-taken[i].Load(), "after a race of batches")
			}
		},
	},
	{
		name:   "charges, debts and refunds of many callers add up",
		why:    "Settling is one step too: no unit is lost, and none is refunded twice.",
		limits: samples,
		run: func(t *trial) {
			q := t.quota(scaled(t.limit, 2000))
			returns := t.limit.Algorithm != limiter.LeakyBucket // where units return of the last event alone
			var used atomic.Int64
			t.race(30, func(ctx context.Context, random *rand.Rand) error {
				charge := limiter.Charge{Quota: q, Key: "key", Cost: 1 + random.Int64N(2)}
				if random.IntN(3) == 0 {
					used.Add(charge.Cost)
					return t.store.Settle(ctx, owing(charge))
				}
				d, err := t.try(ctx, charge)
				if err == nil && d[0].Allowed && returns && random.IntN(2) == 0 {
					charge.Decision = d[0]
					return t.store.Settle(ctx, []limiter.Settlement{{Charge: charge}})
				}
				if d[0].Allowed {
					used.Add(charge.Cost)
				}
				return err
			})
			t.remaining(q, "key", q.Capacity()-used.Load(), "after a race of taking, owing and giving back")
		},
	},
}

// try is decide for goroutines of a race, which must not call FailNow.
func (t *trial) try(ctx context.Context, charges ...limiter.Charge) ([]limiter.Decision, error) {
	err := t.store.Decide(ctx, charges)
	return decisionsOf(charges), err
}

func decisionsOf(charges []limiter.Charge) []limiter.Decision {
	decisions := make([]limiter.Decision, len(charges))
	for i, c := range charges {
		decisions[i] = c.Decision
	}
	return decisions
}

// race calls f that many times in each of many goroutines, which start together.
func (t *trial) race(times int, f func(ctx context.Context, random *rand.Rand) error) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make(chan error, callers)
	start := make(chan struct{})
	for i := range callers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 3))
			<-start
			for range times {
				if err := f(t.Context(), random); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	close(start)
	wg.Wait()
	select {
	case err := <-errs:
		t.broken("one of %d callers at once got the error %q, want none", callers, err)
	default:
	}
}
