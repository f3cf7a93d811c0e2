package wire

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
)

func correction(keys ...string) *Request {
	r := NewRequest(NewScript("return redis.call('INCR', KEYS[1])"), keys)
	r.Bytes, r.WithSource, r.Once = []byte("an argument"), true, true
	return r
}

// Two keys' slot is being moved. The node that has it has neither key, and the other one the first.
func TestCorrectionsFollowAMovingSlotAndCountOnce(t *testing.T) {
	nodes := redistest.StartCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes), MaxRedirects: 1000})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	require.NoError(t, client.Set(t.Context(), "{t}one", "0", 0).Err())
	to := nodes[0]
	if redistest.Owner(nodes, "{t}") == to {
		to = nodes[1]
	}
	transport, finish := NewTransport(client, false), redistest.BeginMove(nodes, "{t}one", to)

	requests := []*Request{correction("{t}one"), correction("{t}one")}
	for _, r := range requests {
		r.Alone = true // as Redis asked for them to be tried again
	}
	transport.Send(t.Context(), requests)
	for i, r := range requests {
		require.NoError(t, r.Err(), "Redis said where to ask, so it did not run it")
		n, err := r.Int()
		require.NoError(t, err)
		assert.Equal(t, i+1, n)
	}

	// Keys on two nodes are tried until they are on one.
	r := correction("{t}one", "{t}two")
	r.Alone = true
	done := make(chan struct{})
	go func() {
		defer close(done)
		transport.Send(t.Context(), []*Request{r})
	}()
	redistest.Await(t, "Redis to ask for another try", func() bool {
		said, _ := to.Do("INFO", "errorstats")
		return strings.Contains(said, "TRYAGAIN")
	})
	finish()
	<-done
	require.NoError(t, r.Err())
	n, err := r.Int()
	require.NoError(t, err)
	assert.Equal(t, len(requests)+1, n, "once")
}

// A Cluster repeats a whole pipeline if its first command is to be tried again.
func TestACommandToTryAgainRepeatsNoOtherOfItsPipeline(t *testing.T) {
	nodes := redistest.StartCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes)})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	for _, key := range []string{"{t}one", "{t}two"} {
		require.NoError(t, client.Set(t.Context(), key, "0", 0).Err())
	}
	to := nodes[0]
	if redistest.Owner(nodes, "{t}") == to {
		to = nodes[1]
	}
	defer redistest.BeginMove(nodes, "{t}one", to)()

	onTwoNodes, onOne := correction("{t}one", "{t}two"), correction("{t}two")
	for _, r := range []*Request{onTwoNodes, onOne} {
		r.Once = false
	}
	NewTransport(client, false).Send(t.Context(), []*Request{onTwoNodes, onOne})
	require.ErrorContains(t, onTwoNodes.Err(), "TRYAGAIN")
	require.True(t, onTwoNodes.Amend(onTwoNodes.Err()))
	assert.True(t, onTwoNodes.Alone)
	require.NoError(t, onOne.Err())
	assert.Equal(t, "1", client.Get(t.Context(), "{t}two").Val())
}

// A conn that loses the answer to a script, and then is closed.
type losingConn struct {
	net.Conn
	loses   *atomic.Bool // once
	isAsked atomic.Bool
}

func (c *losingConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("eval")) {
		c.isAsked.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *losingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.isAsked.Load() && c.loses.Swap(false) {
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}

func TestAnAnswerThatIsLostHasNothingSentAgain(t *testing.T) {
	var loses atomic.Bool
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &losingConn{Conn: conn, loses: &loses}, err
	}
	one, nodes := redistest.Start(t), redistest.Cluster(t)
	for name, client := range map[string]redis.UniversalClient{
		"a client":  redis.NewClient(&redis.Options{Addr: one.Addr, Dialer: dial, ContextTimeoutEnabled: true}),
		"a Cluster": redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes), Dialer: dial}),
	} {
		redistest.CloseAfter(t, client)
		for _, count := range []int{1, 2} { // alone, and in a pipeline
			t.Run(fmt.Sprint(name, count), func(t *testing.T) {
				var requests []*Request
				for i := range count {
					requests = append(requests, correction(fmt.Sprintf("{t}%s %d of %d", name, i, count)))
				}
				loses.Store(true)
				NewTransport(client, false).Send(t.Context(), requests)
				require.False(t, loses.Load(), "or nothing was lost")
				for _, r := range requests {
					assert.False(t, IsAnswer(r.Err()), "%v", r.Err())
					assert.Equal(t, "1", client.Get(t.Context(), r.Arguments[FirstKey].(string)).Val())
				}
			})
		}
	}
}

