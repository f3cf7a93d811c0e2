package redisrules

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
)

const key = "weir:rules"

func connect(t testing.TB, addr string) redis.UniversalClient {
	return closedAfter(t, redis.NewClient(&redis.Options{Addr: addr}))
}

func closedAfter(t testing.TB, client redis.UniversalClient) redis.UniversalClient {
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

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
	eventually(t, "Redis to take it", func() bool { return publish(t.Context(), client, key, []byte(text)) == nil })
}

func TestWhatIsPublishedIsHeardOfAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := connect(t, server.Addr)
	one, two := follow(t, client), follow(t, connect(t, server.Addr))
	for _, text := range []string{"first", "second", ""} {
		require.NoError(t, publish(t.Context(), client, key, []byte(text)))
		awaitText(t, one, text)
		awaitText(t, two, text)
	}
	require.Equal(t, "-1", server.MustDo("TTL", key))
}

func TestAKeyThatIsMissingIsAnErrorOfItsOwn(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := follow(t, connect(t, server.Addr))
	_, err := r.Read(t.Context())
	require.ErrorIs(t, err, ErrNone)
	require.EqualError(t, err, `redisrules: read Redis key "weir:rules": nothing is there`)
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
	client := connect(t, server.Addr)
	r := follow(t, client)
	largest := strings.Repeat("x", maxText)
	write(t, client, largest)
	requireText(t, r, largest)

	require.EqualError(t, publish(t.Context(), client, key, []byte(largest+"x")),
		`redisrules: what is to be written to Redis key "weir:rules" is longer than 1 MiB (1048576 bytes)`)
	requireText(t, r, largest)
	server.MustDo("APPEND", key, "x")
	_, err := r.Read(t.Context())
	require.EqualError(t, err, `redisrules: Redis key "weir:rules" is longer than 1 MiB (1048576 bytes)`)
}

func TestASourceMayBeginWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := connect(t, server.Addr)
	server.Kill()
	r := newSource(client, key, never)
	closeAfter(t, r)
	_, err := r.Read(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrNone)
	require.ErrorContains(t, publish(t.Context(), client, key, nil), `redisrules: publish Redis key "weir:rules": `)
	server.Restart()
	write(t, client, "text")
	awaitText(t, r, "text")
}

func TestARedisThatHangsHoldsNobody(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := connect(t, server.Addr)
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
	require.ErrorIs(t, publish(t.Context(), client, key, []byte("text")), context.DeadlineExceeded)
	require.NoError(t, r.Close())

	again := newSource(client, key, never) // which has no connection to close
	require.NoError(t, again.Close())
	server.Resume()
}

func TestASourceMayBeClosedAgainAndByMany(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for range 20 {
		r := newSource(connect(t, server.Addr), key, 0)
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

// A mute passes connections on to a server. Those of before it is silenced stay open, and
// nothing comes through them any more, as when a firewall forgets them.
type mute struct {
	net.Listener
	silenced atomic.Int64 // how many connections were
	accepted atomic.Int64
}

func (m *mute) serve(t testing.TB, server string) {
	var conns sync.WaitGroup
	t.Cleanup(func() {
		_ = m.Close() // ends Accept
		conns.Wait()
	})
	conns.Go(func() {
		for {
			client, err := m.Accept()
			if err != nil {
				return
			}
			behind, err := net.Dial("tcp", server)
			if err != nil {
				t.Error(err)
				return
			}
			number := m.accepted.Add(1)
			pass := func(to, from net.Conn) {
				defer to.Close()
				defer from.Close()
				some := make([]byte, 4096)
				for {
					n, err := from.Read(some)
					if err != nil {
						return
					}
					if number <= m.silenced.Load() {
						continue
					}
					if _, err := to.Write(some[:n]); err != nil {
						return
					}
				}
			}
			conns.Go(func() { pass(client, behind) })
			conns.Go(func() { pass(behind, client) })
		}
	})
}

// pings is how many the server was sent.
func pings(t testing.TB, server *redistest.Server) (calls int) {
	t.Helper()
	for line := range strings.SplitSeq(server.MustDo("INFO", "commandstats"), "\r\n") {
		_, _ = fmt.Sscanf(line, "cmdstat_ping:calls=%d,", &calls) // or it is about another command
	}
	return calls
}

func TestASubscriptionThatFellSilentIsReplaced(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	through := &mute{Listener: listener}
	through.serve(t, server.Addr)

	r := newSourceWith(connect(t, through.Addr().String()), key, never, 500*time.Millisecond)
	closeAfter(t, r)
	awaitNudge(t, r)
	write(t, connect(t, server.Addr), "one")
	awaitText(t, r, "one")
	before, asked := through.accepted.Load(), pings(t, server)
	eventually(t, "it to be asked whether it stands", func() bool { return pings(t, server) >= asked+2 })
	require.Equal(t, before, through.accepted.Load(), "as long as there are answers it stands")

	through.silenced.Store(before)
	awaitNudge(t, r)
	write(t, connect(t, server.Addr), "two")
	eventually(t, "the text", func() bool { // through new connections
		text, err := r.Read(t.Context())
		return err == nil && string(text) == "two"
	})
	require.Greater(t, through.accepted.Load(), before)
}

func TestWhatIsPublishedInAClusterIsHeardOfOnEveryNode(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t)
	client := func() redis.UniversalClient {
		return closedAfter(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes)}))
	}
	writer := client()
	one, two := follow(t, client()), follow(t, client())
	for _, text := range []string{"first", "second"} {
		require.NoError(t, publish(t.Context(), writer, key, []byte(text)))
		awaitText(t, one, text)
		awaitText(t, two, text)
	}
}

func TestAFailoverOfSentinelsIsSurvived(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	client := closedAfter(t, redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: sentinel.Name, SentinelAddrs: redistest.Addrs(sentinel.Sentinels),
	}))
	r := follow(t, client)
	write(t, client, "first")
	awaitText(t, r, "first")
	sentinel.Master.Kill()
	sentinel.AwaitFailover()
	write(t, client, "second")
	awaitText(t, r, "second")
	write(t, client, "third")
	awaitText(t, r, "third")
}

func TestARingWithoutShardsThatAnswerDoesNotPanic(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ring := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"one": server.Addr}, HeartbeatFrequency: 10 * time.Millisecond,
	})
	closedAfter(t, ring)
	server.Kill()
	eventually(t, "the shard to count as down", func() bool { return ring.Len() == 0 })
	r := newSource(ring, key, never)
	closeAfter(t, r)
	server.Restart()
	awaitNudge(t, r)
	write(t, ring, "text")
	awaitText(t, r, "text")
}

func TestUsersNeedNoMoreThanIsSaid(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	as := func(name string, may ...string) redis.UniversalClient {
		server.MustDo(append([]string{"ACL", "SETUSER", name, "on", ">secret", "~" + key, "&" + key + ":changed"}, may...)...)
		return closedAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr, Username: name, Password: "secret"}))
	}
	writer := as("writer", "+set", "+publish")
	reader := newSourceWith(as("reader", "+getrange", "+exists", "+subscribe", "+ping"), key, never, 100*time.Millisecond)
	closeAfter(t, reader)
	awaitNudge(t, reader)
	for _, text := range []string{"", "text"} {
		require.NoError(t, publish(t.Context(), writer, key, []byte(text)))
		awaitText(t, reader, text)
	}
}
