package rules_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/middleware/rules"
)

// steps are an explanation's, a line each.
func steps(t testing.TB, r *rules.Rules, q rules.Request) []string {
	t.Helper()
	explanation, err := r.Explain(q)
	require.NoError(t, err)
	var lines []string
	for _, s := range explanation.Steps {
		line := fmt.Sprintf("%d %s: %s", s.Line, s.Section, s.Says)
		if s.Rule != "" {
			line = fmt.Sprintf("%d %s %q: %s", s.Line, s.Section, s.Rule, s.Says)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestTheRouteOfARawPathIsTheOneARouterChooses(t *testing.T) {
	r := parse(t, `
version: 1
endpoints:
  "GET /users/{id}": 1/s
  "/users/*": 1/s
  "POST /users/me": 1/s
  "GET /files/{path...}": 1/s
  "GET /files/{dir}/meta": 1/s
  "/a/{b}/c": 1/s
  "/a/x/*": 1/s
  "api.example/users/{id}": 1/s
  "/end/{$}": 1/s
  "/tree/:name": 1/s
allow: {routes: "/users/{id}/photo"}
`, rules.Options{})
	for asked, want := range map[string]string{
		"GET /users/42": "/users/{id}", "HEAD /users/42": "/users/{id}", "PUT /users/42": "/users/{id}",
		"GET /users/me": "/users/{id}", "POST /users/me": "/users/me", "GET /users": "/users", "GET /users/42/else": "/users/42/else",
		"GET /users/42/photo": "/users/{id}/photo", "GET /files/a/b/c": "/files/{path...}", "GET /files/a/meta": "/files/{dir}/meta",
		"GET /a/x/c": "/a/x/c", "GET /a/y/c": "/a/{b}/c", "GET /end/": "/end/{$}", "GET /end/x": "/end/x", "GET /tree/7": "/tree/:name",
		"GET /nowhere": "/nowhere", "GET /": "/", "GET /users/{id}": "/users/{id}", "GET /tree/{name}": "/tree/:name",
	} {
		method, path, _ := strings.Cut(asked, " ")
		explanation, err := r.Explain(rules.Request{Method: method, Path: path})
		require.NoError(t, err)
		assert.Equal(t, want, explanation.Route, asked)
	}
	for asked, want := range map[string]string{
		"api.example/users/42": "api.example/users/{id}", "api.example:80/users/me": "api.example/users/{id}", "API.example./users/me": "GET /users/{id}", "/users/42": "GET /users/{id}",
		"/files/a": "GET /files/{path...}", "/a/x/c": "/a/x/", "/a/x": "/a/x/", "/nowhere": "/nowhere",
	} {
		host, path, _ := strings.Cut(asked, "/")
		explanation, err := r.Explain(rules.Request{Path: "/" + path, Host: host, ServeMux: true})
		require.NoError(t, err)
		assert.Equal(t, want, explanation.Route, "%s on http.ServeMux", asked)
	}
}

func TestAnExplanationKnowsBansByEscalationAndByHand(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		list, err := bans.New(bans.Options{})
		require.NoError(t, err)
		r := parse(t, "version: 1\ndefault: {limit: 1/h, escalate: {after: 1, within: 1h, ban: 1m}}\n",
			rules.Options{Config: middleware.Config{Bans: middleware.Bans{List: list}}})
		s := open(t, r)
		s.passes(1, call{})
		require.Equal(t, []string{`0 ban "default": banned: answered 403 until ` + time.Now().Add(time.Minute).Format(time.RFC3339)},
			steps(t, r, rules.Request{Path: "/"}))
		time.Sleep(time.Minute)
		require.Len(t, steps(t, r, rules.Request{Path: "/"}), 3)
		require.NoError(t, list.Ban(t.Context(), "user:7", 0))
		require.Equal(t, []string{`0 ban: banned: answered 403, permanently`}, steps(t, r, rules.Request{Path: "/", User: "7"}))
	})
}

func TestAnExemptPreflightIsExplained(t *testing.T) {
	preflight := rules.Request{Method: "OPTIONS", Path: "/", Header: http.Header{"origin": {"x"}, "Access-Control-Request-Method": {"GET"}}}
	r := parse(t, "version: 1\nallow:\n  preflights: true\ndefault: 3/s\n", rules.Options{})
	require.Equal(t, []string{`0 ban: not banned`, `2 allow: on the list: not limited`}, steps(t, r, preflight))
	r = parse(t, "version: 1\ndefault: {limit: 3/s, key: user}\n", rules.Options{})
	require.Equal(t, []string{`0 ban: not banned`, `0 allow: not on the list`, `2 default "default": 3/1s for "preflight:192.0.2.1"`}, steps(t, r, preflight))
}

func TestABanInAFileInShadowIsExplainedWithWhatFollows(t *testing.T) {
	r := parse(t, "version: 1\nmode: shadow\nban: {cidrs: 192.0.2.1}\ndefault: 3/s\n", rules.Options{})
	explanation, err := r.Explain(rules.Request{Path: "/"})
	require.NoError(t, err)
	require.Len(t, explanation.Steps, 3)
	require.True(t, explanation.Steps[0].Shadow)
	require.True(t, explanation.Steps[2].Shadow)
}

func TestRulesOfTheApplicationAreExplainedAsSuch(t *testing.T) {
	own := middleware.Config{Rules: []middleware.Rule{{Name: "mine", Key: keyfunc.Global, Limit: limiter.PerSecond(3)}}}
	r := parse(t, "version: 1\ndefault: 3/s\n", rules.Options{Config: own})
	require.Equal(t, []string{
		`0 ban: not banned`, `0 allow: not on the list`,
		`0 application "mine": 3/1s for all clients together`,
		`2 default "default": 3/1s for "192.0.2.1"`,
	}, steps(t, r, rules.Request{Path: "/"}))
}

func TestARequestThatCantBeIsNotExplained(t *testing.T) {
	r := parse(t, "version: 1\ndefault: 3/s\n", rules.Options{})
	_, err := r.Explain(rules.Request{Method: "get /x", Path: "users", IP: "localhost", Host: "https://example.org"})
	require.EqualError(t, err, errors.Join(
		errors.New(`rules: path "users" does not begin with /`),
		errors.New(`rules: ip "localhost" is not an address`),
		errors.New(`rules: host "https://example.org" is not a host such as example.org`),
		errors.New(`rules: method "get /x" is not in capitals`),
	).Error())
}
