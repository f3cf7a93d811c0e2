package redisrules

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/middleware/rules"
)

const key = "weir:rules"

// follow is a source that has subscribed already.
func follow(t testing.TB, client redis.UniversalClient) *source {
	t.Helper()
	r := newSource(client, key, never)
	closeAfter(t, r)
	awaitNudge(t, r)
	return r
}

func write(t testing.TB, client redis.UniversalClient, text string) {
	t.Helper()
	redistest.Await(t, "Redis to take it", func() bool {
		return client.Set(t.Context(), key, text, 0).Err() == nil && client.Publish(t.Context(), channelOf(key), "").Err() == nil
	})
}

func TestAKeyThatIsMissingIsAnErrorOfItsOwn(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := follow(t, clientOf(t, server))
	_, err := r.Read(t.Context())
	require.ErrorIs(t, err, ErrNone)
	require.EqualError(t, err, `redisrules: read Redis key "weir:rules": the key does not exist`)
	server.MustDo("SET", key, "")
	requireText(t, r, "")
	server.MustDo("DEL", key)
	server.MustDo("LPUSH", key, "a list")
	_, err = r.Read(t.Context())
	require.ErrorContains(t, err, "WRONGTYPE")
	require.NotErrorIs(t, err, ErrNone)
}

func TestAKeyHasAtMostOneMebibyte(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := clientOf(t, server)
	r := follow(t, client)
	largest := strings.Repeat("x", maxText)
	write(t, client, largest)
	requireText(t, r, largest)

	require.EqualError(t, Publish(t.Context(), client, key, []byte(largest+"x"), rules.Options{}),
		`redisrules: the text for Redis key "weir:rules" is longer than 1 MiB (1048576 bytes)`)
	requireText(t, r, largest)
	server.MustDo("APPEND", key, "x")
	_, err := r.Read(t.Context())
	require.EqualError(t, err, `redisrules: Redis key "weir:rules" is longer than 1 MiB (1048576 bytes)`)
}

func TestASourceMayBeginWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := clientOf(t, server)
	server.Kill()
	r := newSource(client, key, never)
	closeAfter(t, r)
	_, err := r.Read(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrNone)
	server.Restart()
	write(t, client, "text")
	awaitText(t, r, "text")
}

func TestARedisThatHangsHoldsNobody(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := clientOf(t, server)
	r := follow(t, client)
	server.Pause()
	for range 2 { // the second finds the first one still on its way
		_, err := r.Read(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualError(t, err, `redisrules: read Redis key "weir:rules": Redis gave no answer in 1s`)
	}
	limited, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := r.Read(limited)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, Publish(t.Context(), client, key, []byte("version: 1\ndefault: 5/s\n"), rules.Options{}), context.DeadlineExceeded)
	require.NoError(t, r.Close())

	again := newSource(client, key, never) // which has no connection to close
	require.NoError(t, again.Close())
	server.Resume()
}

func TestASourceMayBeClosedAgainAndByMany(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for range 20 {
		r := newSource(clientOf(t, server), key, 0)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}

func TestWhatIsPublishedInAClusterIsHeardOfOnEveryNode(t *testing.T) {
	t.Parallel()
	nodes := redistest.Cluster(t)
	client := func() redis.UniversalClient {
		return redistest.CloseAfter(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes)}))
	}
	writer := client()
	one, two := follow(t, client()), follow(t, client())
	for _, text := range []string{"first", "second"} {
		write(t, writer, text)
		awaitText(t, one, text)
		awaitText(t, two, text)
	}
}

func TestUsersNeedNoMoreThanIsSaid(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	as := func(name string, may ...string) redis.UniversalClient {
		server.MustDo(append([]string{"ACL", "SETUSER", name, "on", ">secret", "~" + key, "resetchannels", "&" + key + ":changed"}, may...)...)
		return redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr, Username: name, Password: "secret"}))
	}
	writer := as("writer", "+set", "+publish")
	reader := newSource(as("reader", "+getrange", "+exists", "+subscribe", "+ping"), key, never)
	closeAfter(t, reader)
	awaitNudge(t, reader)
	for _, text := range []string{"", "text"} {
		write(t, writer, text)
		awaitText(t, reader, text)
	}
}
