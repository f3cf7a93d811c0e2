package redisstore

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
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

func TestWhoHammersARefusedKeyReachesRedisOnceASecond(t *testing.T) {
	server := redistest.Start(t)
	client := connect(t, server)
	for _, a := range everyAlgorithm {
		t.Run(a.String(), func(t *testing.T) {
			clock := newSteadyClock(t)
			s := onClock(t, clock, client, Options{})
			q := quotaOf(t, "rule "+a.String(), limiter.PerHour(5).With(a))
			decideOne(t, s, q, "key", q.Capacity())
			remembered := s.remembered.Load()
			before := roundTrips(t, server)
			last := decideOne(t, s, q, "key", 1)
			for range 1000 {
				clock.sleep(10 * time.Millisecond)
				d := decideOne(t, s, q, "key", 1)
				require.False(t, d.Allowed)
				require.Equal(t, last.RetryAfter-10*time.Millisecond, d.RetryAfter, "RetryAfter counts down")
				last = d
			}
			assert.Equal(t, 11, roundTrips(t, server)-before, "in ten seconds, a thousand requests of a refused key reach Redis once a second")
			assert.EqualValues(t, 1001-11, s.remembered.Load()-remembered, "Stats tells how many did not")
		})
	}
}

func TestWhatAnotherProcessGivesBackIsSeenWithinASecond(t *testing.T) {
	client := connect(t, redistest.Start(t))
	clock := newSteadyClock(t)
	s, other := onClock(t, clock, client, Options{}), onClock(t, clock, client, Options{})
	q := quotaOf(t, "rule", limiter.PerHour(5))
	c := []limiter.Charge{charge(q, "key", 5)}
	for name, change := range map[string]func() error{
		"given back": func() error { return other.change(t.Context(), settle, refunds(c...), all(c)) },
		"reset":      func() error { return other.Reset(t.Context(), c) },
	} {
		decideOne(t, s, q, "key", 5)
		require.False(t, decideOne(t, s, q, "key", 1).Allowed)
		require.NoError(t, change())
		clock.sleep(time.Second - time.Microsecond)
		assert.False(t, decideOne(t, s, q, "key", 1).Allowed, "a refusal is remembered for a second")
		clock.sleep(time.Microsecond)
		assert.True(t, decideOne(t, s, q, "key", 5).Allowed, "what another process has %s is there a second later", name)
		require.NoError(t, other.Reset(t.Context(), c))
		require.NoError(t, s.Reset(t.Context(), c))
	}
}

// fromMemory returns decisions of Redis as the cache would give them.
func fromMemory(decisions []limiter.Decision) []limiter.Decision {
	for i := range decisions {
		decisions[i].Receipt.By = limiter.ByMemory
	}
	return decisions
}

// An attack varies neither its key alone nor all of it: a rule for all, one by address.
func TestABatchIsRefusedByWhatIsRememberedOfAllItsRules(t *testing.T) {
	server := redistest.Start(t)
	client := connect(t, server)
	clock := newSteadyClock(t)
	s, direct := onClock(t, clock, client, Options{}), onClock(t, clock, client, forgetting)
	ip := quotaOf(t, "ip", limiter.PerHour(5))
	all := quotaOf(t, "all", limiter.PerHour(1000).WithBurst(1000))
	login := quotaOf(t, "login", limiter.PerHour(4).With(limiter.SlidingLog))
	charges := []limiter.Charge{charge(all, "", 1), charge(ip, "one", 1), charge(login, "one", 1)}
	for range 4 {
		require.True(t, allowed(decide(t, s, charges...)))
	}
	got := decide(t, s, charges...)
	before := roundTrips(t, server)
	for range 20 {
		clock.sleep(time.Millisecond)
		got = decide(t, s, charges...)
	}
	assert.Equal(t, before, roundTrips(t, server), "a batch that was refused is remembered")
	assert.Equal(t, fromMemory(decide(t, direct, charges...)), got, "a remembered batch is described as Redis would")
	assert.False(t, got[2].Allowed)
	assert.True(t, got[0].Allowed && got[1].Allowed, "what has room does not stand in the way")

	// Another caller has a rule in common with this one, and is not refused for it.
	before = roundTrips(t, server)
	two := []limiter.Charge{charge(all, "", 1), charge(ip, "two", 1), charge(login, "two", 1)}
	assert.True(t, allowed(decide(t, s, two...)), "who was not refused is asked for")
	assert.Equal(t, 1, roundTrips(t, server)-before)

	// Of part of a batch nothing is remembered; Redis has to describe it.
	decide(t, s, charges...) // remembered anew
	before = roundTrips(t, server)
	more := append(slices.Clone(charges), charge(ip, "three", 1))
	assert.False(t, allowed(decide(t, s, more...)))
	assert.Equal(t, 1, roundTrips(t, server)-before, "a charge that nothing is known of is Redis's to describe")

	// A look, and a charge that fits, are not refused by what is remembered.
	remembered := s.remembered.Load()
	assert.True(t, decideOne(t, s, login, "one", 0).Allowed)
	assert.True(t, decideOne(t, s, ip, "one", 1).Allowed, "what has room is taken, though it was in a batch that was refused")
	assert.Equal(t, remembered, s.remembered.Load(), "an event that may happen is Redis's to decide")
}