func TestAFlightIsWrittenWhenThereIsAConnection(t *testing.T) {
	server := redistest.Start(t)
	f := &Flight{Start: time.Now(), Timeout: time.Minute, Patience: time.Minute, Led: true, Ended: make(chan struct{})}
	dials := 0
	client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{
		Addr: server.Addr, ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials++
			time.Sleep(time.Millisecond)
			assert.Zero(t, f.Written(), "a connection is being made")
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		},
	}))
	r := correction("a flight")
	r.Flight = f
	NewTransport(client, false).Send(f, []*Request{r})
	require.NoError(t, r.Err())
	f.Hear()
	assert.Equal(t, 1, dials)
	assert.GreaterOrEqual(t, f.Written(), time.Millisecond)
	assert.Positive(t, f.Took())
	f.Again()
	assert.Zero(t, f.Took())
}

// The client's own timeouts are longer than a test may take.
func TestAFlightEndsAtItsDeadlineThoughTheServerHangs(t *testing.T) {
	server := redistest.Start(t)
	transport, keeps := NewTransport(redistest.CloseAfter(t, redis.NewClient(&redis.Options{
		Addr: server.Addr, ReadTimeout: time.Hour, WriteTimeout: time.Hour, PoolTimeout: time.Hour,
	})), false).Within(time.Minute)
	require.True(t, keeps)
	r := correction("a flight")
	transport.Send(t.Context(), []*Request{r}) // so that there is a connection
	require.NoError(t, r.Err())
	server.Pause()
	defer server.Resume()
	for _, led := range []bool{true, false} {
		f := &Flight{Start: time.Now(), Timeout: time.Millisecond, Patience: time.Millisecond, Led: led, Ended: make(chan struct{})}
		r := correction("a flight")
		r.Flight = f
		transport.Send(f, []*Request{r})
		assert.True(t, isTimeout(r.Err()), "%v", r.Err())
	}
}

func TestATransportWithADeadlineSharesConnections(t *testing.T) {
	server := redistest.Start(t)
	client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr}))
	before := *client.Options()
	transport, keeps := NewTransport(client, false).Within(time.Second)
	require.True(t, keeps)
	for range 3 {
		r := correction("shared")
		transport.Run(t.Context(), r)
		require.NoError(t, r.Err())
	}
	require.NoError(t, client.Ping(t.Context()).Err())
	assert.EqualValues(t, 1, client.PoolStats().TotalConns)
	after := client.Options()
	assert.Equal(t, []any{before.ContextTimeoutEnabled, before.MaxRetries, before.ReadTimeout}, []any{after.ContextTimeoutEnabled, after.MaxRetries, after.ReadTimeout})
	assert.True(t, transport.Client.(*redis.Client).Options().ContextTimeoutEnabled)
}

func TestAClientWhoseServerSentinelsNameKeepsNoDeadline(t *testing.T) {
	for want, client := range map[string]*redis.Client{
		"":                redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: []string{"127.0.0.1:1"}}),
		"127.0.0.1:2":     redis.NewClient(&redis.Options{Addr: "127.0.0.1:2"}),
		"localhost:6379":  redis.NewClient(&redis.Options{}),
		"[::1]:6379":      redis.NewClient(&redis.Options{Addr: "[::1]:6379"}),
		"/run/redis.sock": redis.NewClient(&redis.Options{Network: "unix", Addr: "/run/redis.sock"}),
	} {
		redistest.CloseAfter(t, client)
		assert.Equal(t, want, address(client.Options()))
		_, keeps := NewTransport(client, false).Within(time.Second)
		assert.Equal(t, want != "", keeps)
	}
}

// Before Redis 7 the error of a script does not begin with READONLY, so only what TryWrite writes closes
// connections.
func TestAnAddressThatLeadsElsewhereLosesItsConnections(t *testing.T) {
	old, promoted := redistest.Start(t), redistest.Start(t)
	var at atomic.Pointer[string]
	at.Store(&old.Addr)
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, *at.Load())
	}
	for name, client := range map[string]redis.UniversalClient{
		"a client": redis.NewClient(&redis.Options{Dialer: dial, PoolSize: 10, MaxRetries: -1}),
	} {
		t.Run(name, func(t *testing.T) {
			redistest.CloseAfter(t, client)
			at.Store(&old.Addr)
			old.MustDo("REPLICAOF", "NO", "ONE")
			redistest.Await(t, "ten calls at once, each on a connection of its own", func() bool {
				var blocked sync.WaitGroup
				for range 10 {
					blocked.Go(func() { _ = client.BLPop(t.Context(), 100*time.Millisecond, "nothing").Err() })
				}
				blocked.Wait()
				return client.PoolStats().IdleConns == 10
			})

			host, port, err := net.SplitHostPort(promoted.Addr)
			require.NoError(t, err)
			old.MustDo("REPLICAOF", host, port)
			at.Store(&promoted.Addr)
			transport := NewTransport(client, false)
			require.ErrorContains(t, transport.TryWrite(t.Context(), time.Second, "probe"), "READONLY ")
			for range 10 {
				require.NoError(t, transport.TryWrite(t.Context(), time.Second, "probe"))
			}
		})
	}
}
