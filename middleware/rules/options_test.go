package rules_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

func TestOptionsThatCantBeMeantAreAnErrorOfTheirOwn(t *testing.T) {
	key := func(*http.Request) (string, error) { return "k", nil }
	keys := func(name string, f keyfunc.Func) rules.Options {
		return rules.Options{Keys: map[string]keyfunc.Func{name: f}}
	}
	rule := middleware.Rule{Name: "x", Key: keyfunc.Global, Limit: limiter.PerSecond(1)}
	const files = "rules: Options.Config has ByTier, ByRoute, Default or Bans.Status, which belong in the file"
	for _, of := range []struct {
		o    rules.Options
		want string
	}{
		{rules.Options{Config: middleware.Config{ByTier: map[string][]middleware.Rule{"free": {rule}}}}, files},
		{rules.Options{Config: middleware.Config{ByRoute: map[string][]middleware.Rule{"/": {rule}}}}, files},
		{rules.Options{Config: middleware.Config{Default: []middleware.Rule{rule}}}, files},
		{rules.Options{Config: middleware.Config{Bans: middleware.Bans{Status: 403}}}, files},
		{rules.Options{Config: middleware.Config{Allow: middleware.Route("health")}}, `rules: Options.Config.Allow: Route: pattern "health" has no path: want something like /search, or example.com/*`},
		{rules.Options{Config: middleware.Config{Bans: middleware.Bans{Deny: middleware.Route("health")}}}, `rules: Options.Config.Bans.Deny: Route: pattern "health" has no path: want something like /search, or example.com/*`},
		{keys("ip", key), `rules: Options.Keys has "ip", which the file's proxies section defines`},
		{keys("fingerprint", key), `rules: Options.Keys has "fingerprint", which the file's proxies section defines`},
		{keys("org", nil), `rules: Options.Keys["org"] is nil`},
		{keys("", key), `rules: Options.Keys has "": a name is letters, digits, - and _`},
		{keys("my org", key), `rules: Options.Keys has "my org": a name is letters, digits, - and _`},
		{keys("org:id", key), `rules: Options.Keys has "org:id": a name is letters, digits, - and _`},
		{rules.Options{Poll: 99 * time.Millisecond}, "rules: Options.Poll is 99ms: it must be from 100ms to 24h, or 0 for the default"},
		{rules.Options{Poll: -time.Second}, "rules: Options.Poll is -1s: it must be from 100ms to 24h, or 0 for the default"},
		{rules.Options{Poll: 25 * time.Hour}, "rules: Options.Poll is 25h0m0s: it must be from 100ms to 24h, or 0 for the default"},
	} {
		const text = "version: 1\ndefault: 3/s\n"
		path := write(t, map[string]string{"limits.yaml": text}) + "/limits.yaml"
		_, err := rules.Parse([]byte(text), of.o)
		assert.EqualError(t, err, of.want)
		_, err = rules.Load(path, of.o)
		assert.EqualError(t, err, of.want)
		_, err = rules.Watch(t.Context(), path, of.o)
		assert.EqualError(t, err, of.want)
	}
	_, err := rules.Parse(nil, rules.Options{Poll: 1, Config: middleware.Config{Bans: middleware.Bans{Status: 403}}})
	require.Len(t, strings.Split(err.Error(), "\n"), 2, "all at once")
}

func TestAKeyOfTheApplicationsIsNotTakenForOneThatAllShare(t *testing.T) {
	own := rules.Options{Keys: map[string]keyfunc.Func{"global": keyfunc.IP()}}
	const text = "version: 1\ndefault: {limit: 3/s, key: global, escalate: {after: 1, within: 1m, ban: 1m}}\n"
	parse(t, text, own)
	_, err := rules.Parse([]byte(text), rules.Options{})
	require.Equal(t, []string{"2:46: default.escalate: needs a key that tells clients apart: global is shared by many clients"}, problemsOf(t, err))
}
