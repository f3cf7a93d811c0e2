package limiter_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/limiter"
)

// docs/costs.md has these figures. A bucket remembers its lowest level since eight times for each key, so with
// more requests in flight it may refund less than was unused, and never more.
func TestABucketRefundsNearlyAllThatManyRequestsInFlightDidNotUse(t *testing.T) {
	for _, tt := range []struct {
		inFlight int
		most     float64 // of the unused units that are lost
	}{{4, 0}, {8, 0.005}, {16, 0.01}, {64, 0.05}} {
		phase.Run(t, fmt.Sprint(tt.inFlight, " in flight"), func(t *testing.T) {
			tokens := limiter.Must(limiter.New(limiter.Config{Name: "tokens", Settles: true, Limit: limiter.PerMinute(100_000).WithBurst(100_000)}))
			random := rand.New(rand.NewPCG(1, uint64(tt.inFlight)))
			var holds []*limiter.Hold
			var unused, lost int64
			for range 5000 {
				time.Sleep(time.Duration(1+random.IntN(20_000)) * time.Microsecond)
				if len(holds) == tt.inFlight {
					i := random.IntN(len(holds))
					used := random.Int64N(300)
					before := remaining(t, tokens, "key")
					require.NoError(t, holds[i].Settle(used))
					refunded := remaining(t, tokens, "key") - before
					require.LessOrEqual(t, refunded, 1000-used, "more than was unused")
					unused, lost = unused+1000-used, lost+1000-used-refunded
					holds = append(holds[:i], holds[i+1:]...)
				}
				if hold, d, err := tokens.Reserve(t.Context(), "key", 1000); d.Allowed {
					require.NoError(t, err)
					holds = append(holds, &hold)
				}
			}
			require.Greater(t, unused, int64(500_000))
			assert.LessOrEqual(t, float64(lost)/float64(unused), tt.most)
		})
	}
}

// The worst case: a burst of requests whose units all come back, again and again.
func TestABucketRefundsMostOfABurstThatUsedNothing(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		logins := limiter.Must(limiter.New(limiter.Config{Name: "login", Settles: true, Limit: limiter.PerDay(500).WithBurst(500)}))
		for range 20 {
			var holds [400]limiter.Hold
			for i := range holds {
				time.Sleep(50 * time.Microsecond)
				holds[i], _, _ = logins.Reserve(t.Context(), "key", 1)
			}
			for i := range holds {
				_ = holds[i].Cancel()
			}
		}
		d := ask(t, logins, "key", 1)
		assert.GreaterOrEqual(t, d.Remaining, int64(400), "of 500")
	})
}
