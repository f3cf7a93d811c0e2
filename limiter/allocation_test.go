package limiter_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/limiter"
)

func TestAllowDoesNotAllocate(t *testing.T) {
	ctx := context.Background()
	for _, a := range everyAlgorithm {
		for _, tt := range []struct {
			name string
			l    limiter.Limit
			want bool
		}{
			{"an admission", limiter.PerDay(10_000).With(a), true},
			{"a refusal", limiter.PerDay(1).With(a), false},
		} {
			t.Run(fmt.Sprintf("%s, %v", tt.name, a), func(t *testing.T) {
				api := limiter.Must(limiter.New(limiter.Config{Name: "api", Limit: tt.l}))
				for range 3 { // the first take memory, and the limit of 1
					_, err := api.Allow(ctx, "key")
					require.NoError(t, err)
				}
				var d limiter.Decision
				allocs := testing.AllocsPerRun(1000, func() { d, _ = api.Allow(ctx, "key") })
				assert.Zero(t, allocs)
				assert.Equal(t, tt.want, d.Allowed)
			})
		}
	}
}

func TestALogThatMovesOnDoesNotAllocate(t *testing.T) {
	ctx := context.Background()
	for _, cost := range []int64{1, 2, 7, 4} {
		phase.Test(t, func(t *testing.T) {
			api := limiter.Must(limiter.New(limiter.Config{Name: "api", Limit: limiter.PerHour(100).With(limiter.SlidingLog)}))
			thousand := func() {
				for range 1000 {
					time.Sleep(time.Hour / 20)
					_, _ = api.AllowN(ctx, "key", cost)
				}
			}
			thousand() // until the log's array is large enough
			assert.Zero(t, testing.AllocsPerRun(10, thousand), "a thousand events of cost %d", cost)
		})
	}
}

func TestNewKeysDoNotAllocateEach(t *testing.T) {
	ctx := context.Background()
	for _, maxKeys := range []int{0, 1000} {
		m, err := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: maxKeys})
		require.NoError(t, err)
		api := limiter.Must(limiter.New(limiter.Config{Name: "api", Limit: limiter.PerHour(100), Store: m}))
		keys := make([]string, 50_000)
		for i := range keys {
			keys[i] = fmt.Sprint("key ", i)
		}
		next := 0
		allocs := testing.AllocsPerRun(len(keys)-1, func() {
			_, _ = api.Allow(ctx, keys[next])
			next++
		})
		assert.Zero(t, allocs, "MaxKeys %d", maxKeys)
	}
}

func TestStatesDoNotAllocate(t *testing.T) {
	ctx := context.Background()
	settling := named(t, "settling", "", limiter.PerDay(10_000).With(limiter.TokenBucket))
	settling.Settles = true
	family, err := limiter.NewQuotas("family", "", limiter.All(limiter.PerMinute(10_000), limiter.PerSecond(9), limiter.PerDay(8e11)))
	require.NoError(t, err)
	words, err := limiter.NewQuotas("words", "", limiter.All(limiter.PerMinute(10_000), limiter.PerDay(1_000_000)))
	require.NoError(t, err)
	for name, quotas := range map[string][]*limiter.Quota{
		"words": words, "exact": {named(t, "exact", "", limiter.PerMinute(9))}, "settling": {settling}, "log": {named(t, "log", "", limiter.PerDay(50).With(limiter.SlidingLog))}, "calendar": {named(t, "calendar", "", limiter.Monthly(1e12))}, "family": family,
	} {
		phase.Run(t, name, func(t *testing.T) {
			var charges []limiter.Charge
			var less, more []limiter.Settlement
			for _, q := range quotas {
				charges = append(charges, charge(q, "key", 3))
				less = append(less, refunds(charge(q, "key", 1))...)
				more = append(more, debts(charge(q, "key", 1))...)
			}
			m := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
			round := func() { // it is refused in the end, and owes what it does not get back
				time.Sleep(time.Second)
				_ = m.Decide(ctx, charges)
				for i := range less {
					less[i].Decision = charges[i].Decision
				}
				_ = m.Settle(ctx, less)
				_ = m.Settle(ctx, more)
			}
			for range 100 {
				round()
			}
			assert.Zero(t, testing.AllocsPerRun(300, round))
			assert.Zero(t, testing.AllocsPerRun(300, func() {
				time.Sleep(24 * time.Hour)
				round()
			}), "idle meanwhile")
		})
	}
}
