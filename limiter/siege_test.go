package limiter_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/internal/race"
	"github.com/weirgo/weir/limiter"
)

// regulars are keys of a store at its cap that have used 40 of 100.
const regulars = 20_000

// newSiege returns a limiter whose store has the regulars, and room for as many strangers.
func newSiege(t *testing.T, a limiter.Algorithm, strangers int) *limiter.Limiter {
	t.Helper()
	if race.Enabled {
		t.Skip("one goroutine decides, for which the race detector takes minutes; make runs it without")
	}
	store := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{MaxKeys: regulars + strangers}))
	limit := limiter.Limit{Events: 100, Per: phase.Long(), Algorithm: a}
	api := limiter.Must(limiter.New(limiter.Config{Name: "api", Limit: limit, Store: store}))
	for i := range regulars {
		d, err := api.AllowN(t.Context(), fmt.Sprint("regular ", i), 40)
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	return api
}

// lost returns how many regulars have lost their counters.
func lost(t *testing.T, api *limiter.Limiter) (n int) {
	t.Helper()
	for i := range regulars {
		d, err := api.AllowN(t.Context(), fmt.Sprint("regular ", i), 0)
		require.NoError(t, err)
		if d.Remaining != 60 {
			n++
		}
	}
	return n
}

var besieged = []limiter.Algorithm{limiter.TokenBucket, limiter.SlidingCounter, limiter.FixedWindow, limiter.SlidingLog}

// Strangers that are refused keep their counters. Those who come when these fill the store share one.
func TestInASiegeLateStrangersTakeNoRegularsPlace(t *testing.T) {
	for _, a := range besieged {
		phase.Run(t, a.String(), func(t *testing.T) {
			const strangers = 2 * regulars
			api := newSiege(t, a, strangers)
			for i := range strangers {
				for range 2 {
					_, err := api.AllowN(t.Context(), fmt.Sprint("stranger ", i), 100)
					require.NoError(t, err)
				}
			}
			time.Sleep(time.Millisecond)
			for i := range 500_000 {
				_, err := api.Allow(t.Context(), fmt.Sprint("late ", i))
				require.NoError(t, err)
			}
			n := lost(t, api)
			assert.LessOrEqual(t, n, 20)
		})
	}
}

// A flood of strangers that each make one request evicts strangers only.
func TestAFloodOfStrangersTakesNoRegularsPlace(t *testing.T) {
	most := 1_000_000
	if os.Getenv("CI") != "" {
		most *= 10
	}
	phase.Test(t, func(t *testing.T) {
		api := newSiege(t, limiter.TokenBucket, 4*regulars)
		key := make([]byte, 0, 32)
		for i := range most {
			key = fmt.Appendf(key[:0], "stranger %d", i)
			_, _ = api.Allow(t.Context(), string(key))
		}
		assert.Zero(t, lost(t, api), "of %d", regulars)
	})
}
