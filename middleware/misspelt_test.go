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
