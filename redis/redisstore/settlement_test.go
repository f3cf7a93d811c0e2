package redisstore

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
)

// settleOne settles a charge that was taken by d.
func settleOne(t testing.TB, s limiter.Store, q *limiter.Quota, key string, cost, actual int64, d limiter.Decision) {
	t.Helper()
	c := limiter.Charge{Quota: q, Key: key, Cost: cost, Decision: d}
	require.NoError(t, s.Settle(t.Context(), []limiter.Settlement{{Charge: c, Actual: actual}}))
}

// A settlement that waits goes before the next decision on its counter, so a caller that asks
// again meets what came back, and what it owes, though a refusal was remembered.
func TestTheNextDecisionMeetsWhatWasSettled(t *testing.T) {
	server, client := startRedis(t)
	s := storeOn(client, Options{}, 10*time.Second)
	for _, l := range samples {
		q := quotaOf(t, l.String(), l)
		q.Settles = true
		least := math.MaxInt
		for key := range 10 {
			key := fmt.Sprint("key ", key)
			before := roundTrips(t, server)
			d := decideOne(t, s, q, key, 8)
			require.False(t, decideOne(t, s, q, key, 8).Allowed)
			settleOne(t, s, q, key, 8, 1, d)
			d = decideOne(t, s, q, key, 8)
			require.True(t, d.Allowed, "%v: 1 is used", l)
			assert.Equal(t, q.Capacity()-9, d.Remaining, "%v", l)
			settleOne(t, s, q, key, 8, 20, d)
			d = decideOne(t, s, q, key, 1)
			assert.False(t, d.Allowed, "%v: 21 are used", l)
			assert.Zero(t, d.Remaining)
			least = min(least, roundTrips(t, server)-before)
		}
		assert.LessOrEqual(t, least, 4, "%v: settlements go with decisions", l) // once the scripts are known, and no caller is slow
	}
	require.Zero(t, s.unsettled.lost.Load())
}

func TestASettlementIsMadeThoughItsCallersContextHasEnded(t *testing.T) {
	_, client := startRedis(t)
	for _, waits := range []bool{false, true} {
		s := storeOn(client, Options{}, 10*time.Second)
		s.unsettled.closed.Store(waits)
		q := bounded(t, fmt.Sprint("rule ", waits), 10, limiter.TokenBucket)
		d := decideOne(t, s, q, "key", 8)
		ended, end := context.WithCancel(t.Context())
		end()
		charge := limiter.Charge{Quota: q, Key: "key", Cost: 8, Decision: d}
		require.NoError(t, s.Settle(ended, []limiter.Settlement{{Charge: charge, Actual: 3}}))
		assert.EqualValues(t, 7, decideOne(t, s, q, "key", 0).Remaining)
	}
}

// What no decision takes along is settled all the same.
func TestASettlementGoesAloneAfterAMoment(t *testing.T) {
	_, client := startRedis(t)
	s, other := forgetful(client), forgetful(client)
	q := bounded(t, "rule", 100, limiter.TokenBucket)
	q.Settles = true
	d := decideOne(t, s, q, "key", 60)
	settleOne(t, s, q, "key", 60, 20, d)
	await(t, "a settlement that no decision follows", func() bool { return decideOne(t, other, q, "key", 0).Remaining == 80 })
	d = decideOne(t, s, q, "key", 10)
	for range 50 { // some are late, and those of the same time come together
		settleOne(t, s, q, "key", 0, 1, d)
	}
	await(t, "fifty of them", func() bool { return decideOne(t, other, q, "key", 0).Remaining == 20 })
}

