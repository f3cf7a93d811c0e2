package redisstore

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
)

func TestSlotsAreExactWhileHashSlotsOfAClusterMove(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t)
	const most, processes, callers = 4, 3, 6
	q := concurrency(t, "exports", most)
	limit := bounded(t, "api", 1_000_000, limiter.SlidingCounter)
	keys := []string{"a", "b", "c"}
	referees := make([]referee, len(keys))
	var stores []*store
	var wg sync.WaitGroup
	var done, began atomic.Int64
	for range processes {
		client := closeAfter(t, redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: redistest.Addrs(nodes), MaxRedirects: 1000, // on a busy machine a move takes long
		}))
		s := storeOn(client, forgetting, patience)
		stores = append(stores, s)
		for range callers {
			wg.Go(func() {
				for done.Load() == 0 {
					i := rand.IntN(len(keys))
					charges := []limiter.Charge{charge(q, keys[i], 1), charge(limit, keys[i], 1)}[:1+rand.IntN(2)]
					// While a slot moves, two counters of a key may be on two nodes (TRYAGAIN).
					if err := s.Decide(t.Context(), charges); err != nil && len(charges) == 1 {
						t.Errorf("a slot that moves is no failure: %v", err)
						return
					} else if err != nil || !charges[0].Decision.Allowed {
						time.Sleep(rand.N(2 * time.Millisecond))
						continue
					}
					began.Add(1)
					referees[i].begin()
					time.Sleep(rand.N(2 * time.Millisecond))
					referees[i].end()
					_ = s.Settle(t.Context(), []limiter.Settlement{{Charge: charges[0]}})
				}
			})
		}
	}
	for round := range 4 {
		for i, key := range keys {
			before := began.Load()
			redistest.MoveSlot(nodes, stores[0].names.Name(stores[0].names.Digest(key), q), nodes[(round+i)%3])
			await(t, "events while slots move", func() bool { return began.Load() > before+50 || t.Failed() })
		}
	}
	done.Store(1)
	wg.Wait()
	for _, s := range stores {
		await(t, "nothing to be held", s.isIdle)
	}
	for i, key := range keys {
		assert.LessOrEqual(t, referees[i].most.Load(), int64(most), "never more than the limit")
		assert.EqualValues(t, most, untilAnswered(t, stores[0], q, key, 0).Remaining, "all slots are free again")
		all := charge(q, key, most)
		all.Decision = untilAnswered(t, stores[0], q, key, most)
		assert.True(t, all.Decision.Allowed, "and as many")
		assert.False(t, untilAnswered(t, stores[1], q, key, 1).Allowed, "and no more")
		_ = stores[0].Settle(t.Context(), []limiter.Settlement{{Charge: all}})
	}
	for _, s := range stores { // or a client that was closed would try to renew it
		await(t, "nothing to be held", s.isIdle)
	}
}

// A master that dies may have granted slots which the next one has not heard of. It admits as many
// more, at most, until the process that holds them says so.
func TestAFailoverForgetsNoMoreSlotsThanWereNotReplicated(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	process := func() *store {
		client := closeAfter(t, redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: sentinel.Name, SentinelAddrs: redistest.Addrs(sentinel.Sentinels),
		}))
		return storeOn(client, forgetting, patience)
	}
	one, other := process(), process()
	const most, unheard = 5, 2
	q := concurrency(t, "exports", most)
	require.True(t, decideOne(t, one, q, "key", 2).Allowed)
	require.True(t, decideOne(t, other, q, "key", 1).Allowed)
	sentinel.Master.MustDo("WAIT", "1", "5000")
	sentinel.Replica.MustDo("REPLICAOF", "127.0.0.1", "1") // from here on it hears of nothing
	held := decideOne(t, one, q, "key", unheard)
	require.True(t, held.Allowed)
	require.False(t, decideOne(t, other, q, "key", 1).Allowed)

	sentinel.Master.Kill()
	sentinel.AwaitFailover()
	beyond, taken := 0, limiter.Decision{}
	for range most {
		if d := untilAnswered(t, other, q, "key", 1); d.Allowed {
			beyond, taken = beyond+1, d
		}
	}
	t.Logf("%d more than the limit", beyond)
	assert.LessOrEqual(t, beyond, unheard, "no more than the new master had not heard of")
	for range beyond {
		end(t, other, q, "key", taken)
	}
	await(t, "the process that holds slots to say so, though it decides nothing", func() bool {
		return untilAnswered(t, other, q, "key", 0).Remaining == 0
	})
	assert.False(t, untilAnswered(t, other, q, "key", 1).Allowed, "%d of %d are under way", most, most)
	end(t, one, q, "key", held)
	await(t, "the slot that was returned", func() bool { return untilAnswered(t, other, q, "key", 1).Allowed })
}

