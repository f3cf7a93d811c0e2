// Package stores tests what metrics say of a store, through all stores of Weir.
package stores_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/observe/metrics"
	"github.com/weirgo/weir/redis/leasestore"
	"github.com/weirgo/weir/redis/redisstore"
)

// read returns the metrics of a store, by name.
func read(t testing.TB, store limiter.Store) map[string]float64 {
	table, err := metrics.New(metrics.Options{Store: store})
	require.NoError(t, err)
	values := map[string]float64{}
	table.Read(func(m *metrics.Metric, value float64, _ ...string) { values[m.Prometheus] = value })
	return values
}

func has(values map[string]float64, name string) bool {
	_, ok := values[name]
	return ok
}

func TestStoresAreKnownByKind(t *testing.T) {
	memory := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
	client := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = client.Close() })
	leases, err := leasestore.New(client, leasestore.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = leases.Close() })
	for _, c := range []struct {
		name             string
		store            limiter.Store
		kind             string
		memory, failover bool
	}{
		{"a limiter's own", nil, "memory", false, false},
		{"in memory", memory, "memory", true, false},
		{"in Redis", redisstore.New(client, redisstore.Options{}), "redis", false, true},
		{"one with failover", failover.Must(failover.New(memory, failover.Options{})), "memory", true, true},
		{"one without failover", struct{ limiter.Store }{memory}, "other", false, false},
		{"around memory", around{memory}, "memory", true, false},
		{"around Redis, twice", around{around{redisstore.New(client, redisstore.Options{})}}, "redis", false, true},
		{"one that embeds Redis's", struct{ *redisstore.Store }{redisstore.New(client, redisstore.Options{})}, "redis", false, true},
		{"leases of Redis", leases, "redis", false, true},
		{"around nothing", around{}, "other", false, false},
		{"around itself", itself{}, "other", false, false},
	} {
		values := read(t, c.store)
		assert.Equal(t, c.kind, metrics.Must(metrics.New(metrics.Options{Store: c.store})).StoreKind(), c.name)
		assert.Equal(t, c.memory, has(values, "rate_limit_table_bytes"), c.name)
		assert.Equal(t, c.failover, has(values, "rate_limit_degraded"), c.name)
	}
}

// around is a store of the user's around another one.
type around struct{ limiter.Store }

func (a around) Unwrap() limiter.Store { return a.Store }

// itself is one that unwraps to itself.
type itself struct{ limiter.Store }

func (i itself) Unwrap() limiter.Store { return i }

func TestAnOutageIsSeenThroughLeasesAndWrappers(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	slow := redisstore.Options{Failover: failover.Options{Failures: 1, OnDegraded: func(failover.Event) {}}}
	exact := redisstore.New(client, slow)
	leases, err := leasestore.New(client, leasestore.Options{Redis: slow})
	require.NoError(t, err)
	t.Cleanup(func() { _ = leases.Close() })
	q, err := limiter.NewQuota("ip", "", limiter.PerHour(100))
	require.NoError(t, err)
	require.NoError(t, leases.Decide(t.Context(), []limiter.Charge{{Quota: q, Key: "key", Cost: 1}}))
	require.NoError(t, exact.Decide(t.Context(), []limiter.Charge{{Quota: q, Key: "key", Cost: 1}}))
	for _, store := range []limiter.Store{leases, around{leases}, around{around{exact}}} {
		assert.Equal(t, 1.0, read(t, store)["rate_limit_degraded"], "%T", store)
	}
}
