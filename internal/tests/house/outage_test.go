package house_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/redis/leasestore"
	"github.com/weirgo/weir/redis/redisstore"
)

// What the comment of the redis example tells readers to try.
func TestTheRedisExampleSharesALimitAndOutlivesRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	program := filepath.Join(t.TempDir(), "redis")
	run(t, "go", "build", "-o", program, "./_examples/redis")
	instances := startAll(t, program, 2, "-second", "127.0.0.1:0", "-redis", server.Addr)

	status := func(instance int, path string) int {
		return ask(t, instances[instance], "GET "+path, nil).StatusCode
	}
	passed, alone := 0, 0
	for i := range 12 {
		switch response := ask(t, instances[i%2], "GET /", nil); {
		case response.Header.Get("X-RateLimit-Limit") != "10":
			alone++ // the instance decided, as this machine was too busy for Redis to be in time
		case response.StatusCode == http.StatusOK:
			passed++
		}
	}
	if alone == 0 {
		assert.Equal(t, 10, passed, "two instances admit one limit together")
	}
	assert.LessOrEqual(t, passed, 10)

	server.Kill()
	// A refusal of a moment ago is remembered; other rules follow their policy at once.
	assert.Equal(t, http.StatusServiceUnavailable, status(0, "/pay"), "Closed answers 503")
	assert.Equal(t, http.StatusOK, status(0, "/news"), "Open lets pass")
	passed = 0
	require.Eventually(t, func() bool { // the memory of a refusal lasts a second
		if status(1, "/") == http.StatusOK {
			passed++
		}
		return passed == 5
	}, 20*time.Second, 10*time.Millisecond, "Local counts in this process")
	assert.Equal(t, http.StatusTooManyRequests, status(1, "/"), "an instance has half of the limit to itself")

	server.Restart()
	require.Eventually(t, func() bool { return status(0, "/pay") == http.StatusOK },
		20*time.Second, 50*time.Millisecond, "a probe finds that Redis is back")
}

func TestAClientThatHangsUpIsBannedWithCountersInRedis(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr})
	t.Cleanup(func() { _ = client.Close() })
	limits := middleware.Must(middleware.New(middleware.Config{
		Store: redisstore.New(client, redisstore.Options{}),
		Bans:  middleware.Bans{List: must(bans.New(bans.Options{}))},
		Rules: []middleware.Rule{{
			Name: "login", Key: keyfunc.IP(), Limit: limiter.PerHour(2).WithBurst(2),
			Escalate: bans.Escalation{After: 3, Within: time.Hour, Ban: time.Hour},
		}},
	}))
	handler := limits.Handler(http.NotFoundHandler())
	status := func(ctx context.Context) int {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
		return w.Code
	}
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	for range 100 {
		status(gone)
	}
	assert.Equal(t, http.StatusForbidden, status(t.Context()))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// quotaFields are the response's fields about quotas, without the numbers that change with time.
func quotaFields(h http.Header) (fields []string) {
	for name, values := range h {
		lower := strings.ToLower(name)
		if !strings.HasPrefix(lower, "x-ratelimit-") && !strings.HasPrefix(lower, "ratelimit") {
			continue
		}
		for _, value := range values {
			switch lower {
			case "x-ratelimit-reset":
				continue
			case "ratelimit": // less t
				members := strings.Split(value, ", ")
				for i := range members {
					members[i], _, _ = strings.Cut(members[i], ";t=")
				}
				value = strings.Join(members, ", ")
			}
			fields = append(fields, lower+": "+value)
		}
	}
	slices.Sort(fields)
	return fields
}

