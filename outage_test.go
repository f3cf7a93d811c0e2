package weir_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/bans"
	"github.com/weirgo/weir/limiter/redisstore"
	"github.com/weirgo/weir/middleware"
)

// What the redis example's comment tells its reader to try.
func TestTheRedisExampleSharesALimitAndOutlivesRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	program := filepath.Join(t.TempDir(), "redis")
	run(t, "go", "build", "-o", program, "./_examples/redis")
	instances := startAll(t, program, 2, "-second", "127.0.0.1:0", "-redis", server.Addr)

	status := func(instance int, path string) int {
		return ask(t, instances[instance], "GET "+path, nil).StatusCode
	}
	passed := 0
	for i := range 12 {
		if status(i%2, "/") == http.StatusOK {
			passed++
		}
	}
	assert.Equal(t, 10, passed, "two instances admit one limit together")

	server.Kill()
	// What was refused a moment ago is remembered to be; other rules follow their policy
	// at once.
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
		Store: redisstore.New(client),
		Bans:  must(bans.NewMemory(bans.MemoryConfig{})),
		Rules: []middleware.Rule{{
			Name: "login", Key: keyfunc.IP(), Limit: limiter.PerHour(2).WithBurst(2),
			Escalate: middleware.Escalation{After: 3, Within: time.Hour, Ban: time.Hour},
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
