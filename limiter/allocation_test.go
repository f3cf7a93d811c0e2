package limiter

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAllowDoesNotAllocate(t *testing.T) {
	ctx := context.Background()
	for _, a := range everyAlgorithm {
		for _, tt := range []struct {
			name string
			l    Limit
			want bool
		}{
			{"an admission", PerDay(10_000).With(a), true},
			{"a refusal", PerDay(1).With(a), false},
		} {
			t.Run(fmt.Sprintf("%s, %v", tt.name, a), func(t *testing.T) {
				api := Must(New(Config{Name: "api", Limit: tt.l}))
				for range 3 { // the first take memory, and the limit of 1
					_, err := api.Allow(ctx, "key")
					require.NoError(t, err)
				}
				var d Decision
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
		m, err := NewMemory(MemoryOptions{})
		require.NoError(t, err)
		api := Must(New(Config{Name: "api", Limit: PerHour(100).With(SlidingLog), Store: m}))
		step := func() {
			m.start = m.start.Add(-time.Hour / 20)
			_, _ = api.AllowN(ctx, "key", cost)
		}
		thousand := func() {
			for range 1000 {
				step()
			}
		}
		thousand()                                                                               // until the log's place is large enough
		assert.Zero(t, testing.AllocsPerRun(10, thousand), "a thousand events of cost %d", cost) // less than one in each, as others allocate too
	}
}

func TestNewKeysDoNotAllocateEach(t *testing.T) {
	ctx := context.Background()
	for _, maxKeys := range []int{0, 1000} {
		m, err := NewMemory(MemoryOptions{MaxKeys: maxKeys})
		require.NoError(t, err)
		api := Must(New(Config{Name: "api", Limit: PerHour(100), Store: m}))
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
	m, err := NewMemory(MemoryOptions{})
	require.NoError(t, err)
	settling := named(t, "settling", "", PerDay(10_000).With(TokenBucket))
	settling.Settles = true
	family, err := NewQuotas("family", "", All(PerMinute(10_000), PerSecond(9), PerDay(8e11)))
	require.NoError(t, err)
	words, err := NewQuotas("words", "", All(PerMinute(10_000), PerDay(1_000_000)))
	require.NoError(t, err)
	for name, quotas := range map[string][]*Quota{
		"words": words, "exact": {named(t, "exact", "", PerMinute(9))}, "settling": {settling}, "log": {named(t, "log", "", PerDay(50).With(SlidingLog))}, "calendar": {named(t, "calendar", "", Monthly(1e12))}, "family": family,
	} {
		var charges []Charge
		var less, more []Settlement
		for _, q := range quotas {
			charges = append(charges, Charge{Quota: q, Key: "key", Cost: 3})
			less = append(less, refunds(Charge{Quota: q, Key: "key", Cost: 1})...)
			more = append(more, debts(Charge{Quota: q, Key: "key", Cost: 1})...)
		}
		round := func() { // it is refused in the end, and owes what it does not get back
			m.start = m.start.Add(-time.Second)
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
		assert.Zero(t, testing.AllocsPerRun(300, round), name)
		assert.Zero(t, testing.AllocsPerRun(300, func() {
			m.start = m.start.Add(-24 * time.Hour)
			round()
		}), "%s, idle meanwhile", name)
	}
}
