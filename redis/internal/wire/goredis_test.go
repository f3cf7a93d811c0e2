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

func correction(keys ...string) *Run {
	r := NewRun(NewScript("return redis.call('INCR', KEYS[1])"), keys, []byte("an argument"))
	r.WithSource = true
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

	for i := range 2 {
		runs := []*Run{correction("{t}one"), correction("{t}other")}[:i+1] // alone, and in a pipeline
		transport.Send(t.Context(), runs...)
		require.NoError(t, runs[0].Err(), "Redis said where to ask, so it did not run it")
		n, err := runs[0].Int()
		require.NoError(t, err)
		assert.Equal(t, i+1, n)
	}

	// Keys on two nodes are tried until they are on one.
	r := correction("{t}one", "{t}two")
	done := make(chan struct{})
	go func() {
		defer close(done)
		transport.Send(t.Context(), r)
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
	assert.Equal(t, 3, n, "once")
}

// Redis runs what is beside a run that is to be tried again once.
func TestARunToTryAgainRepeatsNoOtherOfItsPipeline(t *testing.T) {
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
	finish := redistest.BeginMove(nodes, "{t}one", to)
	defer finish()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	onTwoNodes, onOne := correction("{t}one", "{t}two"), correction("{t}two")
	NewTransport(client, false).Send(ctx, onTwoNodes, onOne)
	require.ErrorContains(t, onTwoNodes.Err(), "TRYAGAIN")
	require.NoError(t, onOne.Err())
	assert.Equal(t, "1", client.Get(t.Context(), "{t}two").Val())
}

// What Redis says before it runs a script is no reason to give up.
func TestARunIsSentAgainUntilRedisCanRunIt(t *testing.T) {
	for _, said := range []string{"LOADING Redis is loading", "CLUSTERDOWN The cluster is down", "MASTERDOWN Link with MASTER is down", "TRYAGAIN Multiple keys"} {
		var asked atomic.Int64
		addr := redistest.StartFake(t, func(command []string) string {
			switch {
			case !strings.HasPrefix(strings.ToUpper(command[0]), "EVAL"):
				return "-ERR unknown command\r\n"
			case asked.Add(1) < 3:
				return "-" + said + "\r\n"
			}
			return ":7\r\n"
		})
		client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: addr}))
		r := correction("key")
		NewTransport(client, false).Send(t.Context(), r)
		require.NoError(t, r.Err(), said)
		assert.EqualValues(t, 3, asked.Load(), said)
	}
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
				var runs []*Run
				for i := range count {
					runs = append(runs, correction(fmt.Sprintf("{t}%s %d of %d", name, i, count)))
				}
				loses.Store(true)
				NewTransport(client, false).Send(t.Context(), runs...)
				require.False(t, loses.Load(), "or nothing was lost")
				for _, r := range runs {
					assert.False(t, IsAnswer(r.Err()), "%v", r.Err())
					assert.Equal(t, "1", client.Get(t.Context(), r.Arguments[FirstKey].(string)).Val())
				}
			})
		}
	}
}

// The client's own timeouts are longer than a test may take.
func TestATransportEndsThoughTheServerHangs(t *testing.T) {
	server := redistest.Start(t)
	transport := NewTransport(redistest.CloseAfter(t, redis.NewClient(&redis.Options{
		Addr: server.Addr, ReadTimeout: time.Hour, WriteTimeout: time.Hour, PoolTimeout: time.Hour,
	})), false)
	r := correction("hangs")
	transport.Send(t.Context(), r) // so that there is a connection
	require.NoError(t, r.Err())
	server.Pause()
	defer server.Resume()
	r = correction("hangs")
	transport.Within(time.Millisecond).Send(t.Context(), r)
	assert.True(t, isTimeout(r.Err()), "%v", r.Err())
}

// tracer counts commands.
type tracer struct{ seen atomic.Int64 }

func (c *tracer) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *tracer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.seen.Add(1)
		return next(ctx, cmd)
	}
}
func (c *tracer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestATransportWithADeadlineSharesConnections(t *testing.T) {
	server := redistest.Start(t)
	for _, isItself := range []bool{false, true} {
		client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: isItself}))
		before := client.Options().ReadTimeout
		require.NoError(t, client.Ping(t.Context()).Err())
		transport, traced := NewTransport(client, false).Within(time.Second), &tracer{}
		client.AddHook(traced)
		for range 3 {
			r := correction("shared")
			transport.Send(t.Context(), r)
			require.NoError(t, r.Err())
		}
		assert.Equal(t, isItself, traced.seen.Load() == 3, "hooks see what the client itself sends")
		assert.EqualValues(t, 1, client.PoolStats().TotalConns)
		assert.Equal(t, before, client.Options().ReadTimeout)
	}
}

func TestAClientWhoseServerSentinelsNameHasNoAddress(t *testing.T) {
	for want, client := range map[string]*redis.Client{
		"":                redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: []string{"127.0.0.1:1"}}),
		"127.0.0.1:2":     redis.NewClient(&redis.Options{Addr: "127.0.0.1:2"}),
		"localhost:6379":  redis.NewClient(&redis.Options{}),
		"[::1]:6379":      redis.NewClient(&redis.Options{Addr: "[::1]:6379"}),
		"/run/redis.sock": redis.NewClient(&redis.Options{Network: "unix", Addr: "/run/redis.sock"}),
	} {
		redistest.CloseAfter(t, client)
		assert.Equal(t, want, address(client.Options()))
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
