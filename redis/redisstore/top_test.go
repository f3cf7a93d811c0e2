package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/internal/counters"
)

func TestTopAreThoseWhoHaveUsedMost(t *testing.T) {
	server := redistest.Start(t)
	client := connect(t, server)
	store := New(client, Options{})
	for i, a := range everyAlgorithm {
		q := bounded(t, fmt.Sprintf("rule:%v%%", a), 100, a)
		capacity := q.Capacity()
		for j, used := range []int64{10, 20 + int64(i), capacity} {
			require.True(t, decideOne(t, store, q, fmt.Sprint("key", j), used).Allowed)
		}
	}
	server.MustDo("SET", "weir:2:{0123456789012345678901}:other", "not a counter")
	server.MustDo("LPUSH", "weir:2:{0123456789012345678901}:list", "nor this")
	server.MustDo("SET", "weir:1:{bans}:list", "nor this")
	server.MustDo("SET", "weird", "nor this")

	top, all, err := Top(t.Context(), client, 100, TopOptions{})
	require.NoError(t, err)
	assert.True(t, all)
	require.Len(t, top, 3*len(everyAlgorithm))
	keys := counters.New("weir", nil, counters.Format)
	exhausted := keys.Tag("key2")
	for i, u := range top {
		if i < len(everyAlgorithm) {
			assert.Equal(t, u.Limit, u.Used, u.Rule)
			assert.Equal(t, string(exhausted[:]), u.Digest)
		}
		assert.Positive(t, u.ResetAfter)
		assert.Regexp(t, `^rule:[a-z-]+%$`, u.Rule)
		if i > 0 {
			assert.LessOrEqual(t, float64(u.Used)/float64(u.Limit), float64(top[i-1].Used)/float64(top[i-1].Limit))
		}
	}
	assert.Equal(t, int64(10), top[len(top)-1].Used)

	first, _, err := Top(t.Context(), client, 3, TopOptions{})
	require.NoError(t, err)
	assert.Equal(t, usages(top[:3]), usages(first))
	one, _, err := Top(t.Context(), client, 100, TopOptions{Rule: "rule:token-bucket%"})
	require.NoError(t, err)
	assert.Len(t, one, 3)
	none, _, err := Top(t.Context(), client, 100, TopOptions{Prefix: "we*r"})
	require.NoError(t, err)
	assert.Empty(t, none)
}

// usages are what does not change with time.
func usages(list []Usage) (names []string) {
	for _, u := range list {
		names = append(names, fmt.Sprint(u.Digest, u.Rule, u.Used))
	}
	return names
}

func TestTopSaysWhatTheStoreSays(t *testing.T) {
	server := redistest.Start(t)
	client := connect(t, server)
	store := New(client, Options{})
	for _, a := range everyAlgorithm {
		q, err := limiter.NewQuota("rule "+a.String(), "tier", limiter.Limit{Events: 7, Per: 200 * time.Millisecond, Algorithm: a})
		require.NoError(t, err)
		for range 5 {
			decideOne(t, store, q, "key", 1)
			top, _, err := Top(t.Context(), client, 1, TopOptions{Rule: q.Rule()})
			require.NoError(t, err)
			look := decideOne(t, store, q, "key", 0)
			used := int64(0)
			if len(top) > 0 {
				used = top[0].Used
				assert.Equal(t, "tier", top[0].Tier)
			}
			assert.GreaterOrEqual(t, used, look.Limit-look.Remaining, "%v: time has only passed since", a)
			assert.LessOrEqual(t, used, look.Limit)
		}
	}
}

func TestTopLooksAtEveryNodeOfACluster(t *testing.T) {
	cluster := redistest.Cluster(t)
	client := closeAfter(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(cluster)}))
	store := New(client, Options{})
	q := bounded(t, "rule", 10, limiter.TokenBucket)
	for i := range 60 {
		require.True(t, decideOne(t, store, q, fmt.Sprint("key", i), 1+int64(i)%10).Allowed)
	}
	top, all, err := Top(t.Context(), client, 60, TopOptions{})
	require.NoError(t, err)
	assert.True(t, all)
	assert.Len(t, top, 60)
	assert.Equal(t, int64(10), top[5].Used)
	assert.Equal(t, int64(9), top[6].Used)
}

func TestTopGivesUpWhereItIsTold(t *testing.T) {
	server := redistest.Start(t)
	client := connect(t, server)
	for i := range 2000 {
		server.MustDo("SET", fmt.Sprint("other", i), "x")
	}
	_, all, err := Top(t.Context(), client, 1, TopOptions{MaxKeys: 300})
	require.NoError(t, err)
	assert.False(t, all)
}

func TestTopRefusesWhatMakesNoSense(t *testing.T) {
	client := closeAfter(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	_, _, err := Top(t.Context(), nil, 1, TopOptions{})
	assert.ErrorContains(t, err, "needs a client")
	_, _, err = Top(t.Context(), client, 0, TopOptions{})
	assert.ErrorContains(t, err, "Top of 0")
	_, _, err = Top(t.Context(), client, 1, TopOptions{MaxKeys: -1})
	assert.ErrorContains(t, err, "MaxKeys is -1")
	_, _, err = Top(t.Context(), client, 1, TopOptions{Prefix: "a b"})
	assert.ErrorContains(t, err, "a b")
	_, _, err = Top(t.Context(), client, 1, TopOptions{})
	assert.Error(t, err, "nobody is there")
}

func TestTopShowsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := connect(t, server)
	one, two := New(client, Options{}), New(client, Options{})
	exports, premium := concurrency(t, "a:b", 5), concurrency(t, "idle", 5)
	decideOne(t, one, bounded(t, "a:b", 100, limiter.FixedWindow), "key", 10)
	decideOne(t, one, exports, "key", 3)
	decideOne(t, two, exports, "key", 1)
	end(t, one, premium, "key", decideOne(t, one, premium, "key", 1))
	require.NoError(t, one.Close())

	top, all, err := Top(t.Context(), client, 10, TopOptions{})
	require.NoError(t, err)
	assert.True(t, all)
	require.Len(t, top, 2, "what has ended is not shown")
	assert.Equal(t, "a:b", top[0].Rule)
	assert.Empty(t, top[0].Tier)
	assert.True(t, top[0].InFlight)
	assert.EqualValues(t, 4, top[0].Used)
	assert.EqualValues(t, 5, top[0].Limit)
	assert.False(t, top[1].InFlight)
	require.NoError(t, two.Close())
}

func TestTopTellsTheLimitThatPlacesHaveNow(t *testing.T) {
	t.Parallel()
	client := connect(t, redistest.Start(t))
	s := New(client, Options{})
	for _, most := range []int64{5, 9} {
		require.True(t, decideOne(t, s, concurrency(t, "exports", most), "user", 1).Allowed)
		top, _, err := Top(t.Context(), client, 5, TopOptions{})
		require.NoError(t, err)
		require.Len(t, top, 1)
		assert.Equal(t, most, top[0].Limit)
	}
	require.NoError(t, s.Close())
}
