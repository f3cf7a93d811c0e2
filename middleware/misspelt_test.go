package middleware_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/shed"
)

func byRoutes(patterns ...string) map[string][]middleware.Rule {
	rules := map[string][]middleware.Rule{}
	for _, pattern := range patterns {
		rules[pattern] = []middleware.Rule{{Name: pattern, Key: keyfunc.Global, Limit: plenty}}
	}
	return rules
}

func TestARuleForARouteThatTheRouterDoesNotHaveIsWarnedOf(t *testing.T) {
	routes := []string{
		"POST /login", "GET /users/{id}", "/users/{id}/files/{path...}", "GET /v1/", "GET /", "PATCH /a%2Fb/{x}", "GET /items/:item",
	}
	there := []string{
		"/login", "POST /login", "/users/{name}", "GET /users/:id", "POST /users/:id/files/*", "/users/{id:[0-9]+}/files/{rest...}",
		"/v1/", "/v1/*", "/users/*", "/", "a.example/login", "PATCH /a%2Fb/{x}", "/items/{id}",
	}
	for _, pattern := range []string{"/logn", "GET /login", "/Login", "/login/", "/users/me", "/v1/users", "/uzers/*"} {
		for name, c := range map[string]middleware.Config{
			"ByRoute": {ByRoute: byRoutes(append(there, pattern)...)},
			"Match":   {Rules: []middleware.Rule{{Name: pattern, Key: keyfunc.Global, Limit: plenty, Match: middleware.Route(append(there, pattern)...)}}},
		} {
			phase.Run(t, name+" "+pattern, func(t *testing.T) {
				logger, log := logged()
				c.Logger = logger
				l := limited(t, c)
				l.KnowRoutes(nil)
				statuses(l.Handler(ok), 3, routedBy("/"))
				assert.Empty(t, log.String(), "no router is known yet")
				l.KnowRoutes(routes)
				statuses(l.Handler(ok), 3, routedBy("/"))
				assert.Equal(t, 1, strings.Count(log.String(), "code=weir-no-such-route"), log.String())
				for _, attr := range []string{"rule", "route"} {
					value := pattern
					if strings.Contains(value, " ") {
						value = fmt.Sprintf("%q", value)
					}
					assert.Contains(t, log.String(), attr+"="+value)
				}
				require.NoError(t, l.Reconfigure(c))
				statuses(l.Handler(ok), 3, routedBy("/"))
				assert.Equal(t, 1, strings.Count(log.String(), "weir-no-such-route"), "it is said once")
			})
		}
	}
}

func TestARouteThatIsMisspeltInAReloadIsWarnedOf(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		logger, log := logged()
		l := limited(t, middleware.Config{Logger: logger, ByRoute: byRoutes("/login")})
		l.KnowRoutes([]string{"/login"})
		check(l, request(routedBy("/login")))
		assert.Empty(t, log.String())
		require.NoError(t, l.Reconfigure(middleware.Config{Logger: logger, ByRoute: byRoutes("/logn")}))
		check(l, request(routedBy("/login")))
		assert.Equal(t, 1, strings.Count(log.String(), "code=weir-no-such-route"))
	})
}

func TestARouteIsThereIfOneOfTheRoutersHasIt(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		logger, log := logged()
		l := limited(t, middleware.Config{Logger: logger, ByRoute: byRoutes("/v1/users", "POST /login")})
		l.KnowRoutes([]string{"GET /v1/users"})
		l.KnowRoutes([]string{"/login"})
		check(l, request(routedBy("/login")))
		assert.Empty(t, log.String())
	})
}

// As with a middleware that is added to each of a router's routes.
func TestALimiterRemembersARouteOnceAndOnlySoMany(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		logger, log := logged()
		l := limited(t, middleware.Config{Logger: logger, ByRoute: byRoutes("/login")})
		for i := range 1000 {
			routes := []string{"GET /a", "GET /b"}
			l.KnowRoutes([]string{routes[i%2], routes[1-i%2]})
		}
		l.KnowRoutes([]string{"/login"})
		check(l, request(routedBy("/")))
		assert.Empty(t, log.String(), "there is room for others")

		l = limited(t, middleware.Config{Logger: logger, ByRoute: byRoutes("/login")})
		var most []string
		for i := range 100_000 {
			most = append(most, fmt.Sprintf("/%d", i))
		}
		l.KnowRoutes(most)
		l.KnowRoutes([]string{"/login"})
		check(l, request(routedBy("/")))
		assert.Contains(t, log.String(), "weir-no-such-route", "but not without end")
	})
}

