package rules_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/adapters/chilimit"
	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/middleware/rules"
)

// A ledger is a store that takes everything and remembers the last that it took.
type ledger struct{ charges []limiter.Charge }

func (l *ledger) Decide(_ context.Context, charges []limiter.Charge) error {
	l.charges = slices.Clone(charges)
	for i := range charges {
		charges[i].Decision = limiter.Decision{Allowed: true, Limit: 1}
	}
	return nil
}
func (*ledger) Settle(context.Context, []limiter.Settlement) error { return nil }
func (*ledger) Reset(context.Context, []limiter.Charge) error      { return nil }

// Whatever is asked, in a router that has the file's routes: what is charged is what was
// explained of the raw path.
func TestWhatIsExplainedIsWhatIsCharged(t *testing.T) {
	var taken ledger
	o := rules.Options{Config: middleware.Config{Store: &taken, Logger: slog.New(slog.DiscardHandler)}}
	r := parse(t, readText(t, "testdata/explain/order.yaml"), o)
	limits, err := middleware.New(r.Config())
	require.NoError(t, err)
	router := chi.NewRouter()
	router.Use(chilimit.New(limits))
	for pattern := range r.Config().ByRoute {
		method, path, ok := strings.Cut(pattern, " ")
		if !ok {
			router.Handle(pattern, okay)
			if place, below := strings.CutSuffix(pattern, "/*"); below {
				router.Handle(place, okay) // which the rule is for too
			}
			continue
		}
		router.Method(method, path, okay)
		if method == http.MethodGet {
			router.Method(http.MethodHead, path, okay)
		}
	}
	router.Handle("/healthz", okay)
	router.Handle("/internal", okay)
	router.Handle("/internal/*", okay)

	rapid.Check(t, func(t *rapid.T) {
		pick := func(what string, of ...string) string { return rapid.SampledFrom(of).Draw(t, what) }
		q := rules.Request{
			Method: pick("method", "", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"),
			Path: pick("path", "/", "/users/42", "/users/me", "/users/42/files/a", "/users/42/files/a/b", "/users/42/else", "/users/me/files/x",
				"/beta/x", "/beta/x/y", "/beta", "/healthz", "/internal/a/b", "/internal", "/only", "/nowhere", "/nowhere/else"),
			IP:            pick("ip", "", "192.0.2.7", "198.51.100.7", "203.0.113.7", "10.0.0.1", "2001:db8:1:2::3"),
			Tier:          pick("tier", "", "", "free", "paid", "other"),
			User:          pick("user", "", "42", "eve"),
			Header:        http.Header{},
			ContentLength: rapid.SampledFrom([]int64{0, -1, 1024, 1025, 1 << 40}).Draw(t, "length"),
		}
		for _, name := range []string{"X-Tenant", "Origin", "Access-Control-Request-Method", "X-Forwarded-For"} {
			if rapid.IntRange(0, 3).Draw(t, name) == 0 {
				q.Header.Set(name, "192.0.2.99")
			}
		}
		explanation, err := r.Explain(q)
		require.NoError(t, err)

		taken.charges = nil
		w := httptest.NewRecorder()
		request := httptest.NewRequest(cmp.Or(q.Method, "GET"), q.Path, nil)
		request.RemoteAddr = netip.AddrPortFrom(netip.MustParseAddr(cmp.Or(q.IP, "192.0.2.1")), 9).String()
		request.Header, request.ContentLength = q.Header.Clone(), q.ContentLength
		ctx := keyfunc.WithUser(middleware.WithTier(request.Context(), q.Tier), q.User)
		router.ServeHTTP(w, request.WithContext(ctx))

		var steps, want []string
		for _, s := range explanation.Steps {
			if s.Limit != "" {
				steps = append(steps, fmt.Sprintf("%s %s %s %s %d %s", s.Rule, s.Tier, s.Key, s.Limit, s.Cost, s.Outage))
			}
		}
		for _, c := range taken.charges {
			want = append(want, fmt.Sprintf("%s %s %s %s %d %s", c.Quota.Rule(), c.Quota.Tier(), c.Key, c.Quota.Limit(), c.Cost, c.Quota.OnOutage))
		}
		require.Equal(t, want, steps, "%+v", explanation)
		last := explanation.Steps[len(explanation.Steps)-1]
		switch w.Code {
		case http.StatusTooManyRequests: // nothing else is answered so: the ledger takes all
			require.Contains(t, last.Says, "banned: answered 429")
		case http.StatusUnauthorized:
			require.Contains(t, last.Says, "answered 401")
		default:
			require.NotContains(t, last.Says, "answered")
		}
	})
}

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

func TestNothingThatAppliesIsSaid(t *testing.T) {
	r := parse(t, "version: 1\nendpoints: {\"GET /a\": 3/s}\n", rules.Options{})
	require.Equal(t, []string{`0 ban: not banned`, `0 allow: not on the list`, `0 rules: none applies: not limited`}, steps(t, r, rules.Request{Path: "/b"}))
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

func TestAnExplanationSaysWhichTiersThereAre(t *testing.T) {
	r := parse(t, "version: 1\nglobal: {limit: 9/s, tiers: {gold: 99/s}, key: global}\ndefault: {limit: 3/s, tiers: {silver: 5/s}}\n", rules.Options{})
	for tier, want := range map[string][]string{"": nil, "gold": nil, "glod": {`the file has no tier "glod": there are gold, silver`}} {
		e, err := r.Explain(rules.Request{Path: "/", Tier: tier})
		require.NoError(t, err)
		require.Equal(t, want, e.Notes)
	}
}
