package main

import (
	"encoding/json"
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
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/redis/redisbans"
	"github.com/weirgo/weir/redis/redisstore"
)

const counted = `version: 1
global: {limit: 100/h sliding-log, key: global}
endpoints:
  "POST /login": {limit: 3/h sliding-log, tiers: {premium: 9/h}}
`

// startRedis starts a Redis. It returns the flag for its address, and a client.
func startRedis(t *testing.T) (flag string, client *redis.Client) {
	t.Helper()
	server := redistest.Start(t)
	return "--redis=redis://" + server.Addr, redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr}))
}

// patientStore returns a service's store. A busy machine is no outage.
func patientStore(t *testing.T, client redis.UniversalClient, secret string) *redisstore.Store {
	t.Helper()
	store := redisstore.New(client, redisstore.Options{
		Secret: []byte(secret), ForgetRefusals: true, Failover: failover.Options{Deadline: 10 * time.Second},
	})
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// use charges a key of the rule default.
func use(t *testing.T, store limiter.Store, tier string, limit limiter.Limit, key string, cost int64) {
	t.Helper()
	q, err := limiter.NewQuota("default", tier, limit)
	require.NoError(t, err)
	require.NoError(t, store.Decide(t.Context(), []limiter.Charge{{Quota: q, Key: key, Cost: cost}}))
}

// The command reads the counters of a service in Redis.
func TestTheCommandIsAHandOnTheCountersOfAService(t *testing.T) {
	url, client := startRedis(t)
	t.Setenv("WEIR_SECRET", "0123456789abcdef")
	secret := []byte("0123456789abcdef")
	list, err := redisbans.New(t.Context(), client, redisbans.Options{Secret: secret})
	require.NoError(t, err)
	path := write(t, "limits.yaml", counted)
	o := rules.Options{}
	o.Config.Store = patientStore(t, client, string(secret))
	o.Config.Bans.List = list
	limits, err := rules.Watch(t.Context(), path, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = limits.Close() })
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", func(http.ResponseWriter, *http.Request) {})
	handler := limits.RateLimit.Handler(mux)
	login := func() int {
		r := httptest.NewRequest(http.MethodPost, "/login", nil)
		r.RemoteAddr = "203.0.113.7:1000"
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code
	}
	run := func(args ...string) string {
		t.Helper()
		return succeed(t, "", append(args, url)...)
	}

	for range 3 {
		require.Equal(t, http.StatusOK, login())
	}
	require.Equal(t, http.StatusTooManyRequests, login())

	said, table, _ := strings.Cut(run("peek", path, "--key", "203.0.113.7"), "\n")
	lines := strings.Split(table, "\n")
	assert.Equal(t, []string{"RULE", "USED", "LIMIT", "LEFT", "FREE", "IN"}, strings.Fields(lines[0]))
	assert.Equal(t, []string{`"global"`, "0", "100", "100", "0s"}, strings.Fields(lines[1]), "it has no key")
	assert.Equal(t, []string{`"POST`, `/login"`, "3", "3", "0"}, strings.Fields(lines[2])[:5])
	assert.Equal(t, []string{`"POST`, `/login",`, "tier", `"premium"`, "0", "9", "9", "0s"}, strings.Fields(lines[3]))
	assert.Contains(t, run("peek", path, "--rule=global", "--key="), `"global"  3`)

	places := write(t, "places.yaml", "version: 1\ndefault: {limit: 10/1h, concurrency: 5}\n")
	peeked := run("peek", places, "--key", "203.0.113.7")
	assert.Regexp(t, `"default" +0 +10 +10 +0s`, peeked)
	assert.Regexp(t, `"default", at once +0 +5 +5`, peeked)

	var view topView
	require.NoError(t, json.Unmarshal([]byte(run("top", "--json", "-n=1")), &view))
	top := view.Top
	require.Len(t, top, 1)
	assert.Equal(t, view.Keys, view.Looked)
	assert.Equal(t, "POST /login", top[0].Rule)
	assert.Equal(t, int64(3), top[0].Used)
	assert.Equal(t, `key "203.0.113.7", in Redis `+top[0].Digest, said, "so that it can be found in top")
	assert.Contains(t, run("top"), `100%`)
	assert.NotContains(t, run("top", "--rule", "global"), "login")

	digest := top[0].Digest
	assert.Equal(t, keyfunc.NewDigester(secret).Digest("203.0.113.7").String(), digest)
	said, table, _ = strings.Cut(run("peek", path, "--key", digest), "\n")
	assert.Equal(t, "the key with the digest "+digest, said)
	assert.Equal(t, []string{`"POST`, `/login"`, "3", "3", "0"}, strings.Fields(strings.Split(table, "\n")[2])[:5], "a digest will do for the key")
	assert.Contains(t, run("reset", path, "--key="+digest, "--rule=POST /login"), `"POST /login" begins anew for `+digest)
	for range 3 {
		assert.Equal(t, http.StatusOK, login())
	}
	assert.Equal(t, http.StatusTooManyRequests, login())
	assert.Contains(t, run("peek", path, "--key", "preflight:203.0.113.7"), `key "preflight:203.0.113.7"`, "which preflights are counted under")

	assert.Contains(t, run("reset", path, "--key=203.0.113.7", "--rule=POST /login"), "begins anew")
	assert.Equal(t, http.StatusOK, login())

	assert.Equal(t, digest+" is banned for 1h0m0s\n", run("ban", digest, "--for", "1h"))
	await(t, func() bool { return login() == http.StatusForbidden })
	run("unban", "203.0.113.7")
	run("reset", path, "--key=203.0.113.7", "--rule=POST /login")
	await(t, func() bool { return login() == http.StatusOK })

	run("ban", "203.0.113.7", "--for", "1h")
	await(t, func() bool { return login() == http.StatusForbidden })
	assert.Contains(t, run("bans"), "hand")
	var all []struct{ Digest string }
	require.NoError(t, json.Unmarshal([]byte(run("bans", "--json")), &all))
	require.Len(t, all, 1)
	assert.Contains(t, run("unban", all[0].Digest), "the ban is lifted")
	await(t, func() bool { return login() == http.StatusOK })
	assert.NotContains(t, run("bans"), "hand")
	for _, key := range []string{all[0].Digest, "203.0.113.7", "user:nobody"} {
		exit, out, err := weir(t, "", "unban", key, url)
		assert.Equal(t, exitBad, exit, key)
		assert.Empty(t, out)
		assert.Contains(t, err, "weir unban: it was not banned")
	}
	assert.Equal(t, "203.0.113.0/24 is banned for 1h0m0s\n", run("ban", "203.0.113.0/24", "--counted"))
	run("unban", "203.0.113.0/24")
	assert.Contains(t, run("ban", "2001:db8::7", "--for=1d"), "2001:db8::/64 is banned for 24h0m0s", "that is what an IPv6 client is counted under")
	assert.Contains(t, run("unban", "2001:db8::8"), "2001:db8::/64: the ban is lifted")
	assert.Equal(t, "[]\n", run("bans", "--json"))

	assert.Contains(t, run("ban", "tenant:acme", "--keys", "tenant", "--for=permanent"), "tenant:acme is banned permanently")
	assert.Contains(t, run("ban", "tenant:other", "--keys", "tenant"), "tenant:other is banned for 1h0m0s", "a ban that nobody remembers ends by itself")
	run("unban", "tenant:other", "--keys", "tenant")
	assert.Contains(t, run("bans"), "permanent")
	var listed []map[string]any
	require.NoError(t, json.Unmarshal([]byte(run("bans", "--json")), &listed))
	require.Len(t, listed, 1)
	assert.Equal(t, true, listed[0]["permanent"])
	assert.NotContains(t, listed[0], "until")
	assert.Contains(t, run("unban", `"tenant:acme"`), "the ban is lifted")
	assert.Contains(t, run("reset", path, "--key=203.0.113.99", "--rule=POST /login"), "had used nothing")
}

