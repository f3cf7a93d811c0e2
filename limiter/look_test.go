package limiter_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
)

// Two limiters see the same events. One looks before each event, and its twin does not: what the look says is what
// the twin's AllowN answers, and the looks change nothing.
func TestALookIsTheDecisionThatWouldFollow(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		inBubble(t, func() {
			limit := limiter.Allowance(anyLimit().Draw(rt, "limit"))
			if second := anyLimit().Draw(rt, "second"); rapid.Bool().Draw(rt, "two") {
				if two := limiter.All(limit, second); isValid(two) {
					limit = two
				}
			}
			settles := rapid.Bool().Draw(rt, "settles")
			store := newStores[rapid.SampledFrom([]string{"Memory", "another store"}).Draw(rt, "store")]()
			newLimiter := func(name string) *limiter.Limiter {
				l, err := limiter.New(limiter.Config{Name: name, Limit: limit, Settles: settles, Store: store})
				require.NoError(rt, err)
				return l
			}
			looks, twin := newLimiter("looks"), newLimiter("twin")
			for range rapid.IntRange(1, 12).Draw(rt, "events") {
				before := allowN(rt, twin, 0)
				n := anyCost(before.Limit, before.Remaining).Draw(rt, "cost")
				look, err := looks.Look(t.Context(), "key", n)
				require.NoError(rt, err)
				d := allowN(rt, twin, n)
				require.Equal(rt, d.Allowed, look.Allowed)
				require.Equal(rt, d.RetryAfter, look.RetryAfter)
				require.Equal(rt, before.Remaining, look.Remaining)
				if !d.Allowed {
					require.Equal(rt, d, look)
				}
				require.Equal(rt, before, allowN(rt, looks, 0), "the look took something")
				require.Equal(rt, d, allowN(rt, looks, n))
				most := 2*before.ResetAfter.Microseconds() + 1000
				step := time.Duration(rapid.Int64Range(0, most).Draw(rt, "step")) * time.Microsecond
				if rapid.Bool().Draw(rt, "when it fits") && d.RetryAfter != limiter.Never {
					step = d.RetryAfter
				}
				time.Sleep(step)
			}
		})
	})
}

// isValid reports whether the limits of a go together.
func isValid(a limiter.Allowance) bool {
	_, err := limiter.NewQuotas("rule", "", a)
	return err == nil
}

func allowN(t require.TestingT, l *limiter.Limiter, n int64) limiter.Decision {
	d, err := l.AllowN(context.Background(), "key", n)
	require.NoError(t, err)
	return d
}

// A restless store forgets the key after each decision.
type restless struct{ limiter.Store }

func (s restless) Decide(ctx context.Context, charges []limiter.Charge) error {
	err := s.Store.Decide(ctx, charges)
	for i := range charges {
		if err := s.Reset(ctx, charges[i:i+1]); err != nil {
			return err
		}
	}
	return err
}

func TestALookTakesNothingEvenIfUnitsReturnDuringIt(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store limiter.Store) {
		for _, a := range everyAlgorithm {
			config := limiter.Config{Name: "mail " + a.String(), Limit: limiter.PerHour(5).With(a), Store: store}
			if a != limiter.LeakyBucket {
				config.Limit = limiter.All(config.Limit, limiter.PerDay(5))
			}
			l := limiter.Must(limiter.New(config))
			config.Store = restless{store}
			looks := limiter.Must(limiter.New(config))
			for allowN(t, l, 1).Allowed {
			}
			d, err := looks.Look(t.Context(), "key", 5)
			require.NoError(t, err)
			assert.True(t, d.Allowed, "the first question saw no unit, the second all of them")
			assert.Zero(t, d.RetryAfter)
			assert.Equal(t, allowN(t, l, 0).Remaining, d.Remaining)
			assert.Equal(t, d.Limit, d.Remaining)
		}
	})
}

func TestALookSaysWhenUnitsFitAndWhenNever(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store limiter.Store) {
		l := limiter.Must(limiter.New(limiter.Config{Name: "mail", Limit: limiter.PerHour(10).With(limiter.TokenBucket), Store: store}))
		allowN(t, l, 8)
		for _, tt := range []struct {
			n       int64
			allowed bool
			retry   time.Duration
		}{{0, true, 0}, {2, true, 0}, {3, false, 6 * time.Minute}, {10, false, 48 * time.Minute}, {11, false, limiter.Never}} {
			d, err := l.Look(t.Context(), "key", tt.n)
			require.NoError(t, err)
			assert.Equal(t, tt.allowed, d.Allowed, tt.n)
			assert.Equal(t, tt.retry, d.RetryAfter, tt.n)
			assert.Equal(t, int64(2), d.Remaining, tt.n)
		}
	})
}

func TestALookThatCannotBeDecidedIsAnError(t *testing.T) {
	l := limiter.Must(limiter.New(limiter.Config{Name: "mail", Limit: limiter.PerHour(10)}))
	_, err := l.Look(t.Context(), "key", -1)
	require.ErrorIs(t, err, limiter.ErrCharges)
	away := limiter.Must(limiter.New(limiter.Config{Name: "mail", Limit: limiter.PerHour(10), Store: brokenStore{}}))
	d, err := away.Look(t.Context(), "key", 1)
	require.ErrorIs(t, err, errOutage)
	assert.False(t, d.Allowed)
}
