package weir_test

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
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
