package tally_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/internal/tally"
	"github.com/weirgo/weir/redis/leasestore"
	"github.com/weirgo/weir/redis/redisstore"
)

func observation(t testing.TB, rule, tier string) *middleware.Observation {
	return &middleware.Observation{
		Request: httptest.NewRequest(http.MethodGet, "/", nil), Outcome: middleware.OutcomeAllowed,
		Rules: []middleware.RuleResult{{Rule: &middleware.RuleInfo{Name: rule, Tier: tier}, Cost: 1, Decision: limiter.Decision{Allowed: true}}},
	}
}

func newTally(t testing.TB, store limiter.Store, most int) *tally.Tally[tally.Watcher] {
	counted, err := tally.New[tally.Watcher]("test", store, nil, most)
	require.NoError(t, err)
	return counted
}

// read are the values of metrics, by name and labels.
func read(t *tally.Tally[tally.Watcher]) map[string]float64 {
	values := map[string]float64{}
	t.Read(func(m *tally.Metric, value float64, labels ...string) {
		values[strings.Join(append([]string{m.Prometheus}, labels...), " ")] = value
	})
	return values
}

func TestThousandsOfQuotasAreToldApart(t *testing.T) {
	const rules, rounds = 2000, 5 // many more than have a place by address
	counted := newTally(t, nil, rules)
	var observations []*middleware.Observation
	for i := range rules {
		observations = append(observations, observation(t, fmt.Sprint("rule", i), ""))
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range rounds {
				for _, o := range observations {
					own := *o
					counted.Observe(&own)
				}
			}
		})
	}
	all.Wait()
	values := read(counted)
	for i := range rules {
		require.EqualValues(t, 4*rounds, values[fmt.Sprintf("rate_limit_requests_total rule%d allowed ", i)])
	}
	assert.EqualValues(t, 4*rounds*rules, values["rate_limit_outcomes_total allowed"])
	assert.Zero(t, values["rate_limit_rules_over_cap_total"])
}

func TestARequestIsUndecidedForAllOfItsRules(t *testing.T) {
	counted := newTally(t, nil, 10)
	o := observation(t, "ip", "")
	o.Outcome, o.Err = middleware.OutcomeUndecided, errors.New("broken")
	counted.Observe(o)
	o.Outcome, o.Rules[0].Rule.Mode = middleware.OutcomeAllowed, middleware.Shadow // as where all rules are in shadow
	counted.Observe(o)
	o.Err, o.Outcome = nil, middleware.OutcomeUndecided // its turn would come too late
	counted.Observe(o)
	assert.Equal(t, 3.0, read(counted)["rate_limit_requests_total ip undecided "])
	assert.Equal(t, 2.0, read(counted)["rate_limit_store_errors_total memory"])
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
		s := tally.NewStore(c.store)
		assert.Equal(t, c.kind, s.Kind, c.name)
		assert.Equal(t, c.memory, s.Memory != nil, c.name)
		assert.Equal(t, c.failover, s.Failover != nil, c.name)
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
		assert.True(t, tally.NewStore(store).Failover().Degraded, "%T", store)
	}
}