func TestAConfigurationForAnotherRouterIsNotWarnedOfWithoutEnd(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		logger, log := logged()
		var patterns []string
		for i := range 1000 {
			patterns = append(patterns, fmt.Sprintf("/%d", i))
		}
		l := limited(t, middleware.Config{Logger: logger, ByRoute: byRoutes(patterns...)})
		l.KnowRoutes([]string{"/"})
		check(l, request(routedBy("/")))
		assert.LessOrEqual(t, strings.Count(log.String(), "\n"), 10)
		assert.Contains(t, log.String(), "rules=992")
	})
}

func TestALimiterAroundAnotherKnowsTheMuxBehind(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		mux := http.NewServeMux()
		mux.Handle("POST /login", ok)
		inner := newLimit(t, middleware.Rule{Name: "inner", Key: keyfunc.Global, Limit: plenty})
		l := limited(t, middleware.Config{ByRoute: map[string][]middleware.Rule{"/login": {{Name: "login", Key: keyfunc.Global, Limit: limiter.PerHour(1)}}}})
		login := func(r *http.Request) { r.Method, r.URL.Path = "POST", "/login" }
		assert.Equal(t, []int{200, 429}, statuses(l.Handler(inner.Handler(mux)), 2, login))
	})
}

// A mux lists no routes: it is asked about requests.
func TestAMisspeltRouteOfAMuxIsWarnedOf(t *testing.T) {
	for name, c := range map[string]struct {
		mux, there, absent []string
	}{
		"methods": {
			[]string{"POST /login", "GET /search", "/any", "PURGE /cache", "HEAD /ping"},
			[]string{"POST /login", "/login", "GET /search", "HEAD /search", "/search", "GET /any", "DELETE /any", "PURGE /cache", "GET /ping"},
			[]string{"POST /lgoin", "GET /login", "PUT /search", "POST /Login", "PURGE /chache"},
		},
		"parameters, not raw paths": {
			[]string{"GET /users/{id}", "GET /users/me", "/files/{path...}", "GET /files/{name}", "/a%2Fb/{x}", "/caf\u00e9"},
			[]string{"/users/{name}", "/users/:id", "/users/me", "GET /users/{id:[0-9]+}", "/files/{rest...}", "/files/*", "/files/{name}", "/a%2Fb/{x}", "/caf\u00e9"},
			[]string{"/users/42", "/files/a.txt", "/users/{id}/files", "/a/b/{x}"},
		},
		"slashes at the end": {
			[]string{"/v1/", "/v2", "/v3/", "/v3/{$}", "/v4/{$}"},
			[]string{"/v1/", "/v1/*", "/v2", "/v2/*", "/v3/", "/v3/{$}", "/v4/{$}"},
			[]string{"/v1", "/v2/", "/v1/{$}", "/v4/", "/v4", "/v1/users"},
		},
		"the home page alone":          {[]string{"/{$}"}, []string{"/{$}", "GET /{$}", "/*"}, []string{"/"}},
		"everything":                   {[]string{"/"}, []string{"/", "POST /"}, []string{"/{$}", "/login"}},
		"everything and the home page": {[]string{"/", "/{$}"}, []string{"/", "/{$}"}, nil},
		"hosts": {
			[]string{"a.example/login", "GET b.example/cart", "/any", "[2001:db8::1]/ip"},
			[]string{"a.example/login", "/login", "b.example/cart", "c.example/any", "*.example/any", "[2001:DB8::1]/ip"},
			[]string{"a.example/lgoin", "b.example/login", "a.example/cart"},
		},
	} {
		mux := http.NewServeMux()
		for _, pattern := range c.mux {
			mux.Handle(pattern, ok)
		}
		for i, pattern := range append(c.there, c.absent...) {
			phase.Run(t, name+" "+pattern, func(t *testing.T) {
				logger, log := logged()
				rule := middleware.Rule{Name: "r", Key: keyfunc.Global, Limit: plenty, Match: middleware.Route(pattern)}
				h := limited(t, middleware.Config{Logger: logger, Rules: []middleware.Rule{rule}}).Handler(mux)
				assert.Empty(t, log.String(), "routes may yet be added")
				statuses(h, 3, func(r *http.Request) { r.Host = "a.example:8080" })
				want := 0
				if i >= len(c.there) {
					want = 1
				}
				assert.Equal(t, want, strings.Count(log.String(), "code=weir-no-such-route"), log.String())
			})
		}
	}
}

