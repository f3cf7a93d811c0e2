package dashboard_test

import (
	"log/slog"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/dashboard"
	"github.com/weirgo/weir/redis/leasestore"
	"github.com/weirgo/weir/redis/redisstore"
)

// wrapped is a store of the user's around another one.
type wrapped struct{ limiter.Store }

func (w wrapped) Unwrap() limiter.Store { return w.Store }

func TestAnOutageIsSeenThroughLeasesAndWrappers(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	slow := redisstore.Options{Failover: failover.Options{Failures: 1, OnDegraded: func(failover.Event) {}}}
	exact := redisstore.New(client, slow)
	leases, err := leasestore.New(client, leasestore.Options{Redis: slow})
	require.NoError(t, err)
	t.Cleanup(func() { _ = leases.Close() })
	for _, store := range []limiter.Store{leases, wrapped{leases}, wrapped{wrapped{exact}}} {
		page, err := dashboard.New(dashboard.Options{Authorize: anybody, Store: store, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		limits, err := middleware.New(middleware.Config{Store: store, Observer: page, Rules: []middleware.Rule{
			{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerHour(100)},
		}})
		require.NoError(t, err)
		page.Add(limits)
		s := &service{t: t, page: page, mux: page}
		_, err = limits.Peek(t.Context(), "ip", "203.0.113.9")
		require.NoError(t, err)
		seen := s.figures().Store
		assert.True(t, seen.Bad, "%T", store)
		assert.Contains(t, seen.Text, "no answer")
	}
}
