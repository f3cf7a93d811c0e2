package leasestore

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/redis/redisstore"
)

func TestUnitsAreReturnedOnceThoughTheAnswerIsLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var lose atomic.Bool
	link := &redistest.Link{Lose: func() bool { return lose.CompareAndSwap(true, false) }}
	for name, rdb := range map[string]redis.UniversalClient{
		"one server":                   redis.NewClient(&redis.Options{Addr: server.Addr, Dialer: link.Dial}),
		"one server, which keeps time": redis.NewClient(&redis.Options{Addr: server.Addr, Dialer: link.Dial, ContextTimeoutEnabled: true}),
		"a Cluster":                    redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(redistest.Cluster(t)), Dialer: link.Dial}),
	} {
		t.Run(name, func(t *testing.T) {
			redistest.CloseAfter(t, rdb)
			q := quotaOf(t, name, longBucket(100))
			ledger := ledgerOf(rdb, 25, life)
			settle := func(l refill) (refill, error) {
				l.tag, l.quota = ledger.Tag("key"), q
				one := []refill{l}
				err := ledger.Refill(t.Context(), one)
				return one[0], err
			}
			granted, err := settle(refill{want: 20, need: 20})
			require.NoError(t, err)
			require.EqualValues(t, 20, granted.granted)
			exact := redisstore.New(rdb, redisstore.Options{Failover: failover.Options{Deadline: 10 * time.Second}})
			require.EqualValues(t, 30, decideOne(t, exact, q, "key", 50).Remaining)
			lose.Store(true)
			_, err = settle(refill{back: 20, since: granted.now})
			require.Error(t, err, "nobody knows whether they were returned")
			require.EqualValues(t, 50, decideOne(t, exact, q, "key", 0).Remaining)
		})
	}
}

func TestEveryLeaseHasTheTimeOfItsOwnScript(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	q := quotaOf(t, "rule", limiter.Limit{Events: 100, Per: time.Hour, Algorithm: limiter.FixedWindow})
	ledger := ledgerOf(connect(t, server.Addr), 25, life)
	leases := make([]refill, 1000) // of some scripts
	for i := range leases {
		leases[i] = refill{tag: ledger.Tag(fmt.Sprint(i)), quota: q, want: 20, need: 20}
	}
	require.NoError(t, ledger.Refill(t.Context(), leases))
	times := map[redisTime]bool{}
	for _, l := range leases {
		require.Equal(t, l.state.Last, int64(l.now), "its state is of that time")
		times[l.now] = true
	}
	assert.Greater(t, len(times), 1)
}

func TestUnitsOfAWindowThatIsGoneAreNotReturnedToTheNext(t *testing.T) {
	t.Parallel()
	onFake(t, Options{}, func(t *testing.T, f *fake, s *Store) {
		q := quotaOf(t, "rule", limiter.Limit{Events: 100, Per: time.Second, Algorithm: limiter.FixedWindow})
		time.Sleep(700 * time.Millisecond)
		for range 6 {
			require.True(t, decideOne(t, s, q, "key", 1).Allowed)
			time.Sleep(15 * time.Millisecond)
		}
		require.Positive(t, s.Stats().Held)
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second + 5*time.Millisecond)))
		charges := []limiter.Charge{{Quota: q, Key: "key", Cost: 1}}
		admitted := 0
		take := func() {
			for {
				require.NoError(t, f.Decide(t.Context(), charges))
				if !charges[0].Decision.Allowed {
					return
				}
				admitted++
			}
		}
		take()
		require.NoError(t, s.Settle(t.Context(), []limiter.Settlement{{Charge: charges[0]}}))
		take()
		assert.LessOrEqual(t, admitted, 101)
	})
}

func TestUnitsThatAWindowsEndLeavesUnspentAreReturnedToIt(t *testing.T) {
	t.Parallel()
	onFake(t, Options{}, func(t *testing.T, f *fake, s *Store) {
		q := quotaOf(t, "rule", limiter.Limit{Events: 1000, Per: time.Minute, Algorithm: limiter.SlidingCounter})
		untilEnd := func() time.Duration { return time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)) }
		time.Sleep(untilEnd() + time.Minute - time.Second)
		used := warmUp(t, s, q)
		time.Sleep(untilEnd() + time.Millisecond)
		require.Greater(t, s.Stats().Held, int64(5))
		require.True(t, decideOne(t, s, q, "key", 1).Allowed)
		time.Sleep(time.Second)
		assert.LessOrEqual(t, f.inRedis(t, q)-s.Stats().Held, used+1)
	})
}

func TestAResetDuringASettlementHandsOutOneBurst(t *testing.T) {
	t.Parallel()
	onFake(t, Options{}, func(t *testing.T, f *fake, s *Store) {
		q := quotaOf(t, "rule", longBucket(100))
		charge := []limiter.Charge{{Quota: q, Key: "key", Cost: 1}}
		f.lag.Store(int64(60 * time.Millisecond))
		for f.inRedis(t, q) <= 10 { // until Redis has granted units, and its answer is on the way
			require.True(t, decideOne(t, s, q, "key", 1).Allowed)
			time.Sleep(5 * time.Millisecond)
		}
		require.Zero(t, s.Stats().Held)
		require.NoError(t, s.Reset(t.Context(), charge))
		admitted := 0
		for range 300 {
			if decideOne(t, s, q, "key", 1).Allowed {
				admitted++
			}
			time.Sleep(time.Millisecond)
		}
		assert.LessOrEqual(t, admitted, 100)
	})
}