func TestEveryRouteOfAConfigIsLookedForInAMux(t *testing.T) {
	rule := middleware.Rule{Name: "r", Key: keyfunc.Global, Limit: plenty}
	typo := middleware.Route("GET /", "POST /lgoin")
	overload, err := shed.New(shed.Options{Exempt: typo})
	require.NoError(t, err)
	onRoute := rule
	onRoute.Match = typo
	for name, c := range map[string]middleware.Config{
		"rule=r":                {Rules: []middleware.Rule{onRoute}},
		`rule="POST /lgoin"`:    {ByRoute: byRoutes("POST /lgoin", "GET /")},
		"rule=r route":          {ByTier: map[string][]middleware.Rule{"free": {onRoute}}, Default: []middleware.Rule{{Name: "d", Key: keyfunc.Global, Limit: plenty}}},
		"rule=Config.Allow":     {Rules: []middleware.Rule{rule}, Allow: typo},
		"rule=Config.Bans.Deny": {Rules: []middleware.Rule{rule}, Bans: middleware.Bans{Deny: middleware.Route("POST /lgoin")}},
		"rule=Config.Overload":  {Rules: []middleware.Rule{rule}, Overload: overload},
		"rule=denied":           {Rules: []middleware.Rule{{Name: "denied", Mode: middleware.Deny, Match: typo}}},
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.Handle("GET /", ok)
			mux.Handle("POST /login", ok)
			logger, log := logged()
			c.Logger = logger
			statuses(limited(t, c).Handler(mux), 3)
			assert.Equal(t, 1, strings.Count(log.String(), "code=weir-no-such-route"), log.String())
			assert.Contains(t, log.String(), name)
			assert.Contains(t, log.String(), `route="POST /lgoin"`)
		})
	}
}

func TestTheRoutesOfAMuxInsideAMuxNeedALimiterThere(t *testing.T) {
	newMuxes := func() (outer, inner *http.ServeMux) {
		outer, inner = http.NewServeMux(), http.NewServeMux()
		inner.Handle("POST /v1/login", ok)
		return outer, inner
	}
	config := middleware.Config{ByRoute: byRoutes("POST /v1/login")}
	for name, c := range map[string]struct {
		handler func(l *middleware.RateLimit) http.Handler
		warns   int
	}{
		"around the outer": {func(l *middleware.RateLimit) http.Handler {
			outer, inner := newMuxes()
			outer.Handle("/v1/", inner)
			return l.Handler(outer)
		}, 1},
		"around the inner": {func(l *middleware.RateLimit) http.Handler {
			outer, inner := newMuxes()
			outer.Handle("/v1/", l.Handler(inner))
			return outer
		}, 0},
		"around both": {func(l *middleware.RateLimit) http.Handler {
			outer, inner := newMuxes()
			outer.Handle("/v1/", l.Handler(inner))
			return l.Handler(outer)
		}, 0},
		"around another limiter": {func(l *middleware.RateLimit) http.Handler {
			_, inner := newMuxes()
			return l.Handler(limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "x", Key: keyfunc.Global, Limit: plenty}}}).Handler(inner))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			logger, log := logged()
			config.Logger = logger
			statuses(c.handler(limited(t, config)), 3, func(r *http.Request) { r.Method, r.URL.Path = "POST", "/v1/login" })
			assert.Equal(t, c.warns, strings.Count(log.String(), "weir-no-such-route"), log.String())
		})
	}
}

