package redisrules_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/leak"
	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/redis/redisrules"
)

const inRedis = "app:limits"

// A watched is what a process of a fleet is limited by.
type watched struct {
	*rules.Watcher
	t testing.TB
}

// limit is what an answer says of the limit in force.
func (w *watched) limit() string {
	w.t.Helper()
	answer := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", asked.Add(1)%200)
	w.RateLimit.Handler(okay).ServeHTTP(answer, r)
	return answer.Header().Get("X-Ratelimit-Limit")
}

var asked atomic.Uint32

// becomes waits until the limit is in force.
func (w *watched) becomes(limit string) {
	w.t.Helper()
	redistest.Await(w.t, "a limit of "+limit, func() bool { return w.limit() == limit })
}

var okay = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// limitOf is the text of rules with one limit.
func limitOf(limit string) string {
	return "version: 1\ndefault: {limit: " + limit + "}\n"
}

// problemsOf is what is wrong with rules, a line each.
func problemsOf(t testing.TB, err error) []string {
	t.Helper()
	var wrong *rules.Error
	require.ErrorAs(t, err, &wrong)
	lines := make([]string, len(wrong.Problems))
	for i, p := range wrong.Problems {
		lines[i] = p.String()
	}
	return lines
}

// fromRedis follows the rules in a server, as one process of a fleet does.
func fromRedis(t *testing.T, server *redistest.Server, o rules.Options) *watched {
	t.Helper()
	if o.Poll == 0 {
		o.Poll = time.Hour
	}
	w, err := redisrules.Watch(t.Context(), clientOf(t, server), inRedis, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return &watched{w, t}
}

func clientOf(t testing.TB, server *redistest.Server) *redis.Client {
	return redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr}))
}

func publish(t testing.TB, server *redistest.Server, text string) {
	t.Helper()
	require.NoError(t, redisrules.Publish(t.Context(), clientOf(t, server), inRedis, []byte(text), rules.Options{}))
}

func TestAFleetChangesTogether(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	publish(t, server, limitOf("5/h"))
	fleet := []*watched{fromRedis(t, server, rules.Options{}), fromRedis(t, server, rules.Options{})}
	for _, w := range fleet {
		require.Equal(t, "5", w.limit())
	}
	redistest.Await(t, "both to listen", func() bool { return server.MustDo("PUBSUB", "NUMSUB", inRedis+":changed") == inRedis+":changed\n2" })
	publish(t, server, limitOf("6/h"))
	require.Equal(t, "-1", server.MustDo("TTL", inRedis))
	for _, w := range fleet {
		w.becomes("6") // by the message, as Redis is asked once an hour otherwise
	}
}

func TestWhatIsWrittenByHandIsFoundByPolling(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	publish(t, server, limitOf("5/h"))
	w := fromRedis(t, server, rules.Options{Poll: 100 * time.Millisecond})
	server.MustDo("SET", inRedis, limitOf("6/h"))
	w.becomes("6")
}

func TestRulesThatAreWrongAreNotPublished(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := clientOf(t, server)
	err := redisrules.Publish(t.Context(), client, inRedis, []byte("version: 2\ndefault: 3/s\n"), rules.Options{})
	require.Equal(t, []string{"1:10: version: is 2: it must be 1"}, problemsOf(t, err))
	require.Error(t, redisrules.Publish(t.Context(), client, inRedis, []byte(limitOf("5/h")+"ban: {file: banned.txt}\n"), rules.Options{}))
	require.Equal(t, "0", server.MustDo("EXISTS", inRedis))

	var none *redis.Client
	for _, bad := range []redis.UniversalClient{nil, none} {
		require.EqualError(t, redisrules.Publish(t.Context(), bad, inRedis, []byte(limitOf("5/h")), rules.Options{}), "redisrules: it needs a client, and this one is nil")
		_, err = redisrules.Watch(t.Context(), bad, inRedis, rules.Options{})
		require.EqualError(t, err, "redisrules: it needs a client, and this one is nil")
	}
	require.EqualError(t, redisrules.Publish(t.Context(), client, "", []byte(limitOf("5/h")), rules.Options{}), "redisrules: the key in Redis is empty")
	_, err = redisrules.Watch(t.Context(), client, "", rules.Options{Poll: 1})
	require.EqualError(t, err, "rules: Options.Poll is 1ns: it must be from 100ms to 24h, or 0 for the default\nredisrules: the key in Redis is empty")
	server.Kill()
	require.ErrorContains(t, redisrules.Publish(t.Context(), client, inRedis, []byte(limitOf("5/h")), rules.Options{}), "redisrules: publish Redis key")
}

func TestWithoutRedisOrRulesInItAProcessStartsWithItsFallback(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)

	client := clientOf(t, server)
	_, err := redisrules.Watch(t.Context(), client, inRedis, rules.Options{})
	require.ErrorContains(t, err, "rules: app:limits: redisrules: read Redis key \"app:limits\": the key does not exist")
	empty := fromRedis(t, server, rules.Options{Fallback: []byte(limitOf("3/h"))})
	require.Equal(t, "3", empty.limit())
	require.ErrorContains(t, empty.Status().Err, "the key does not exist")

	server.Kill()
	_, err = redisrules.Watch(t.Context(), client, inRedis, rules.Options{})
	require.ErrorContains(t, err, "rules: app:limits: redisrules: read Redis key")
	_, err = redisrules.Watch(t.Context(), client, inRedis, rules.Options{Fallback: []byte("version: 2\n")})
	require.Equal(t, "1:10: version: is 2: it must be 1", problemsOf(t, err)[0])
	down := fromRedis(t, server, rules.Options{Fallback: []byte(limitOf("3/h"))})
	require.Equal(t, "3", down.limit())
	require.Error(t, down.Status().Err)

	server.Restart()
	publish(t, server, limitOf("4/h"))
	empty.becomes("4")
	down.becomes("4")
}

func TestFollowingRedisEndsWithItsContextOrClose(t *testing.T) {
	server := redistest.Start(t)
	publish(t, server, limitOf("5/h"))
	for name, end := range map[string]func(w *rules.Watcher, cancel func()){
		"its context": func(_ *rules.Watcher, cancel func()) { cancel() },
		"Close":       func(w *rules.Watcher, _ func()) { _ = w.Close() },
	} {
		before := leak.Now()
		client := redis.NewClient(&redis.Options{Addr: server.Addr})
		ctx, cancel := context.WithCancel(t.Context())
		w, err := redisrules.Watch(ctx, client, inRedis, rules.Options{OnReload: func(rules.Reload) {}})
		require.NoError(t, err, name)
		end(w, cancel)
		require.NoError(t, w.Close())
		require.NoError(t, client.Close())
		before.Verify(t)
		cancel()
	}
}
