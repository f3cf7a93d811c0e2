// Package memory tests that the answers of the store in memory have an order that explains them.
package memory_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/limiter"
)

// What callers of one key ask and are told.
type (
	request struct {
		cost int64
		back bool
	}
	answer struct {
		allowed   bool
		remaining int64
	}
)

// counterOf models a key under a limit while time stands still: the state is what is in use.
func counterOf(limit int64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return int64(0) },
		Step: func(state, input, output any) (bool, any) {
			used, in, out := state.(int64), input.(request), output.(answer)
			if in.back {
				return true, max(0, used-in.cost)
			}
			allowed := used+in.cost <= limit
			if allowed {
				used += in.cost
			}
			return out == answer{allowed, limit - used}, used
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
	}
}

func TestOneKeyIsLinearizable(t *testing.T) {
	for _, a := range []limiter.Algorithm{
		limiter.TokenBucket, limiter.LeakyBucket, limiter.FixedWindow, limiter.SlidingLog, limiter.SlidingCounter,
	} {
		t.Run(a.String(), func(t *testing.T) {
			const callers, calls = 6, 40
			q, err := limiter.NewQuota("rule", "", limiter.PerHour(9).With(a))
			require.NoError(t, err)
			for round := range 5 {
				history := make([][]porcupine.Operation, callers)
				at := phase.Draw(t)
				synctest.Test(t, func(t *testing.T) { // where time stands still
					time.Sleep(at)
					m := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{MaxKeys: 1 + round}))
					var order atomic.Int64
					var wg sync.WaitGroup
					for id := range callers {
						wg.Go(func() {
							random := rand.New(rand.NewPCG(uint64(round), uint64(id)))
							for range calls {
								in := request{cost: random.Int64N(5), back: random.IntN(3) == 0 && a != limiter.LeakyBucket} // which takes no one else's turn
								c := []limiter.Charge{{Quota: q, Key: "key", Cost: in.cost}}
								called := order.Add(1)
								if in.back {
									assert.NoError(t, m.Settle(t.Context(), []limiter.Settlement{{Charge: c[0]}}))
								} else {
									assert.NoError(t, m.Decide(t.Context(), c))
								}
								history[id] = append(history[id], porcupine.Operation{
									ClientId: id, Input: in, Call: called,
									Output: answer{c[0].Decision.Allowed, c[0].Decision.Remaining}, Return: order.Add(1),
								})
							}
						})
					}
					wg.Wait()
				})
				var all []porcupine.Operation
				for _, h := range history {
					all = append(all, h...)
				}
				require.True(t, porcupine.CheckOperations(counterOf(q.Capacity()), all), "no order of the calls explains the answers")
			}
		})
	}
}