// A limiter around single routes, or around a handler that hides a mux, knows no routes. Nor does a mux tell what is
// below a path.
func TestARouteThatNoRequestHasIsWarnedOf(t *testing.T) {
	hidden := func(mux *http.ServeMux) http.Handler { return http.HandlerFunc(mux.ServeHTTP) }
	for name, serve := range map[string]func(l *middleware.RateLimit) http.Handler{
		"around a route": func(l *middleware.RateLimit) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("GET /admin/users", l.Handler(ok))
			return mux
		},
		"around a hidden mux": func(l *middleware.RateLimit) http.Handler {
			mux, inner := http.NewServeMux(), http.NewServeMux()
			inner.Handle("GET /admin/users", ok)
			mux.Handle("/admin/", l.Handler(hidden(inner)))
			return mux
		},
		"below a path of a mux": func(l *middleware.RateLimit) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("GET /admin/users", ok)
			return l.Handler(mux)
		},
	} {
		t.Run(name, func(t *testing.T) {
			logger, log := logged()
			h := serve(limited(t, middleware.Config{Logger: logger, ByRoute: byRoutes("/admin/*", "/amdin/*")}))
			users := func(r *http.Request) { r.URL.Path = "/admin/users" }
			statuses(h, 999, users)
			assert.Empty(t, log.String(), "too early to tell")
			statuses(h, 1000, users)
			assert.Equal(t, 1, strings.Count(log.String(), "code=weir-no-such-route"), log.String())
			assert.Contains(t, log.String(), "rule=/amdin/* route=/amdin/*")
		})
	}
}

func TestATierThatNoRuleHasIsWarnedOfOnce(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		logger, log := logged()
		l := limited(t, middleware.Config{Logger: logger,
			Rules:  []middleware.Rule{{Name: "plan", Key: keyfunc.Global, Limit: plenty, Tiers: middleware.Tiers{"premium": plenty}}},
			ByTier: map[string][]middleware.Rule{"free": {{Name: "free", Key: keyfunc.Global, Limit: plenty}}},
		})
		for range 3 {
			check(l, request())
			check(l, request(inTier("premium")))
			check(l, request(inTier("free")))
		}
		assert.Empty(t, log.String())
		for range 3 {
			check(l, request(inTier("Premium")))
		}
		assert.Equal(t, 1, strings.Count(log.String(), "code=weir-unknown-tier"))
		assert.Contains(t, log.String(), "tier=Premium")

		log.Reset()
		check(l, request(inTier("evil\nlevel=ERROR")))
		assert.Contains(t, log.String(), `tier="evil\nlevel=ERROR"`, "the log has it quoted")
		for i := range 1000 {
			check(l, request(inTier(fmt.Sprintf("%d%s", i, strings.Repeat("x", 10_000)))))
		}
		assert.LessOrEqual(t, strings.Count(log.String(), "\n"), 8, "tiers without end are not logged without end")
		assert.Less(t, log.Len(), 4000)
	})
}

func TestRoutesListsWhatNeedsARoute(t *testing.T) {
	l := limited(t, middleware.Config{
		Rules: []middleware.Rule{
			{Name: "all", Key: keyfunc.Global, Limit: plenty, Match: middleware.Route("/*")},
			{Name: "func", Key: keyfunc.Global, Limit: plenty, Match: middleware.IsPreflight},
			{Name: "search", Key: keyfunc.Global, Limit: plenty, Match: middleware.Route("GET /search", "/find")},
		},
		ByRoute: byRoutes("/a/{id}"),
		Allow:   middleware.Route("/health"),
		Bans:    middleware.Bans{Deny: middleware.Route("/admin/*")},
	})
	require.ElementsMatch(t, []string{"GET /search", "/find", "/a/{id}", "/health", "/admin/*"}, l.Routes())
	require.NoError(t, l.Reconfigure(middleware.Config{Rules: []middleware.Rule{{Name: "all", Key: keyfunc.Global, Limit: plenty}}}))
	require.Empty(t, l.Routes())
}