// await polls until the condition holds: bans take time to spread.
func await(t *testing.T, is func() bool) {
	t.Helper()
	require.Eventually(t, is, 30*time.Second, 10*time.Millisecond)
}

func TestWhatRedisCannotBeAskedIsTold(t *testing.T) {
	file := write(t, "limits.yaml", counted)
	for _, test := range []struct {
		args []string
		exit int
		want string
	}{
		{[]string{"top", "--redis", "redis://127.0.0.1:1"}, exitBad, "refused"},
		{[]string{"peek", file, "--key=user:x", "--redis", "redis://127.0.0.1:1"}, exitBad, "refused"},
		{[]string{"bans", "--redis", "redis://127.0.0.1:1"}, exitBad, "refused"},
		{[]string{"top", "--redis", "http://x"}, exitUsage, "--redis"},
		{[]string{"top", "--redis", "127.0.0.1:6379"}, exitUsage, "--redis is not a URL: want redis://host:port"},
		{[]string{"top", "--n", "0"}, exitUsage, "from 1 to 10000"},
		{[]string{"top", "--rate", "0"}, exitUsage, "from 1 to 1000000"},
		{[]string{"top", "--names", "none"}, exitBad, "none"},
		{[]string{"peek", file, "--key=user:x", "--rule", "none"}, exitUsage, `no rule named "none"`},
		{[]string{"peek", write(t, "deny.yaml", "version: 1\ndefault: 1/s\nendpoints: {/a: {mode: deny}}\n"), "--key=user:x", "--rule", "/a"}, exitUsage, `no rule named "/a" that counts requests`},
		{[]string{"peek", file, "--key=user:x", "--prefix", "a b"}, exitUsage, "a b"},
		{[]string{"reset", file}, exitUsage, "name the --key"},
		{[]string{"reset", "none.yaml", "--key=user:x"}, exitBad, "none.yaml"},
		{[]string{"ban", "user:x", "--for", "soon"}, exitUsage, "--for"},
		{[]string{"ban", "user:x", "--for="}, exitUsage, "--for"},
		{[]string{"ban", "user:x", "--reason", "a\nb"}, exitUsage, "Reason"},
		{[]string{"ban", "foo"}, exitUsage, "no request can have this key: want an address"},
		{[]string{"ban", "tenant:acme"}, exitUsage, "or of a kind that --keys names"},
		{[]string{"unban", "foo"}, exitUsage, "no request can have this key"},
		{[]string{"peek", file, "--key", "usr:42"}, exitUsage, "no request can have this key"},
		{[]string{"reset", file, "--key", "203.0.113"}, exitUsage, "no request can have this key"},
		{[]string{"ban", "198.51.100.7/24"}, exitUsage, "ban.cidrs"},
		{[]string{"ban", "10.0.0.0/8"}, exitUsage, "to ban every address in it, list it in ban.cidrs"},
		{[]string{"peek", file, "--key", "198.51.100.7/24"}, exitUsage, "ban.cidrs"},
		{[]string{"bans", "--secret-file", "none"}, exitBad, "none"},
	} {
		exit, _, err := weir(t, "", test.args...)
		assert.Equal(t, test.exit, exit, test.args)
		assert.Contains(t, err, test.want, test.args)
	}
}
