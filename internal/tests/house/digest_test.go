package house_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
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
	"github.com/weirgo/weir/observe/dashboard"
	"github.com/weirgo/weir/observe/offenders"
	"github.com/weirgo/weir/observe/sloglimit"
	"github.com/weirgo/weir/redis/redisbans"
	"github.com/weirgo/weir/redis/redisstore"
)

// What an operator reads in one place is found in all others.
func TestAClientHasOneDigestEverywhere(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	secret := []byte("0123456789abcdef")
	const address = "203.0.113.7"

	store := redisstore.New(client, redisstore.Options{Secret: secret, Failover: failover.Options{Deadline: 10 * time.Second}})
	list, err := redisbans.New(t.Context(), client, redisbans.Options{Secret: secret})
	require.NoError(t, err)
	sketch := offenders.Must(offenders.New(offenders.Options{Secret: secret}))
	var logged bytes.Buffer
	logger := sloglimit.Must(sloglimit.New(sloglimit.Options{Secret: secret, Logger: slog.New(slog.NewJSONHandler(&logged, nil))}))
	page, err := dashboard.New(dashboard.Options{
		Secret: secret, Bans: list, Store: store, Authorize: func(*http.Request) bool { return true },
	})
	require.NoError(t, err)
	limits, err := middleware.New(middleware.Config{
		Store: store, Bans: middleware.Bans{List: list, Keys: []keyfunc.Func{keyfunc.IP()}}, Observer: middleware.Observers(sketch, logger, page),
		Rules: []middleware.Rule{{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerHour(1).With(limiter.SlidingLog)}},
	})
	require.NoError(t, err)
	page.Add(limits)
	for range 2 {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = address + ":1000"
		limits.Handler(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
	}
	logger.Flush()
	require.NoError(t, list.Ban(t.Context(), address, time.Hour))

	found := map[string]string{}
	var line struct{ Key string }
	require.NoError(t, json.Unmarshal([]byte(strings.SplitN(logged.String(), "\n", 2)[0]), &line))
	found["the log"] = line.Key
	found["offenders"] = sketch.Top("ip", 1)[0].Digest
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Accept", "application/json")
	page.ServeHTTP(w, r)
	var figures struct {
		State struct {
			Top  []struct{ Most []struct{ Key string } }
			Bans struct{ List []struct{ Key string } }
		}
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &figures))
	found["the page"] = figures.State.Top[0].Most[0].Key
	found["the page's bans"] = figures.State.Bans.List[0].Key
	names, err := client.Keys(t.Context(), redisstore.CounterNames("")).Result()
	require.NoError(t, err)
	top, err := redisstore.Usages(t.Context(), client, "", names)
	require.NoError(t, err)
	found["weir top"] = top[0].Digest
	names, err = client.Keys(t.Context(), "weir:*:ip").Result()
	require.NoError(t, err)
	_, name, _ := strings.Cut(names[0], "{")
	found["Redis"], _, _ = strings.Cut(name, "}")
	all, err := list.All(t.Context())
	require.NoError(t, err)
	found["weir bans"] = all[0].Digest

	want := keyfunc.NewDigester(secret).Digest(address).String()
	for where, digest := range found {
		assert.Equal(t, want, digest, where)
	}

	// And it stands for the key where an operator acts.
	results, err := limits.Peek(t.Context(), "ip", keyfunc.NewDigester(nil).Digest("other").Key())
	require.NoError(t, err)
	assert.Equal(t, int64(1), results[0].Remaining)
	digest, ok := keyfunc.ParseDigest(want)
	require.True(t, ok)
	results, err = limits.Peek(t.Context(), "ip", digest.Key())
	require.NoError(t, err)
	assert.Zero(t, results[0].Remaining)
	lifted, err := list.Unban(t.Context(), want)
	require.NoError(t, err)
	assert.True(t, lifted)
}