func TestARememberedRefusalAllocatesNothing(t *testing.T) {
	client := connect(t, redistest.Start(t))
	s := onClock(t, newSteadyClock(t), client, Options{})
	var charges []limiter.Charge
	for _, a := range everyAlgorithm {
		q := quotaOf(t, "rule "+a.String(), limiter.Limit{Events: 10_000, Per: time.Hour, Algorithm: a})
		decideOne(t, s, q, "key", q.Capacity())
		charges = append(charges, charge(q, "key", 1), charge(q, "unused", 1))
	}
	ctx := t.Context()
	for n := range charges {
		some := charges[n&^1 : n+1] // a charge that is refused, alone and with one that is not
		require.NoError(t, s.Decide(ctx, some))
		remembered := s.remembered.Load()
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			if s.Decide(ctx, some) != nil || some[0].Decision.Allowed {
				t.Error("not refused")
			}
		}), "a remembered refusal of %v allocates", some[0].Quota.Limit())
		assert.EqualValues(t, 101, s.remembered.Load()-remembered, "of %v", some)
	}
}

// answerOf is an answer about one charge, of these numbers.
func answerOf(now int64, verdict byte, numbers ...int64) reply {
	records := []byte{verdict}
	for _, n := range numbers {
		records = binary.LittleEndian.AppendUint64(records, math.Float64bits(float64(n)))
	}
	return reply{now: now, records: string(records), size: len(records)}
}

func TestARefusalOnSeveralNodesIsRemembered(t *testing.T) {
	t.Parallel()
	nodes := redistest.Cluster(t)
	client := closeAfter(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes)}))
	clock := newSteadyClock(t)
	s, direct := onClock(t, clock, client, Options{}), onClock(t, clock, client, forgetting)
	q := quotaOf(t, "rule", limiter.PerHour(5))
	keys, _ := scattered(t, nodes, s, q)
	charges := []limiter.Charge{charge(q, keys[0], 1), charge(q, keys[1], 1), charge(q, keys[2], 1)}
	decideOne(t, direct, q, keys[1], 5)
	got := decide(t, s, charges...)
	remembered := s.remembered.Load()
	for range 20 {
		clock.sleep(time.Millisecond)
		got = decide(t, s, charges...)
	}
	assert.EqualValues(t, 20, s.remembered.Load()-remembered, "a batch that was refused on several nodes is remembered")
	assert.Equal(t, fromMemory(decide(t, direct, charges...)), got, "and described as Redis would")
	assert.True(t, decideOne(t, s, q, keys[0], 5).Allowed, "what the others took was given back")
}

func TestAFloodOfRefusedKeysIsRememberedInBoundedMemory(t *testing.T) {
	m := newDenyCache()
	q := quotaOf(t, "rule", limiter.PerHour(5).With(limiter.FixedWindow))
	now := time.Now().UnixMicro()
	refused := func(i int) []limiter.Charge { return []limiter.Charge{charge(q, fmt.Sprint("key ", i), 6)} }
	const most = 64 * memoryOfShard
	for i := range 2 * most {
		m.learn(&call{charges: refused(i), reply: answerOf(now, 0, now, 5, 0), asked: m.asking()}, false)
	}
	count := int64(0)
	for i := range m.shards {
		assert.LessOrEqual(t, len(m.shards[i].known), memoryOfShard)
		count += int64(len(m.shards[i].known))
	}
	assert.Equal(t, count, m.size.Load(), "the size is what is remembered")
	assert.Greater(t, count, int64(most*9/10), "there is room for nearly as many as may be")
	remembered := 0
	for i := 2*most - 64; i < 2*most; i++ {
		if m.decide(refused(i)) {
			remembered++
		}
	}
	assert.Greater(t, remembered, 32, "those who came last are mostly remembered")
}

// Requests, units given back and resets of a few keys at once, through stores that
// remember: all units are accounted for, and who gives back sees it.
func TestWhatIsRememberedAdmitsNothingAndHidesNothing(t *testing.T) {
	server := redistest.Start(t)
	clock := newSteadyClock(t) // stands still, so that nothing is forgotten by itself
	s := onClock(t, clock, connect(t, server), Options{})
	q := quotaOf(t, "rule", limiter.PerHour(3))
	const keys = 4
	var held [keys]atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range 150 {
				k := random.IntN(keys)
				c := []limiter.Charge{charge(q, fmt.Sprint("key ", k), 1)}
				if !assert.NoError(t, s.Decide(t.Context(), c)) || !c[0].Decision.Allowed {
					continue
				}
				if now := held[k].Add(1); now > 3 {
					t.Errorf("%d units of 3 are held at once", now)
				}
				held[k].Add(-1)
				assert.NoError(t, s.change(t.Context(), settle, refunds(c...), all(c)))
			}
		})
	}
	wg.Wait()
	for k := range keys {
		assert.True(t, decideOne(t, s, q, fmt.Sprint("key ", k), 3).Allowed, "all was given back, and a refusal of before hides it")
	}
	assert.NotZero(t, s.remembered.Load(), "nothing was remembered, so this says nothing")
}
