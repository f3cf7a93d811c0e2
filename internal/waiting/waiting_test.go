package waiting

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// Each of 10,000 waiters for a key gets its turn, in order. There is no room for more.
func TestARoomIsBoundedAndKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var room Room[string]
		var order []int
		free := false
		var wg sync.WaitGroup
		for i := range Most {
			wg.Go(func() {
				done, err := room.Wait(t.Context(), "key", Most, time.Hour, func() (bool, error) {
					if free {
						order = append(order, i)
					}
					return free, nil
				})
				assert.True(t, done)
				assert.NoError(t, err)
			})
			synctest.Wait()
		}
		done, err := room.Wait(t.Context(), "another", 1, time.Hour, nil)
		assert.False(t, done)
		assert.NoError(t, err)
		assert.Equal(t, Most, room.Length("key"))
		assert.Equal(t, (Most+1)*time.Second, room.Behind("key", time.Second))
		assert.Equal(t, time.Duration(math.MaxInt64), room.Behind("key", 366*24*time.Hour), "what is above 292 years")
		assert.Equal(t, time.Second, room.Behind("another", time.Second))
		free = true
		room.Released("key")
		wg.Wait()
		assert.Len(t, order, Most)
		assert.True(t, slices.IsSorted(order))
		assert.True(t, room.IsEmpty("key"))
		assert.Empty(t, room.queues)
	})
}

func TestKeysWaitApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var room Room[string]
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			_, err := room.Wait(ctx, "a", 1, time.Hour, func() (bool, error) { return false, nil })
			gone <- err
		}()
		synctest.Wait()
		done, err := room.Wait(t.Context(), "b", 1, time.Hour, func() (bool, error) { return true, nil })
		assert.True(t, done)
		assert.NoError(t, err)
		done, _ = room.Wait(t.Context(), "a", 1, time.Hour, nil)
		assert.False(t, done, "one waits at most")
		cancel()
		assert.ErrorIs(t, <-gone, context.Canceled)
	})
}

// If other processes release slots, the first waiter asks again by itself.
func TestTheFirstWaiterAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := Room[string]{Shared: true}
		began, asked := time.Now(), 0
		done, _ := room.Wait(t.Context(), "key", 1, time.Hour, func() (bool, error) {
			asked++
			return time.Since(began) >= time.Second, nil
		})
		assert.True(t, done)
		assert.Less(t, time.Since(began), time.Second+askEvery)
		assert.LessOrEqual(t, asked, int(time.Second/(askEvery/2))+2)
	})
}
