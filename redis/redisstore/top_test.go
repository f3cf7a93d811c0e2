package redisstore

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/internal/counters"
)

// usages are what counters under a prefix have used, the least first.
func usages(t testing.TB, client redis.UniversalClient, prefix string, servers ...*redistest.Server) []Usage {
	t.Helper()
	var names []string
	for _, server := range servers {
		some, _, err := connect(t, server).Scan(t.Context(), 0, CounterNames(prefix), 1_000_000).Result()
		require.NoError(t, err)
		names = append(names, some...)
	}
	found, err := Usages(t.Context(), client, prefix, names)
	require.NoError(t, err)
	slices.SortFunc(found, func(a, b Usage) int { return cmp.Compare(a.Used, b.Used) })
	return found
}

func TestUsagesAreOfAllCountersAndOfNothingElse(t *testing.T) {
	server := redistest.Start(t)
	client := connect(t, server)
	store := New(client, patient)
	for i, a := range everyAlgorithm {
		q := bounded(t, fmt.Sprintf("rule:%v%%", a), 100, a)
		for j, used := range []int64{10, 20 + int64(i), q.Capacity()} {
			require.True(t, decideOne(t, store, q, fmt.Sprint("key", j), used).Allowed)
		}
	}
	server.MustDo("SET", "weir:3:{0123456789012345678901}:other", "not a counter")
	server.MustDo("LPUSH", "weir:3:{0123456789012345678901}:list", "nor this")
	server.MustDo("SET", "weir:1:{bans}:list", "nor this")
	server.MustDo("SET", "weird", "nor this")

	found := usages(t, client, "", server)
	require.Len(t, found, 3*len(everyAlgorithm))
	keys := counters.New("weir", nil, counters.Format)
	exhausted := keys.Digest("key2")
	for i, u := range found {
		if i >= 2*len(everyAlgorithm) {
			assert.Equal(t, u.Limit, u.Used, u.Rule)
			assert.Equal(t, string(exhausted[:]), u.Digest)
		}
		assert.Positive(t, u.ResetAfter)
		assert.Regexp(t, `^rule:[a-z-]+%$`, u.Rule)
	}
	assert.Equal(t, int64(10), found[0].Used)
	server.MustDo("COPY", found[0].Name, "weir:3:{no digest}:rule")
	assert.Len(t, usages(t, client, "", server), len(found), "a name that no store writes is left out, whatever its value")
	assert.Empty(t, usages(t, client, "we*r", server))

	nodes := redistest.Cluster(t)
	client = closeAfter(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes)}))
	store = New(client, patient)
	for i := range 60 {
		require.True(t, decideOne(t, store, bounded(t, "rule", 10, limiter.TokenBucket), fmt.Sprint("key", i), 1+int64(i)%10).Allowed)
	}
	assert.Len(t, usages(t, client, "", nodes...), 60, "of all nodes of a Cluster")
}

func TestUsagesSayWhatTheStoreSays(t *testing.T) {
	server := redistest.Start(t)
	client := connect(t, server)
	store := New(client, patient)
	limits := []limiter.Limit{
		limiter.Monthly(7), limiter.Daily(50),
		{Events: 40, Per: time.Hour, Algorithm: limiter.SlidingLog}, // a ring
		{Events: 7, Per: 13*24*time.Hour + time.Microsecond, Burst: 50, Algorithm: limiter.TokenBucket},
		{Events: 999_983, Per: 7 * time.Second, Burst: 41, Algorithm: limiter.LeakyBucket},
		{Events: 1_000_000_000_000, Per: 300 * 24 * time.Hour, Algorithm: limiter.TokenBucket},
	}
	for _, a := range everyAlgorithm {
		limits = append(limits, limiter.Limit{Events: 7, Per: 200 * time.Millisecond, Algorithm: a}, limiter.Limit{Events: 30, Per: time.Hour, Algorithm: a})
	}
	for i, l := range limits {
		for _, settles := range []bool{false, true} {
			server.MustDo("FLUSHALL")
			q, err := limiter.NewQuota(fmt.Sprintf("rule %d", i), "tier", l)
			require.NoError(t, err)
			q.Settles = settles
			for range 60 {
				decideOne(t, store, q, "key", 1)
			}
			require.NoError(t, store.Settle(t.Context(), []limiter.Settlement{{Charge: charge(q, "key", 0), Actual: 3}}))
			for range 5 {
				before := decideOne(t, store, q, "key", 0)
				found := usages(t, client, "", server)
				after := decideOne(t, store, q, "key", 0)
				u := Usage{Limit: after.Limit}
				if len(found) > 0 {
					u = found[0]
					assert.Equal(t, "tier", u.Tier)
				}
				assert.Equal(t, after.Limit, u.Limit)
				assert.GreaterOrEqual(t, u.Used, after.Limit-after.Remaining, "%v: time has only passed since", l)
				assert.LessOrEqual(t, u.Used, before.Limit-before.Remaining, "%v", l)
				assert.GreaterOrEqual(t, u.ResetAfter, after.ResetAfter, "%v", l)
				assert.LessOrEqual(t, u.ResetAfter, before.ResetAfter, "%v", l)
			}
		}
	}
}

