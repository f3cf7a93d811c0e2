package redisstore

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/redis/internal/wire"
)

// A logbook is what is written with slog, while nobody else writes.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logbook) lines(code string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range strings.Split(l.text.String(), "\n") {
		if strings.Contains(line, "code="+code) {
			lines = append(lines, line)
		}
	}
	return lines
}

// await returns the only line with that code.
func (l *logbook) await(t *testing.T, code string) string {
	t.Helper()
	await(t, "a line with code "+code, func() bool { return len(l.lines(code)) > 0 })
	lines := l.lines(code)
	require.Len(t, lines, 1)
	return lines[0]
}

// keepLog is for tests that are not parallel.
func keepLog(t *testing.T) *logbook {
	l, before := &logbook{}, slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.NewTextHandler(l, nil)))
	return l
}

// An operator breaks a server and mends it, on a connection of its own that stays.
type operator struct {
	t   *testing.T
	rdb *redis.Client
}

func operate(t *testing.T, server *redistest.Server) operator {
	// A server without a password takes any.
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr, Password: "open sesame", PoolSize: 1, MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	o := operator{t, rdb}
	o.do("PING")
	return o
}

func (o operator) do(command ...any) {
	o.t.Helper()
	require.NoError(o.t, o.rdb.Do(context.Background(), command...).Err())
}

func TestAnOutageEndsWhileEveryKeyThatIsAskedForIsExhausted(t *testing.T) {
	t.Parallel()
	type step = func(*redistest.Server, operator)
	config := func(name, value string) step {
		return func(_ *redistest.Server, o operator) { o.do("CONFIG", "SET", name, value) }
	}
	for name, tt := range map[string]struct {
		breakIt, mend step
		said          string
		readable      bool // decisions that write nothing are answered meanwhile
	}{
		"a password is set": {
			breakIt: func(_ *redistest.Server, o operator) {
				o.do("CONFIG", "SET", "requirepass", "open sesame")
				o.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			},
			mend: config("requirepass", ""),
			said: "NOAUTH ",
		},
		"memory is full": {config("maxmemory", "1"), config("maxmemory", "0"), "OOM ", true},
		"it is a replica": {
			func(_ *redistest.Server, o operator) { o.do("REPLICAOF", "127.0.0.1", "1") },
			func(_ *redistest.Server, o operator) { o.do("REPLICAOF", "NO", "ONE") },
			"READONLY ", true,
		},
		"it hangs": {
			func(s *redistest.Server, _ operator) { s.Pause() },
			func(s *redistest.Server, _ operator) { s.Resume() },
			"Redis gave no answer in ", false,
		},
		"its user may not run scripts": {
			func(_ *redistest.Server, o operator) { o.do("ACL", "SETUSER", "default", "-evalsha", "-eval") },
			func(_ *redistest.Server, o operator) { o.do("ACL", "SETUSER", "default", "+evalsha", "+eval") },
			"NOPERM ", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			o := operate(t, server)
			var events sync.Map
			s := New(connect(t, server), Options{Failover: failover.Options{
				Deadline: 500 * time.Millisecond, ProbeEvery: 50 * time.Millisecond,
				OnDegraded: func(e failover.Event) { events.Store(e.Degraded, e) },
			}})
			open, fresh := bounded(t, "open", 2, limiter.TokenBucket), bounded(t, "fresh", 2, limiter.TokenBucket)
			open.OnOutage = limiter.FailOpen
			await(t, "the key to be exhausted", func() bool {
				d := decideOne(t, s, open, "key", 1)
				return !d.Allowed && !d.Degraded
			})

			tt.breakIt(server, o)
			n := 0
			await(t, "the policies to come into force", func() bool {
				n++
				decideOne(t, s, fresh, fmt.Sprint(n), 1) // which Redis has to write
				return s.Stats().Degraded
			})
			if !tt.readable {
				failures := s.Stats().Failures
				await(t, "probes that fail", func() bool {
					decideOne(t, s, open, "key", 1)
					return s.Stats().Failures > failures+2
				})
			} else {
				// A script that writes nothing is run all the same: what the probe tries to
				// write keeps the outage going, and nothing else.
				failures := s.Stats().Failures
				await(t, "probes that are refused and fail", func() bool {
					assert.True(t, decideOne(t, s, open, "key", 1).Degraded)
					return s.Stats().Failures > failures+5
				})
			}
			assert.True(t, s.Stats().Degraded)

			tt.mend(server, o)
			await(t, "the outage to end, though nobody asks for what is free", func() bool {
				return !decideOne(t, s, open, "key", 1).Degraded
			})
			assert.False(t, decideOne(t, s, open, "key", 1).Allowed)
			await(t, "the event", func() bool { _, ok := events.Load(true); return ok })
			began, _ := events.Load(true)
			assert.ErrorContains(t, began.(failover.Event).Err, tt.said)
			assert.Equal(t, server.Addr, began.(failover.Event).Server)
			for _, key := range strings.Split(server.MustDo("KEYS", "*"), "\n") {
				if strings.HasSuffix(key, probeSuffix) {
					assert.NotEqual(t, "-1", server.MustDo("PTTL", key), "what a probe writes expires")
				}
			}
		})
	}
}

