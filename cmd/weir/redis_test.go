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
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/limiter/redisstore"
	"github.com/weirgo/weir/middleware/rules"
)

const counted = `version: 1
global: 100/h sliding-log
endpoints:
  "POST /login": {limit: 3/h sliding-log, tiers: {premium: 9/h}}
`

// A service counts in a Redis; the command looks into it.
func TestTheCommandIsAHandOnTheCountersOfAService(t *testing.T) {
	redisServer := redistest.Start(t)
	url := "--redis=redis://" + redisServer.Addr
	t.Setenv("WEIR_SECRET", "0123456789abcdef")
	client := redis.NewClient(&redis.Options{Addr: redisServer.Addr})
	t.Cleanup(func() { _ = client.Close() })
	secret := []byte("0123456789abcdef")
	list, err := redisstore.NewBans(t.Context(), client, redisstore.BansOptions{Secret: secret})
	require.NoError(t, err)
	path := write(t, "limits.yaml", counted)
	o := rules.Options{}
	o.Config.Store = redisstore.New(client, redisstore.Options{
		Secret: secret, ForgetRefusals: true, Failover: failover.Options{Deadline: 10 * time.Second}, // a busy machine is no outage
	})
	o.Config.Bans = list
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
		exit, out, err := weir(t, "", append(args, url)...)
		require.Equal(t, exitGood, exit, out+err)
		return out
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

	var top []redisstore.Usage
	require.NoError(t, json.Unmarshal([]byte(run("top", "--json", "--n=1")), &top))
	assert.Equal(t, "POST /login", top[0].Rule)
	assert.Equal(t, int64(3), top[0].Used)
	assert.Equal(t, `key "203.0.113.7", in Redis `+top[0].Digest, said, "so that it can be found in top")
	assert.Contains(t, run("top"), `100%`)
	assert.NotContains(t, run("top", "--rule", "global"), "login")

	assert.Contains(t, run("reset", path, "--key=203.0.113.7", "--rule=POST /login"), "begins anew")
	assert.Equal(t, http.StatusOK, login())

	run("ban", "203.0.113.7", "--for", "1h")
	await(t, func() bool { return login() == http.StatusForbidden })
	assert.Contains(t, run("bans"), "hand")
	var all []struct{ Key string }
	require.NoError(t, json.Unmarshal([]byte(run("bans", "--json")), &all))
	require.Len(t, all, 1)
	run("unban", all[0].Key)
	await(t, func() bool { return login() == http.StatusOK })
	assert.NotContains(t, run("bans"), "hand")
	assert.Contains(t, run("ban", "2001:db8::7"), "2001:db8::/64 is banned", "that is what an IPv6 client is counted under")
	assert.Contains(t, run("unban", "2001:db8::8"), "2001:db8::/64 is not")
	run("ban", "user:13")
	assert.Contains(t, run("bans"), "it is lifted")
}

// await asks until it is so: bans travel.
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
		{[]string{"peek", file, "--key=x", "--redis", "redis://127.0.0.1:1"}, exitBad, "refused"},
		{[]string{"bans", "--redis", "redis://127.0.0.1:1"}, exitBad, "refused"},
		{[]string{"top", "--redis", "http://x"}, exitUsage, "--redis"},
		{[]string{"top", "--n", "0"}, exitBad, "Top of 0"},
		{[]string{"top", "x"}, exitUsage, "flags only"},
		{[]string{"peek", "--key=x"}, exitUsage, "name the file"},
		{[]string{"peek", file, "--key=x", "--rule", "none"}, exitUsage, `no rule named "none"`},
		{[]string{"peek", file, "--key=x", "--prefix", "a b"}, exitUsage, "a b"},
		{[]string{"reset", file}, exitUsage, "name the --key"},
		{[]string{"reset", file, "--key", "AAAAAAAAAAAAAAAAAAAAAA"}, exitUsage, "this is a digest"},
		{[]string{"ban", "AAAAAAAAAAAAAAAAAAAAAA"}, exitUsage, "this is a digest"},
		{[]string{"reset", "none.yaml", "--key=x"}, exitBad, "none.yaml"},
		{[]string{"ban"}, exitUsage, "name the key"},
		{[]string{"ban", "x", "--for", "soon"}, exitUsage, "--for"},
		{[]string{"ban", "198.51.100.0/24"}, exitUsage, "ban.cidrs"},
		{[]string{"peek", file, "--key", "198.51.100.0/24"}, exitUsage, "ban.cidrs"},
		{[]string{"unban", "a", "b"}, exitUsage, "name the key"},
		{[]string{"bans", "--secret-file", "none"}, exitBad, "none"},
	} {
		exit, _, err := weir(t, "", test.args...)
		assert.Equal(t, test.exit, exit, test.args)
		assert.Contains(t, err, test.want, test.args)
	}
}