// With decisions on the keys of others too, and by many callers, what is left in the end is what
// was settled.
func TestSettlementsAmongDecisionsOfManyAddUp(t *testing.T) {
	for name, connect := range map[string]func() redis.UniversalClient{
		"a server": func() redis.UniversalClient { _, client := startRedis(t); return client },
		"a Cluster": func() redis.UniversalClient {
			return closeAfter(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(redistest.Cluster(t))}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := storeOn(connect(), Options{}, 10*time.Second)
			q := []*limiter.Quota{bounded(t, "a", 1_000_000, limiter.TokenBucket), bounded(t, "b", 1_000_000, limiter.SlidingCounter), bounded(t, "c", 10_000, limiter.SlidingLog)}
			q[0].Settles = true
			var mu sync.Mutex
			used := map[string]int64{}
			var wg sync.WaitGroup
			for caller := range 32 {
				wg.Go(func() {
					random := rand.New(rand.NewPCG(uint64(caller), 1))
					for range 20 {
						quota, key := q[random.IntN(len(q))], fmt.Sprint("key ", random.IntN(4))
						cost, actual := 1+random.Int64N(4), random.Int64N(6)
						d := decideOne(t, s, quota, key, cost)
						if !d.Allowed {
							t.Error("it is far from the limit")
							return
						}
						settleOne(t, s, quota, key, cost, actual, d)
						mu.Lock()
						used[quota.Rule()+key] += actual
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			require.NoError(t, s.close(patience))
			for _, quota := range q {
				for i := range 4 {
					key := fmt.Sprint("key ", i)
					d := decideOne(t, s, quota, key, 0)
					assert.Equal(t, used[quota.Rule()+key], d.Limit-d.Remaining, "%s of %s", key, quota.Rule())
				}
			}
			assert.Zero(t, s.unsettled.lost.Load())
		})
	}
}

// A server that hangs holds up no caller, up to as many as may wait. Those are lost with it:
// what was charged stays so.
func TestWhatWaitsToBeSettledIsBounded(t *testing.T) {
	t.Parallel()
	server, client := startRedis(t)
	s := storeOn(client, Options{}, 2*time.Second) // none is given up while they come
	q := bounded(t, "rule", 10_000, limiter.TokenBucket)
	d := decideOne(t, s, q, "key", 5000)
	server.Pause()
	for range mostUnsettled {
		settleOne(t, s, q, "key", 2, 1, d)
	}
	c := limiter.Charge{Quota: q, Key: "key", Cost: 2, Decision: d}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	assert.Error(t, s.Settle(ctx, []limiter.Settlement{{Charge: c, Actual: 1}}), "its caller waits, and hears of it")
	await(t, "all that waited", func() bool { return s.unsettled.lost.Load() == mostUnsettled })
	server.Resume()
	await(t, "Redis", func() bool {
		return s.Decide(t.Context(), []limiter.Charge{charge(q, "key", 1)}) == nil
	})
	settleOne(t, s, q, "key", 1, 0, d)
	require.NoError(t, s.close(patience))
	assert.EqualValues(t, mostUnsettled, s.unsettled.lost.Load())
}

func TestCloseWaitsForWhatIsBeingSettled(t *testing.T) {
	server, client := startRedis(t)
	q := bounded(t, "rule", 100, limiter.TokenBucket)
	q.Settles = true
	s := New(client, Options{Failover: failover.Options{Deadline: 10 * time.Second}})
	require.NoError(t, New(client, Options{}).Close(), "of a store that settled nothing")
	d := decideOne(t, s, q, "key", 50)
	for range 10 {
		settleOne(t, s, q, "key", 5, 1, d)
	}
	require.NoError(t, s.Close())
	other := forgetful(client)
	assert.EqualValues(t, 90, decideOne(t, other, q, "key", 0).Remaining)
	require.NoError(t, s.Close(), "twice")
	d = decideOne(t, s, q, "key", 50)
	settleOne(t, s, q, "key", 50, 0, d)
	assert.EqualValues(t, 90, decideOne(t, other, q, "key", 0).Remaining, "after Close its caller waits")

	s = New(client, Options{Failover: failover.Options{Deadline: 10 * time.Second}})
	d = decideOne(t, s, q, "key", 1)
	server.Pause()
	settleOne(t, s, q, "key", 1, 0, d)
	assert.Error(t, s.Close(), "a server that hangs does not hold it up")
	server.Resume()
}

// unreliable are clients whose answers are lost when lose says so.
func unreliable(t *testing.T, lose func() bool) map[string]redis.UniversalClient {
	link := &redistest.Link{Lose: lose}
	one := redistest.Start(t)
	clients := map[string]redis.UniversalClient{
		"one that keeps deadlines": redis.NewClient(&redis.Options{Addr: one.Addr, Dialer: link.Dial, ContextTimeoutEnabled: true}),
		"one that is made to":      redis.NewClient(&redis.Options{Addr: one.Addr, Dialer: link.Dial}),
		"a Cluster":                redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(redistest.Cluster(t)), Dialer: link.Dial}),
	}
	for _, client := range clients {
		closeAfter(t, client)
	}
	return clients
}

// Refunds of many keys go together, so that one lost answer is a reason for go-redis to send all
// of a node's again.
func TestARefundCountsOnceThoughAnswersToManyAreLost(t *testing.T) {
	t.Parallel()
	var lossy atomic.Bool
	var calls, lost atomic.Int64
	lose := func() bool {
		isLost := lossy.Load() && calls.Add(1)%3 == 1
		if isLost {
			lost.Add(1)
		}
		return isLost
	}
	for name, client := range unreliable(t, lose) {
		t.Run(name, func(t *testing.T) {
			const keys, used, times = 60, 50, 5
			s := storeOn(client, Options{ForgetRefusals: true}, 2*time.Second)
			q := bounded(t, name, 100, limiter.TokenBucket)
			var wg sync.WaitGroup
			var heard [keys]int64
			for k := range keys {
				decideOne(t, s, q, strconv.Itoa(k), used)
			}
			before := lost.Load()
			lossy.Store(true)
			for k := range keys {
				wg.Go(func() {
					for range times {
						if s.change(t.Context(), settle, refunds(charge(q, strconv.Itoa(k), 1)), []int{0}) == nil {
							heard[k]++
						}
					}
				})
			}
			wg.Wait()
			lossy.Store(false)
			require.Greater(t, lost.Load(), before, "or this test tries nothing")
			for k := range keys {
				refunded := int64(used) - (100 - decideOne(t, s, q, strconv.Itoa(k), 0).Remaining)
				assert.GreaterOrEqual(t, refunded, heard[k], "key %d", k)
				assert.LessOrEqual(t, refunded, int64(times), "key %d", k)
			}
		})
	}
}