// unreachable is an address at which nothing listens.
func unreachable(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestAWrongAddressIsLoggedAtTheFirstCall(t *testing.T) {
	addr := unreachable(t)
	for name, client := range map[string]redis.UniversalClient{
		"a client":                              redis.NewClient(&redis.Options{Addr: addr}),
		"a client that Weir uses itself":        redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true}),
		"a Cluster":                             redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}}),
		"a Cluster that heeds its contexts":     redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, ContextTimeoutEnabled: true}),
		"a client whose dialer goes by a proxy": redis.NewClient(&redis.Options{Addr: "proxied:6379", Dialer: to(addr)}),
	} {
		t.Run(name, func(t *testing.T) {
			closeAfter(t, client)
			log := keepLog(t)
			s := New(client, Options{})
			q := bounded(t, "rule", 100, limiter.SlidingWindow)
			for i := range 4 { // what a worker asks in a day
				d := decideOne(t, s, q, fmt.Sprint("key ", i), 1)
				assert.True(t, d.Allowed && d.Degraded)
			}
			line := log.await(t, "weir-call-failed")
			t.Log(line)
			assert.Contains(t, line, "level=WARN")
			if !strings.Contains(name, "proxy") {
				assert.Contains(t, line, "server="+addr)
			}
			assert.Contains(t, line, "a call to the store's server failed")
			assert.Equal(t, 1, strings.Count(line, "connection refused"), "the reason, once")
			assert.Equal(t, 1, strings.Count(line, "redisstore: "))
		})
	}
}

func to(addr string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
}

func TestSentinelsThatAreNotThereAreLoggedAtTheFirstCall(t *testing.T) {
	client := closeAfter(t, redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: []string{unreachable(t)}}))
	log := keepLog(t)
	s := New(client, Options{})
	decideOne(t, s, bounded(t, "rule", 100, limiter.SlidingWindow), "key", 1)
	line := log.await(t, "weir-call-failed")
	t.Log(line)
	assert.Regexp(t, "all sentinels .* unreachable|cannot be reached", line) // by when go-redis gives up
}

func TestAHungServerIsToldFromOneThatIsNotThere(t *testing.T) {
	server := redistest.Start(t)
	for name, client := range map[string]redis.UniversalClient{
		"a client":                       redis.NewClient(&redis.Options{Addr: server.Addr}),
		"a client that Weir uses itself": redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true}),
	} {
		t.Run(name, func(t *testing.T) {
			closeAfter(t, client)
			log := keepLog(t)
			s := New(client, Options{})
			q := bounded(t, "rule", 100, limiter.SlidingWindow)
			server.Pause()
			defer server.Resume()
			await(t, "the policies to come into force", func() bool {
				decideOne(t, s, q, "key", 1)
				return s.Stats().Degraded
			})
			for _, code := range []string{"weir-call-failed", "weir-degraded"} {
				line := log.await(t, code)
				t.Log(line)
				assert.Contains(t, line, "server="+server.Addr)
				assert.Contains(t, line, "gave no answer")
				assert.NotContains(t, line, "refused")
			}
		})
	}
}

func TestAServerThatCannotRunTheScriptsIsAWrongConfiguration(t *testing.T) {
	alone := func(options ...string) func(*testing.T) *redistest.Server {
		return func(t *testing.T) *redistest.Server { return redistest.Start(t, options...) }
	}
	user := func(rules ...string) func(*testing.T) *redistest.Server {
		return func(t *testing.T) *redistest.Server {
			server := redistest.Start(t)
			server.MustDo(append([]string{"ACL", "SETUSER", "default"}, rules...)...)
			return server
		}
	}
	for name, tt := range map[string]struct {
		start func(*testing.T) *redistest.Server
		said  string
	}{
		"it knows no scripts":        {alone("--rename-command", "EVALSHA", "", "--rename-command", "EVAL", ""), "ERR unknown command "},
		"its user may not":           {user("-evalsha", "-eval"), "NOPERM"},
		"its user may not ask for T": {user("-time"), "run th"}, // "this command" before Redis 7.2, "the 'time' command" since
		"its user has other keys":    {user("resetkeys", "~other:*"), "NOPERM"},
		"it is one of a Cluster":     {func(t *testing.T) *redistest.Server { return redistest.Cluster(t)[0] }, "MOVED"},
	} {
		t.Run(name, func(t *testing.T) {
			server := tt.start(t)
			log := keepLog(t)
			s := New(connect(t, server), Options{Failover: failover.Options{Deadline: 5 * time.Second, ProbeEvery: 10 * time.Millisecond}})
			q := bounded(t, "rule", 10, limiter.SlidingWindow)
			closed := bounded(t, "closed", 10, limiter.SlidingWindow)
			closed.OnOutage = limiter.FailClosed
			n := 0
			key := func() string { // of which a node of a Cluster has none
				for {
					n++
					if tag := s.names.Digest(fmt.Sprint("key ", n)); wire.SlotOf(tag[:]) > wire.Slots*2/3 {
						return fmt.Sprint("key ", n)
					}
				}
			}
			await(t, "the policies to come into force, and some probes", func() bool {
				assert.True(t, decideOne(t, s, q, key(), 1).Degraded, "the rule's policy decides")
				return s.Stats().Failures > 10
			})
			require.ErrorIs(t, s.Decide(t.Context(), []limiter.Charge{charge(closed, key(), 1)}), failover.ErrUnavailable)
			line := log.await(t, "weir-store-unusable")
			t.Log(line)
			assert.Contains(t, line, "level=ERROR")
			assert.Contains(t, line, "server="+server.Addr)
			assert.Contains(t, line, tt.said)
			assert.Empty(t, log.lines("weir-call-failed"))
		})
	}
}