func TestUsagesReadAnyValue(t *testing.T) {
	server, client := startRedis(t)
	names := counters.New("", nil, counters.Format)
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		value := make([]byte, random.IntN(300))
		for i := range value {
			value[i] = byte(random.Uint32())
		}
		if len(value) > 0 {
			value[0] %= 8
		}
		for i := 1; i+8 <= len(value) && random.IntN(3) > 0; i += 8 { // a number that may be meant
			copy(value[i:], counters.AppendNumber(nil, random.Int64N(1<<random.IntN(54))))
		}
		name := names.Name(names.Digest("key"), quotaOf(t, "rule", limiter.PerMinute(10)))
		if random.IntN(4) == 0 {
			name += counters.SlotsSuffix
		}
		require.NoError(t, client.Set(t.Context(), name, value, time.Minute).Err())
		for _, u := range usages(t, client, "", server) {
			assert.Positive(t, u.Used)
		}
	}
}

func TestUsagesShowACounterAheadOfTheClockWhileItCounts(t *testing.T) {
	server, client := startRedis(t)
	q := quotaOf(t, "rule", limiter.PerMinute(100).With(limiter.TokenBucket))
	name := forgetful(client).names.Name(forgetful(client).names.Digest("key"), q)
	for ahead, want := range map[time.Duration]int{30 * time.Second: 1, time.Hour: 0} {
		value := counters.AppendQuota(nil, q, 0)
		last := serverMillis(t, server)*1000 + ahead.Microseconds()
		for _, n := range []int64{last, 7 * q.Numbers(0)[1], 0, last} {
			value = counters.AppendNumber(value, n)
		}
		require.NoError(t, client.Set(t.Context(), name, value, time.Minute).Err())
		found := usages(t, client, "", server)
		require.Len(t, found, want, "the clock was set back by %v", ahead)
		if want > 0 {
			assert.EqualValues(t, 7, found[0].Used)
		}
	}
}

func TestUsagesTellOfSlotsInUseAndTheirLimitOfNow(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := connect(t, server)
	one, two := New(client, patient), New(client, patient)
	idle := concurrency(t, "idle", 5)
	decideOne(t, one, bounded(t, "a:b", 100, limiter.FixedWindow), "key", 10)
	decideOne(t, one, concurrency(t, "a:b", 5), "key", 3)
	decideOne(t, two, concurrency(t, "a:b", 9), "key", 1)
	end(t, one, idle, "key", decideOne(t, one, idle, "key", 1))
	require.NoError(t, one.Close())

	found := usages(t, client, "", server)
	require.Len(t, found, 2, "what has ended is not shown")
	slots := found[0]
	assert.Equal(t, "a:b", slots.Rule)
	assert.Empty(t, slots.Tier)
	assert.True(t, slots.InFlight)
	assert.EqualValues(t, 4, slots.Used)
	assert.EqualValues(t, 9, slots.Limit)
	assert.False(t, found[1].InFlight)
	require.NoError(t, two.Close())
}
