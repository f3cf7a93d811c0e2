package redisstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
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

// closedRule is a limiter whose requests fail if Redis does not decide.
func closedRule(t *testing.T, store limiter.Store) *limiter.Limiter {
	return limiter.Must(limiter.New(limiter.Config{
		Name: t.Name(), Store: store, OnOutage: limiter.FailClosed, Limit: limiter.PerDay(100).With(limiter.TokenBucket),
	}))
}

// A connection that takes longer than the deadline is waited for while there was none.
func TestTheFirstRequestWaitsForASlowConnection(t *testing.T) {
	server := redistest.Start(t)
	client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		time.Sleep(200 * time.Millisecond)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}))
	l := closedRule(t, redisstore.New(client, redisstore.Options{}))
	d, err := l.Allow(t.Context(), "key")
	require.NoError(t, err)
	assert.EqualValues(t, 99, d.Remaining)
}

// go-redis dials five times, with pauses of 100 ms, before it says that a port refuses.
func TestAPortThatRefusesIsWaitedForNoLongerThanTheDeadline(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	for name, client := range map[string]redis.UniversalClient{
		"a client":  redis.NewClient(&redis.Options{Addr: l.Addr().String()}),
		"a Cluster": redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{l.Addr().String()}}),
	} {
		t.Run(name, func(t *testing.T) {
			redistest.CloseAfter(t, client)
			store := redisstore.New(client, redisstore.Options{Failover: failover.Options{OnDegraded: func(failover.Event) {}}})
			rule := closedRule(t, store)
			fastest := time.Hour
			for range 4 {
				began := time.Now()
				_, err := rule.Allow(t.Context(), "key")
				require.ErrorIs(t, err, failover.ErrUnavailable)
				fastest = min(fastest, time.Since(began))
			}
			assert.Less(t, fastest, 300*time.Millisecond)
			require.Error(t, store.Connect(t.Context()))
		})
	}
}

// While a connection is made anew, its caller does not wait, and the breaker does not open.
func TestAConnectionThatIsMadeAnewCountsAgainstNoBreaker(t *testing.T) {
	server := redistest.Start(t)
	var slow atomic.Bool
	client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{
		Addr: server.Addr, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if slow.Load() {
				time.Sleep(600 * time.Millisecond)
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	}))
	store := redisstore.New(client, redisstore.Options{Failover: failover.Options{Failures: 3, Logger: slog.New(slog.DiscardHandler)}})
	require.NoError(t, store.Connect(t.Context()))
	l := closedRule(t, store)
	_, err := l.Allow(t.Context(), "key")
	require.NoError(t, err)
	slow.Store(true)
	server.MustDo("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	refused := 0
	redistest.Await(t, "the connection", func() bool {
		_, err := l.Allow(t.Context(), "key")
		if err != nil {
			refused++
		}
		return err == nil
	})
	assert.Positive(t, refused)
	assert.False(t, store.Stats().Degraded)
	assert.LessOrEqual(t, store.Stats().Failures, uint64(1), "the first call may find a connection that is dead")
}

// A network that drops all packets answers no dial, and the store goes on dialling.
func TestDialsWithoutAnAnswerOpenTheBreaker(t *testing.T) {
	for _, hadOne := range []bool{false, true} {
		t.Run(fmt.Sprint("after a connection: ", hadOne), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			var drops atomic.Bool
			client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{
				Addr: server.Addr, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
					if drops.Load() {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return new(net.Dialer).DialContext(ctx, network, addr)
				},
			}))
			store := redisstore.New(client, redisstore.Options{Failover: failover.Options{Logger: slog.New(slog.DiscardHandler)}})
			l := closedRule(t, store)
			if hadOne {
				_, err := l.Allow(t.Context(), "key")
				require.NoError(t, err)
			}
			drops.Store(true)
			server.MustDo("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			redistest.Await(t, "the breaker to open", func() bool {
				_, err := l.Allow(t.Context(), "key")
				require.ErrorIs(t, err, failover.ErrUnavailable)
				return store.Stats().Degraded
			})
			drops.Store(false)
			redistest.Await(t, "Redis to decide again", func() bool {
				_, err := l.Allow(t.Context(), "key")
				return err == nil
			})
		})
	}
}