func TestANodeOfAClusterIsNamedByItsAddressAndItsErrorOnce(t *testing.T) {
	nodes := redistest.StartCluster(t)
	client := closeAfter(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes), ContextTimeoutEnabled: true}))
	s := New(client, Options{Failover: failover.Options{Deadline: time.Second}})
	q := bounded(t, "rule", 1000, limiter.SlidingWindow)
	keys := map[*redistest.Server][]string{}
	for i := 0; len(keys[nodes[0]]) < 3; i++ {
		key := fmt.Sprint("key ", i)
		tag := s.names.Digest(key)
		owner := redistest.Owner(nodes, s.names.Name(tag, q))
		keys[owner] = append(keys[owner], key)
		assert.False(t, decideOne(t, s, q, key, 1).Degraded)
	}
	log := keepLog(t)
	nodes[0].Kill()
	charges := make([]limiter.Charge, 3)
	for i := range charges {
		charges[i] = charge(q, keys[nodes[0]][i], 1)
	}
	require.NoError(t, s.Decide(t.Context(), charges))
	line := log.await(t, "weir-call-failed")
	t.Log(line)
	assert.Contains(t, line, "server="+nodes[0].Addr)
	assert.Equal(t, 1, strings.Count(line, "redisstore: "), "one error of three parts")
	assert.LessOrEqual(t, strings.Count(line, "refused"), 1)
}

// It names a server that is gone for longer than it waits, whether its Dialer heeds contexts.
func TestADiagnosisThatIsLateNamesTheServer(t *testing.T) {
	t.Parallel()
	const addr = "192.0.2.1:6379"
	leave := make(chan struct{})
	t.Cleanup(func() { close(leave) })
	heeds := func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
	ignores := func(context.Context, string, string) (net.Conn, error) { <-leave; return nil, net.ErrClosed }
	oneNode := func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: wire.Slots - 1, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
	}
	var all sync.WaitGroup
	defer all.Wait()
	for _, dial := range []func(context.Context, string, string) (net.Conn, error){heeds, ignores} {
		for _, client := range []redis.UniversalClient{
			redis.NewClient(&redis.Options{Addr: addr, Dialer: dial}),
			redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"192.0.2.2:6379"}, Dialer: dial, ClusterSlots: oneNode}),
			redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, Dialer: dial}), // whose nodes nobody knows
		} {
			s := storeOn(closeAfter(t, client), Options{}, time.Second)
			for range 5 {
				all.Go(func() {
					server, err := s.Diagnose(0, s.transport.Failed("redisstore", context.DeadlineExceeded, time.Second))
					assert.Equal(t, addr, server)
					assert.ErrorContains(t, err, "and cannot be reached")
				})
			}
		}
	}
}

// Whatever fails: the call that decides, or the call that charges what this process admitted by itself.
func TestRedisIsChargedWithWhatAProcessAdmittedByItself(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := connect(t, server)
	s := New(client, Options{Failover: failover.Options{Deadline: 200 * time.Millisecond, ProbeEvery: time.Millisecond, OnDegraded: func(failover.Event) {}}})
	q := bounded(t, "rule", 1_000_000, limiter.SlidingWindow)
	admitted := int64(0)
	degraded := func() bool {
		admitted++
		return decideOne(t, s, q, "key", 1).Degraded
	}
	for range 3 {
		await(t, "a decision of Redis", func() bool { return !degraded() })
		server.Pause()
		await(t, "decisions without Redis", func() bool { return degraded() && s.Stats().Degraded })
		server.Resume()
	}
	await(t, "Redis to know them all", func() bool {
		degraded()
		d := decideOne(t, New(client, patient), q, "key", 0)
		return d.Limit-d.Remaining >= admitted
	})
}
