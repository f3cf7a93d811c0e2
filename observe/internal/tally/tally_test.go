package tally_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
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

func TestThousandsOfQuotasAreToldApart(t *testing.T) {
	const rules, rounds = 2000, 5 // many more than have a place by address
	counted := tally.New(nil, rules)
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
	list := counted.Rules()
	require.Len(t, list, rules)
	for _, r := range list {
		assert.Equal(t, uint64(4*rounds), r.Count[tally.Allowed], r.Rule)
	}
	assert.Equal(t, uint64(4*rounds*rules), counted.Outcome(middleware.OutcomeAllowed))
	assert.Zero(t, counted.Dropped())
}

func TestARequestIsUndecidedForAllOfItsRules(t *testing.T) {
	counted := tally.New(nil, 10)
	o := observation(t, "ip", "")
	o.Outcome, o.Err = middleware.OutcomeUndecided, errors.New("broken")
	counted.Observe(o)
	o.Outcome, o.Rules[0].Rule.Shadow = middleware.OutcomeAllowed, true // as where all rules are in shadow
	counted.Observe(o)
	o.Err, o.Outcome = nil, middleware.OutcomeUndecided // its turn would come too late
	counted.Observe(o)
	assert.Equal(t, uint64(3), counted.Rules()[0].Count[tally.Undecided])
	assert.Equal(t, uint64(2), counted.Errors())
}

func TestStoresAreKnownByKind(t *testing.T) {
	memory, err := limiter.NewMemory(limiter.MemoryOptions{})
	require.NoError(t, err)
	client := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = client.Close() })
	leases, err := leasestore.New(client, leasestore.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = leases.Close() })
	for _, c := range []struct {
		name                    string
		store                   limiter.Store
		kind                    string
		memory, failover, redis bool
	}{
		{"a limiter's own", nil, "memory", false, false, false},
		{"in memory", memory, "memory", true, false, false},
		{"in Redis", redisstore.New(client, redisstore.Options{}), "redis", false, true, true},
		{"one with failover", failover.Must(failover.New(memory, failover.Options{})), "memory", true, true, false},
		{"one without failover", struct{ limiter.Store }{memory}, "other", false, false, false},
		{"around memory", around{memory}, "memory", true, false, false},
		{"around Redis, twice", around{around{redisstore.New(client, redisstore.Options{})}}, "redis", false, true, true},
		{"one that embeds Redis's", struct{ *redisstore.Store }{redisstore.New(client, redisstore.Options{})}, "redis", false, true, true},
		{"leases of Redis", leases, "redis", false, true, true},
		{"around nothing", around{}, "other", false, false, false},
		{"around itself", itself{}, "other", false, false, false},
	} {
		s := tally.New(c.store, 1).Store
		assert.Equal(t, c.kind, s.Kind, c.name)
		assert.Equal(t, c.memory, s.Memory != nil, c.name)
		assert.Equal(t, c.failover, s.Failover != nil, c.name)
		assert.Equal(t, c.redis, s.Batches != nil, c.name)
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
	require.NoError(t, leases.Decide(t.Context(), []limiter.Charge{{Quota: q, Key: "key", Cost: 1}}, make([]limiter.Decision, 1)))
	require.NoError(t, exact.Decide(t.Context(), []limiter.Charge{{Quota: q, Key: "key", Cost: 1}}, make([]limiter.Decision, 1)))
	for _, store := range []limiter.Store{leases, around{leases}, around{around{exact}}} {
		assert.True(t, tally.New(store, 1).Store.Failover().Degraded, "%T", store)
	}
}