// Responses say nothing of a rule that counts nothing, and of a process's share only the share.
func TestWithADeadRedisNoResponseTellsNumbersThatNobodyCounted(t *testing.T) {
	t.Parallel()
	open := middleware.Rule{Name: "open", Key: keyfunc.IP(), Limit: limiter.PerMinute(8), OnOutage: limiter.FailOpen, SoftAt: 1}
	local := middleware.Rule{Name: "local", Key: keyfunc.IP(), Limit: limiter.PerMinute(8)}
	rare := middleware.Rule{Name: "rare", Key: keyfunc.IP(), Limit: limiter.PerMinute(2)}
	dialects := []middleware.Dialect{middleware.HeadersBoth, middleware.HeadersLegacy, middleware.HeadersDraft11, middleware.HeadersNone}
	for _, test := range []struct {
		name          string
		rules         []middleware.Rule
		legacy, draft []string // of the first response
		admits        int      // of ten
	}{
		{"open alone", []middleware.Rule{open}, nil, nil, 10},
		{"local alone", []middleware.Rule{local},
			[]string{"x-ratelimit-limit: 2", "x-ratelimit-remaining: 1"},
			[]string{`ratelimit-policy: "local";q=2;w=60`, `ratelimit: "local";r=1`}, 2},
		{"both", []middleware.Rule{open, local},
			[]string{"x-ratelimit-limit: 2", "x-ratelimit-remaining: 1"},
			[]string{`ratelimit-policy: "local";q=2;w=60`, `ratelimit: "local";r=1`}, 2},
		{"fewer than there are replicas", []middleware.Rule{local, open, rare},
			[]string{"x-ratelimit-limit: 1", "x-ratelimit-remaining: 0"},
			[]string{`ratelimit-policy: "local";q=2;w=60, "rare";q=1;w=120`, `ratelimit: "local";r=1, "rare";r=0`}, 1},
	} {
		for _, headers := range dialects {
			for _, leased := range []bool{false, true} {
				name := fmt.Sprintf("%s, dialect %d, leased %t", test.name, headers, leased)
				client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
				t.Cleanup(func() { _ = client.Close() })
				o := redisstore.Options{Failover: failover.Options{Replicas: 4, Failures: 1, OnDegraded: func(failover.Event) {}}}
				var store limiter.Store = redisstore.New(client, o)
				if leased {
					s, err := leasestore.New(client, leasestore.Options{Redis: o})
					require.NoError(t, err)
					t.Cleanup(func() { _ = s.Close() })
					store = s
				}
				limits, err := middleware.New(middleware.Config{Store: store, Results: true, Headers: middleware.Headers{Send: headers}, Rules: test.rules})
				require.NoError(t, err)
				var result middleware.Result
				server := httptest.NewServer(limits.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					result, _ = middleware.FromContext(r.Context())
				})))
				t.Cleanup(server.Close)

				var want []string
				if headers == middleware.HeadersBoth || headers == middleware.HeadersLegacy {
					want = append(want, test.legacy...)
				}
				if headers == middleware.HeadersBoth || headers == middleware.HeadersDraft11 {
					want = append(want, test.draft...)
				}
				slices.Sort(want)
				admitted := 0
				for i := range 10 {
					response, err := server.Client().Get(server.URL)
					require.NoError(t, err, name)
					_ = response.Body.Close()
					if response.StatusCode == http.StatusOK {
						admitted++
					}
					if i > 0 {
						continue
					}
					assert.Equal(t, want, quotaFields(response.Header), name)
					assert.True(t, result.Allowed && result.Degraded, name)
					assert.False(t, result.NearLimit, name)
					assert.Equal(t, len(test.draft) > 0, result.Counted(), name)
					for _, r := range result.Rules {
						assert.Equal(t, r.Rule.Name != "open", r.Counted(), "%s, %s", name, r.Rule.Name)
					}
				}
				assert.Equal(t, test.admits, admitted, name)
			}
		}
	}
}

func TestAnOuterLimitersNumbersStandWhereTheInnerOneCountsNothing(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	both := middleware.Headers{Send: middleware.HeadersBoth}
	inner, err := middleware.New(middleware.Config{
		Headers: both,
		Store:   redisstore.New(client, redisstore.Options{Failover: failover.Options{Failures: 1, OnDegraded: func(failover.Event) {}}}),
		Rules:   []middleware.Rule{{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerMinute(3), OnOutage: limiter.FailOpen}},
	})
	require.NoError(t, err)
	outer, err := middleware.New(middleware.Config{Headers: both, Results: true, Rules: []middleware.Rule{{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerMinute(100)}}})
	require.NoError(t, err)
	var result middleware.Result
	server := httptest.NewServer(outer.Handler(inner.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		result, _ = middleware.FromContext(r.Context())
	}))))
	t.Cleanup(server.Close)
	response, err := server.Client().Get(server.URL)
	require.NoError(t, err)
	_ = response.Body.Close()
	assert.Equal(t, []string{`ratelimit-policy: "ip";q=100;w=60`, `ratelimit: "ip";r=99`, "x-ratelimit-limit: 100", "x-ratelimit-remaining: 99"},
		quotaFields(response.Header))
	assert.Equal(t, int64(99), result.Remaining)
}
