package redisstore_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/redis/redisstore"
)

// statuses are the numbers of answers to requests of one client, by status.
func statuses(t *testing.T, l *middleware.RateLimit, requests int) map[int]int {
	t.Helper()
	handler := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	counts := map[int]int{}
	for range requests {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		counts[w.Code]++
	}
	return counts
}

// A value that another program wrote under one rule's counter is a matter of that rule.
func TestAForeignValueConcernsItsOwnRuleAlone(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	for _, isCluster := range []bool{false, true} {
		for _, tt := range []struct {
			name    string
			broken  limiter.Outage
			command []string // which "KEY" is replaced in
			want    map[int]int
		}{
			{"text, local", limiter.FailLocal, []string{"SET", "KEY", "something else"}, map[int]int{200: 3, 429: 7}},
			{"hash, open", limiter.FailOpen, []string{"HSET", "KEY", "a", "b"}, map[int]int{200: 3, 429: 7}},
			{"list, closed", limiter.FailClosed, []string{"RPUSH", "KEY", "a"}, map[int]int{503: 10}},
		} {
			name := tt.name + ", one server"
			if isCluster {
				name = tt.name + ", Cluster"
			}
			t.Run(name, func(t *testing.T) {
				servers, client := []*redistest.Server(nil), redis.UniversalClient(nil)
				if isCluster {
					servers = redistest.Cluster(t)
					client = redistest.CloseAfter(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(servers)}))
				} else {
					servers = []*redistest.Server{redistest.Start(t)}
					client = redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: servers[0].Addr}))
				}
				log := &lines{}
				store := redisstore.New(client, redisstore.Options{ForgetRefusals: true, Failover: failover.Options{
					Deadline: redistest.Patience, Logger: slog.New(slog.NewTextHandler(log, nil)), OnDegraded: func(e failover.Event) { t.Error("it is no outage:", e) },
				}})
				rule := func(name string, key keyfunc.Func, events int64, o limiter.Outage) middleware.Rule {
					return middleware.Rule{Name: name, Key: key, Limit: limiter.PerDay(events).With(limiter.TokenBucket), OnOutage: o}
				}
				limits := middleware.Must(middleware.New(middleware.Config{
					Store: store, Logger: quiet, Rules: []middleware.Rule{
						rule("broken", keyfunc.IP(), 100, tt.broken),
						rule("same-key", keyfunc.IP(), 3, limiter.FailOpen),
						rule("other-key", keyfunc.Global, 50, limiter.FailOpen),
					},
				}))
				statuses(t, limits, 1)
				for _, server := range servers {
					for _, name := range strings.Fields(server.MustDo("KEYS", "*")) {
						server.MustDo("DEL", name)
						if strings.HasSuffix(name, ":broken") {
							server.MustDo(strings.Split(strings.ReplaceAll(strings.Join(tt.command, "|"), "KEY", name), "|")...)
						}
					}
				}
				assert.Equal(t, tt.want, statuses(t, limits, 10))
				require.Zero(t, store.Stats().Failures)
				assert.Equal(t, 1, log.count("code=weir-foreign-value"))
			})
		}
	}
}
