package miniredis_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/limiter/limitertest"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/redis/leasestore"
	"github.com/weirgo/weir/redis/redisbans"
	"github.com/weirgo/weir/redis/redisstore"
)

// patience is how long a script of an interpreter in Go may take on a busy machine.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{}) // of pub/sub that ends with a test's server
	m.Run()
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func connect(t testing.TB, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// counting is a store without outage policies: what miniredis says, or an error.
func counting(client redis.UniversalClient) limiter.Store {
	store := redisstore.New(client, redisstore.Options{ForgetRefusals: true})
	_ = store.Close() // so that callers wait for what they settle, and the clock does not move before
	return store.Within(patience)
}

func TestAStoreOnMiniredisKeepsItsPromises(t *testing.T) {
	server := miniredis.RunT(t)
	client := connect(t, server.Addr())
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	server.SetTime(now)
	limitertest.Run(t, limitertest.Harness{
		New: func(testing.TB) limiter.Store {
			server.FlushAll()
			return counting(client)
		},
		Sleep: func(d time.Duration) {
			now = now.Add(d)
			server.SetTime(now)
			server.FastForward(d)
		},
	})
}

// What a user of miniredis writes, and how its clock is moved.
func TestAServiceCanBeTestedOnMiniredis(t *testing.T) {
	server := miniredis.RunT(t)
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	server.SetTime(now)
	store := redisstore.New(connect(t, server.Addr()), redisstore.Options{
		ForgetRefusals: true,
		Failover:       failover.Options{Deadline: patience},
	})
	limits, err := middleware.New(middleware.Config{Store: store, Rules: []middleware.Rule{
		{Name: "all", Key: keyfunc.Global, Limit: limiter.PerHour(100)},
		{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerMinute(2)},
	}})
	require.NoError(t, err)
	handler := limits.Handler(http.NotFoundHandler())
	ask := func() int {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		return w.Code
	}
	for range 2 {
		require.Equal(t, http.StatusNotFound, ask())
	}
	require.Equal(t, http.StatusTooManyRequests, ask())
	server.SetTime(now.Add(2 * time.Minute))
	server.FastForward(2 * time.Minute)
	require.Equal(t, http.StatusNotFound, ask())
	require.False(t, store.Stats().Degraded)
	require.Zero(t, store.Stats().Failures, "nothing was decided in this process alone")
}

func TestBansAreRefusedAndLeasesLoggedAsImpossible(t *testing.T) {
	const why = "only counters are supported, and neither leases nor bans"
	client := connect(t, miniredis.RunT(t).Addr())
	var log bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	list, err := redisbans.New(ctx, client, redisbans.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err, "nothing is asked of Redis yet")
	require.ErrorContains(t, list.Ban(ctx, "key", time.Hour), why)
	_, err = list.Escalate(ctx, "other", "rule", bans.Escalation{Ban: time.Hour, Factor: 1, Max: time.Hour})
	require.Error(t, err)
	_, err = list.Unban(ctx, "key")
	require.ErrorContains(t, err, why)
	_, err = list.All(ctx)
	require.ErrorContains(t, err, why)
	require.Contains(t, log.String(), why)

	q, err := limiter.NewQuota("rule", "", limiter.PerHour(1000).With(limiter.TokenBucket))
	require.NoError(t, err)
	var said bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&said, nil))
	leases, err := leasestore.New(client, leasestore.Options{Redis: redisstore.Options{
		Failover: failover.Options{Deadline: patience, Logger: logger},
	}})
	require.NoError(t, err, "nothing is asked of Redis yet")
	for range 100 {
		charges := []limiter.Charge{{Quota: q, Key: "key", Cost: 1}}
		require.NoError(t, leases.Decide(t.Context(), charges))
		require.False(t, charges[0].Decision.Degraded)
		time.Sleep(time.Millisecond)
	}
	_ = leases.Close()
	require.Equal(t, 1, strings.Count(said.String(), "code=weir-store-unusable"), said.String())
	require.Contains(t, said.String(), why)
	found, err := redisstore.Usages(t.Context(), client, "", client.Keys(t.Context(), redisstore.CounterNames("")).Val())
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.EqualValues(t, 100, found[0].Used)
}