// untilAnswered is decideOne, again until Redis answers: where slots are counted, an eighth of a lease is all the time
// that it has, which is little for a new connection of a busy machine. Slots that Redis gave in vain it takes
// back with the next decision.
func untilAnswered(t *testing.T, s *store, q *limiter.Quota, key string, cost int64) limiter.Decision {
	t.Helper()
	charges := []limiter.Charge{charge(q, key, cost)}
	await(t, "Redis to answer", func() bool { return s.Decide(t.Context(), charges) == nil })
	return charges[0].Decision
}

// A key that is evicted takes with it what other processes hold, until they say so again.
func TestAnEvictedKeyForgetsNoSlotsOfTheProcessThatAsks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	clock := newServerClock(t)
	one, other := onClock(t, clock, connect(t, server), forgetting), onClock(t, clock, connect(t, server), forgetting)
	q := concurrency(t, "exports", 4)
	require.True(t, decideOne(t, one, q, "key", 3).Allowed)
	require.True(t, decideOne(t, other, q, "key", 1).Allowed)
	server.MustDo("FLUSHALL")
	assert.EqualValues(t, 3, decideOne(t, other, q, "key", 0).Remaining, "its own slot is counted, and those of others are not")
	server.MustDo("FLUSHALL")
	assert.EqualValues(t, 1, decideOne(t, one, q, "key", 0).Remaining)
	one.slots.renewNow()
	other.slots.renewNow()
	assert.Zero(t, decideOne(t, other, q, "key", 0).Remaining, "each has said what it holds")
	assert.False(t, decideOne(t, other, q, "key", 1).Allowed)
}

func TestAFullServerGrantsNoSlotAndKeepsThoseThatAreHeld(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	one := storeOn(connect(t, server), forgetting, patience)
	other := storeOn(connect(t, server), forgetting, patience)
	q := concurrency(t, "exports", 4)
	held := decideOne(t, one, q, "key", 1)
	require.True(t, decideOne(t, other, q, "key", 2).Allowed)

	server.MustDo("CONFIG", "SET", "maxmemory", "1")
	for _, s := range []*store{one, other} {
		for i := range 20 {
			err := s.Decide(t.Context(), []limiter.Charge{charge(q, fmt.Sprint("key", strings.Repeat("!", i%2)), 1)})
			require.ErrorContains(t, err, "OOM", "so that the rule's policy decides")
		}
	}
	end(t, one, q, "key", held)
	server.MustDo("CONFIG", "SET", "maxmemory", "0")

	await(t, "the returned slot, and none of those refused", func() bool { return decideOne(t, other, q, "key", 0).Remaining == 2 })
	assert.False(t, decideOne(t, one, q, "key", 3).Allowed)
	assert.True(t, decideOne(t, one, q, "key", 2).Allowed)
}

// A clock that has stepped back makes no lease longer.
func TestAClockThatStepsBackHoldsNoSlotLonger(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, back := range []time.Duration{time.Second, time.Hour, 400 * 24 * time.Hour} {
		clock := newServerClock(t)
		dies, lives := onClock(t, clock, connect(t, server), forgetting), onClock(t, clock, connect(t, server), forgetting)
		q := concurrency(t, "exports", 3)
		key := back.String()
		require.True(t, decideOne(t, dies, q, key, 2).Allowed)
		require.True(t, decideOne(t, lives, q, key, 1).Allowed)
		dies.silence()
		clock.sleep(-back)
		assert.Zero(t, decideOne(t, lives, q, key, 0).Remaining, "%v back, none is free", back)
		lives.slots.renewNow()
		clock.sleep(slotLease - time.Microsecond)
		assert.Zero(t, decideOne(t, lives, q, key, 0).Remaining, "%v back", back)
		lives.slots.renewNow()
		clock.sleep(time.Microsecond)
		assert.EqualValues(t, 2, decideOne(t, lives, q, key, 0).Remaining, "%v back", back)
	}
}
