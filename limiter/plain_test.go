package limiter_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/store"
)

// inBubble runs f, which may use a rapid.T, where time is fake.
func inBubble(t *testing.T, f func()) {
	var failure any
	synctest.Test(t, func(*testing.T) {
		defer func() { failure = recover() }()
		f()
	})
	// Rapid waits outside. It tells what went wrong by the line that panics, and a draw
	// that went wrong is not what it looks for.
	if fmt.Sprintf("%T", failure) == "rapid.invalidData" {
		panic(failure)
	}
	if failure != nil {
		panic(failure)
	}
}

// A plainStore is what Memory has to decide like: states as they are, in a map.
type plainStore struct {
	mu  sync.Mutex
	all store.Map
}

func newPlainStore() limiter.Store {
	return &plainStore{all: store.Map{Clock: func() int64 { return time.Now().UnixMicro() }}}
}

func (s *plainStore) Check(*limiter.Quota) error { return nil }

func (s *plainStore) Decide(ctx context.Context, charges []limiter.Charge) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Decide(ctx, charges)
}

func (s *plainStore) Settle(ctx context.Context, settlements []limiter.Settlement) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Settle(ctx, settlements)
}

func (s *plainStore) Reset(ctx context.Context, charges []limiter.Charge) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Reset(ctx, charges)
}

func named(t require.TestingT, rule, tier string, l limiter.Limit) *limiter.Quota {
	q, err := limiter.NewQuota(rule, tier, l)
	require.NoError(t, err)
	return q
}

// returned is the settlement of n units that were taken at that time and not used.
func returned(n, at int64) limiter.Settlement {
	return limiter.Settlement{Charge: limiter.Charge{Cost: n, Decision: limiter.Decision{Receipt: limiter.Receipt{At: at}}}}
}

// refunds returns what charges took.
func refunds(charges ...limiter.Charge) (settlements []limiter.Settlement) {
	for _, c := range charges {
		settlements = append(settlements, limiter.Settlement{Charge: c})
	}
	return settlements
}

// debts takes what charges cost without asking for room.
func debts(charges ...limiter.Charge) (settlements []limiter.Settlement) {
	for _, c := range charges {
		actual := c.Cost
		c.Cost = 0
		settlements = append(settlements, limiter.Settlement{c, actual})
	}
	return settlements
}

// sameTrace holds Memory to plainStore over a random trace under limits.
func sameTrace(t *testing.T, limits *rapid.Generator[limiter.Limit]) {
	rapid.Check(t, func(rt *rapid.T) {
		inBubble(t, func() {
			time.Sleep(micros(rapid.Int64Range(0, 1e9).Draw(rt, "start")))
			m, err := limiter.NewMemory(limiter.MemoryOptions{})
			require.NoError(rt, err)
			plain, d, times := newPlainStore(), limiter.Decision{}, []int64{0}
			year := 366 * 24 * time.Hour
			end := time.Now().Add(limiter.Uptime - 7*year)

			names := []string{"a", "b", "c"}
			quotas := make([]*limiter.Quota, len(names))
			name := func(i int) {
				quotas[i], err = limiter.NewQuota(names[i], "", limits.Draw(rt, "limit"))
				require.NoError(rt, err)
				quotas[i].Settles = rapid.Bool().Draw(rt, "settles")
			}
			for i := range names {
				name(i)
			}
			for range rapid.IntRange(1, 30).Draw(rt, "steps") {
				if step := micros(max(0, anyStep(quotas[0], d).Draw(rt, "step"))); time.Now().Add(step).Before(end) {
					time.Sleep(step)
				}
				var charges []limiter.Charge
				for range rapid.SampledFrom([]int{1, 1, 1, 2, 3, 9}).Draw(rt, "charges") {
					q := rapid.SampledFrom(quotas).Draw(rt, "quota")
					c := charge(q, rapid.SampledFrom(names).Draw(rt, "key"), 0)
					c.Cost, c.Optional = anyCost(q.Capacity(), d.Remaining).Draw(rt, "cost"), rapid.IntRange(0, 3).Draw(rt, "optional") == 0
					if limiter.CheckCharges(append(charges, c)) == nil {
						charges = append(charges, c)
					}
				}
				switch rapid.IntRange(0, 15).Draw(rt, "what") {
				case 4:
					for i := range charges {
						charges[i].Cost = anyOwed(charges[i].Quota.Capacity()).Draw(rt, "owed")
					}
					require.NoError(rt, plain.Settle(t.Context(), debts(charges...)))
					require.NoError(rt, m.Settle(t.Context(), debts(charges...)))
				case 0, 3:
					for i := range charges {
						charges[i].Decision.Receipt.At = rapid.SampledFrom(times).Draw(rt, "at")
					}
					require.NoError(rt, plain.Settle(t.Context(), refunds(charges...)))
					require.NoError(rt, m.Settle(t.Context(), refunds(charges...)))
				case 1:
					require.NoError(rt, plain.Reset(t.Context(), charges))
					require.NoError(rt, m.Reset(t.Context(), charges))
				case 2:
					name(rapid.IntRange(0, len(names)-1).Draw(rt, "rule"))
				default:
					want := slices.Clone(charges)
					require.NoError(rt, plain.Decide(t.Context(), want))
					require.NoError(rt, m.Decide(t.Context(), charges))
					for i, c := range charges {
						require.Equal(rt, want[i].Decision, c.Decision, "%v, cost %d", c.Quota.Limit(), c.Cost)
					}
					d = charges[0].Decision
					times = append(times, d.Receipt.At)
				}
			}
		})
	})
}

func TestMemoryDecidesAsThePlainFunctionsDo(t *testing.T) {
	t.Run("any limits", func(t *testing.T) {
		sameTrace(t, anyLimit(append([]limiter.Algorithm{limiter.SlidingWindow}, everyAlgorithm...)...))
	})
	for _, a := range everyAlgorithm {
		t.Run(a.String(), func(t *testing.T) { sameTrace(t, anyLimit(a)) })
	}
	t.Run("boxed and not", func(t *testing.T) {
		sameTrace(t, rapid.SampledFrom([]limiter.Limit{
			limiter.PerMinute(1000), limiter.PerMinute(2_000_000), limiter.PerHour(5_000_000_000),
			limiter.PerMinute(2_000_000).With(limiter.FixedWindow), limiter.PerDay(8e11), limiter.PerMinute(1e8).With(limiter.TokenBucket),
			limiter.PerMinute(9).With(limiter.SlidingLog), limiter.PerMinute(40).With(limiter.SlidingLog), limiter.PerMinute(1e8).With(limiter.LeakyBucket),
			limiter.PerMinute(10), limiter.PerMinute(12),
		}))
	})
}
