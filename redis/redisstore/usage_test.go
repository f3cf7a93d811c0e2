package redisstore

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
)

type usageOfRules struct {
	Rules []struct {
		Rule, Unknown string
		Limits        []struct{ Used int64 }
		Concurrency   *struct {
			InProgress int64 `json:"in_progress"`
		}
	}
}

// What processes have used together is told by each, in one round trip, and support finds it by
// the digest that logs have.
func TestUsageIsThatOfAllProcesses(t *testing.T) {
	single := redistest.Start(t)
	nodes := redistest.Cluster(t)
	cluster := redistest.CloseAfter(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[0].Addr, nodes[1].Addr, nodes[2].Addr}}))
	secret := []byte("a secret of 16 bytes")
	for name, client := range map[string]redis.UniversalClient{"single": single.Connect(t), "cluster": cluster} {
		process := func() (*middleware.RateLimit, *Store) {
			store := New(client, Options{Secret: secret, Failover: failover.Options{Deadline: redistest.Patience}})
			log := func(n int64) limiter.Limit { return limiter.PerHour(n).With(limiter.SlidingLog) }
			return middleware.Must(middleware.New(middleware.Config{Store: store, Rules: []middleware.Rule{
				{Name: "all", Limit: log(1000)},
				{Name: "ip", Key: keyfunc.IP(), Limit: log(100)},
				{Name: "user", Key: keyfunc.User, Limit: limiter.All(log(50), limiter.Limit{Events: 90, Per: 2 * 3600e9, Algorithm: limiter.SlidingLog}, limiter.AtOnce(9))},
			}})), store
		}
		request := func(target string) *http.Request {
			r := httptest.NewRequest("GET", target, nil)
			return r.WithContext(keyfunc.WithUser(r.Context(), "ann"))
		}
		var finish []func(int)
		for range 3 {
			l, store := process()
			defer store.Close()
			for range 2 {
				end, _, passed := l.Begin(httptest.NewRecorder(), request("/"), nil)
				require.True(t, passed)
				finish = append(finish, end)
			}
		}
		l, store := process()
		defer store.Close()
		ask := func(h http.Handler, target string) (u usageOfRules) {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request(target))
			require.Equal(t, 200, w.Code, w.Body)
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &u))
			return u
		}
		u := ask(l.Usage(), "/usage")
		require.Len(t, u.Rules, 3, name)
		for _, r := range u.Rules {
			assert.Empty(t, r.Unknown, name)
			for _, limit := range r.Limits {
				assert.EqualValues(t, 6, limit.Used, "%s: %s", name, r.Rule)
			}
		}
		assert.EqualValues(t, 6, u.Rules[2].Concurrency.InProgress, name)
		for _, end := range finish {
			end(200)
		}
	}
}
