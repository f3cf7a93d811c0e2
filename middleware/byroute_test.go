package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// byRoute is a rule for each pattern, which is also its name.
func byRoute(limit limiter.Limit, patterns ...string) map[string][]middleware.Rule {
	rules := map[string][]middleware.Rule{}
	for _, pattern := range patterns {
		rules[pattern] = []middleware.Rule{{Name: pattern, Key: keyfunc.Global, Limit: limit}}
	}
	return rules
}

// namesOf are the rules that a request was charged for.
func namesOf(t require.TestingT, l *middleware.RateLimit, r *http.Request) (names []string) {
	w, result := check(l, r)
	require.Equal(t, 200, w.Code)
	for _, rule := range result.Rules {
		names = append(names, rule.Rule.Name)
	}
	return names
}

func TestOfTheRulesByRouteOnlyTheMostTellingApplies(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := limited(t, middleware.Config{
			ByRoute: byRoute(plenty, "/*", "/api/*", "GET /api/*", "GET /api/search", "/api/search", "a.example/api/search", "*.example/api/*", "/api/{version}/users"),
			Default: []middleware.Rule{{Name: "default", Key: keyfunc.Global, Limit: plenty}},
		})
		for _, test := range []struct{ method, pattern, want string }{
			{"GET", "/api/search", "GET /api/search"},
			{"GET a.example", "/api/search", "a.example/api/search"},
			{"GET b.example", "/api/search", "*.example/api/*"},
			{"GET a.example", "/api/other", "*.example/api/*"},
			{"GET a.example", "/other", "/*"},
			{"GET a.example", "", "/*"},
			{"HEAD", "GET /api/search", "GET /api/search"},
			{"POST", "/api/search", "/api/search"},
			{"GET", "a.example/api/search", "GET /api/search"},
			{"GET", "/api/other", "GET /api/*"},
			{"POST", "/api/other/deep", "/api/*"},
			{"GET", "/api", "GET /api/*"},
			{"GET", "/api/:v/users", "/api/{version}/users"},
			{"GET", "/api/:v/other", "GET /api/*"},
			{"GET", "/other", "/*"},
			{"GET", "", "/*"},
		} {
			r := request(routedBy(test.pattern))
			r.Method, r.Host, _ = strings.Cut(test.method, " ")
			assert.Equal(t, []string{test.want}, namesOf(t, l, r), "%s routed by %q", test.method, test.pattern)
		}
	})
}

func TestTheDefaultIsForRequestsOfNoOtherRoute(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := limited(t, middleware.Config{
			ByRoute: byRoute(plenty, "GET /search", "/users/{id}"),
			Default: []middleware.Rule{{Name: "default", Key: keyfunc.Global, Limit: limiter.PerHour(3)}},
		})
		for _, pattern := range []string{"", "/", "/unknown"} {
			assert.Equal(t, []string{"default"}, namesOf(t, l, request(routedBy(pattern))), "%q", pattern)
		}
		assert.Equal(t, []string{"GET /search"}, namesOf(t, l, request(routedBy("/search"))))
		assert.Equal(t, 429, serve(l.Handler(ok), request()).Code, "all others share the default's counter")
		assert.Equal(t, 200, serve(l.Handler(ok), request(routedBy("/search"))).Code)

		l = limited(t, middleware.Config{ByRoute: byRoute(limiter.PerHour(1), "GET /search")})
		for range 3 {
			assert.Empty(t, namesOf(t, l, request(routedBy("/other"))), "without a default there is no limit for them")
		}
	})
}

func TestARuleByRouteThatDoesNotMatchLeavesNoRoomForAnother(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		rules := byRoute(plenty, "/api/*", "/api/search")
		rules["/api/search"][0].Match = middleware.MatchFunc(func(r *http.Request) bool { return r.Header.Get("X-Bulk") != "" })
		l := limited(t, middleware.Config{ByRoute: rules, Default: []middleware.Rule{{Name: "default", Key: keyfunc.Global, Limit: plenty}}})
		assert.Equal(t, []string{"/api/search"}, namesOf(t, l, request(routedBy("/api/search"), header("X-Bulk", "1"))))
		assert.Empty(t, namesOf(t, l, request(routedBy("/api/search"))))
	})
}

func TestRulesOfAllSectionsApplyTogether(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := limited(t, middleware.Config{
			Rules:   []middleware.Rule{{Name: "global", Key: keyfunc.Global, Limit: limiter.PerHour(10)}},
			ByTier:  map[string][]middleware.Rule{"free": {{Name: "free", Key: keyfunc.Global, Limit: limiter.PerHour(5)}}, "premium": {{Name: "premium", Key: keyfunc.Global, Limit: plenty}}},
			ByRoute: byRoute(limiter.PerHour(2), "/a", "/b"),
			Default: []middleware.Rule{{Name: "default", Key: keyfunc.Global, Limit: plenty}},
		})
		assert.Equal(t, []string{"global", "free", "/a"}, namesOf(t, l, request(inTier("free"), routedBy("/a"))))
		assert.Equal(t, []string{"global", "premium"}, namesOf(t, l, request(inTier("premium"))))
		assert.Equal(t, []string{"global", "/a"}, namesOf(t, l, request(inTier("unheard of"), routedBy("/a"))))
		assert.Equal(t, []string{"global", "default"}, namesOf(t, l, request(inTier("unheard of"))))
		assert.Equal(t, []string{"global", "/b"}, namesOf(t, l, request(routedBy("/b"))))

		for range 10 {
			require.Equal(t, 429, serve(l.Handler(ok), request(inTier("free"), routedBy("/a"))).Code)
		}
		_, result := check(l, request(inTier("free"), routedBy("/b")))
		assert.EqualValues(t, 4, result.Rules[0].Remaining, "what one section refuses, no other is charged for")
		assert.EqualValues(t, 3, result.Rules[1].Remaining)
	})
}

// The customer's limit replaces the default, as in other gateways: also a higher one, which would have no effect otherwise.
func TestATierWithRulesOfItsOwnDoesNotMeetTheDefault(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		c := middleware.Config{
			ByTier: map[string][]middleware.Rule{
				"enterprise": {{Name: "enterprise", Key: keyfunc.IP(), Limit: limiter.PerHour(100_000)}},
				"guests":     {{Name: "guests", Key: keyfunc.User, NoKey: middleware.NoKeySkip, Limit: plenty}},
			},
			ByRoute: byRoute(limiter.PerHour(2), "/a"),
			Default: []middleware.Rule{{Name: "default", Key: keyfunc.IP(), Limit: limiter.PerMinute(100)}},
			Logger:  quiet,
		}
		l := limited(t, c)
		for range 300 {
			require.Equal(t, []string{"enterprise"}, namesOf(t, l, request(inTier("enterprise"))))
		}
		assert.Equal(t, []string{"enterprise", "/a"}, namesOf(t, l, request(inTier("enterprise"), routedBy("/a"))), "an endpoint's rules hold for every tier")
		assert.Empty(t, namesOf(t, l, request(inTier("guests"))), "a rule of the tier that skips a request has replaced the default too")
		for _, tier := range []string{"", "unheard of", "Enterprise"} {
			assert.Equal(t, []string{"default"}, namesOf(t, l, request(inTier(tier))), tier)
			assert.Equal(t, []string{"/a"}, namesOf(t, limited(t, c), request(inTier(tier), routedBy("/a"))), tier)
		}

		shown := func(tier string) (names []string) {
			for _, rule := range usageOf(t, l, inTier(tier)).Rules {
				names = append(names, rule.Rule)
			}
			return names
		}
		assert.Equal(t, []string{"enterprise", "/a"}, shown("enterprise"), "whoever asks what is left sees the rules that they can meet")
		assert.Equal(t, []string{"/a", "default"}, shown("unheard of"))
	})
}

func TestTiersCountInRulesOfEverySection(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		rule := func(name string) middleware.Rule {
			return middleware.Rule{Name: name, Key: keyfunc.Global, Limit: limiter.PerHour(1), Tiers: middleware.Tiers{"gold": limiter.PerHour(2)}}
		}
		fallback := rule("default")
		l := limited(t, middleware.Config{ByRoute: map[string][]middleware.Rule{"/a": {rule("a")}}, Default: []middleware.Rule{fallback}})
		for _, pattern := range []string{"/a", "/b"} {
			_, result := check(l, request(routedBy(pattern), inTier("gold")))
			assert.Equal(t, "gold", result.Tier)
			assert.EqualValues(t, 2, result.Limit)
		}
	})
}

// A rule for everything is for what no route is for too: 404s are a flood like any other.
func TestARuleForEveryPathIsForThoseThatNoRouteIsFor(t *testing.T) {
	logger, log := logged()
	mux := http.NewServeMux()
	mux.Handle("GET /a", ok)
	mux.Handle("GET /b", ok)
	for name, c := range map[string]middleware.Config{
		"by route": {ByRoute: byRoute(limiter.PerHour(3), "/*", "GET /b")},
		"by host":  {ByRoute: byRoute(limiter.PerHour(3), "example.com/*")},
		"matching": {Rules: []middleware.Rule{{Name: "r", Key: keyfunc.Global, Limit: limiter.PerHour(3), Match: middleware.Route("example.com/*")}}},
	} {
		c.Logger = logger
		h := limited(t, c).Handler(mux)
		var codes []int
		for _, path := range []string{"/a", "/nowhere", "/else", "/where", "/a"} {
			codes = append(codes, serve(h, httptest.NewRequest("GET", path, nil)).Code)
		}
		assert.Equal(t, []int{200, 404, 404, 429, 429}, codes, name)
	}
	l := limited(t, middleware.Config{Logger: logger, ByRoute: byRoute(plenty, "/*")})
	for range 300 {
		serve(l.Handler(ok), request())
	}
	assert.Empty(t, log.String(), "such a rule needs no route")
}

func TestRulesOfARouteAreForTheSameRequests(t *testing.T) {
	byUser := middleware.Rule{Name: "account", Key: keyfunc.User, NoKey: middleware.NoKeySkip, Limit: logOf(2, plenty.Per)}
	l := limited(t, middleware.Config{
		ByRoute: map[string][]middleware.Rule{"/login": {{Name: "address", Key: keyfunc.IP(), Limit: logOf(10, plenty.Per)}, byUser}},
		Default: []middleware.Rule{{Name: "default", Key: keyfunc.Global, Limit: plenty}},
	})
	user := func(r *http.Request) { *r = *r.WithContext(keyfunc.WithUser(r.Context(), "7")) }
	assert.Equal(t, []string{"address", "account"}, namesOf(t, l, request(routedBy("/login"), user)))
	assert.Equal(t, []string{"address"}, namesOf(t, l, request(routedBy("/login"))), "the other one has no key")
	assert.Equal(t, []string{"default"}, namesOf(t, l, request(routedBy("/x"), user)))
	assert.Equal(t, []string{"address", "account"}, namesOf(t, l, request(routedBy("/login"), user)))
	result, refused := refusal(l, httptest.NewRecorder(), request(routedBy("/login"), user))
	assert.True(t, refused)
	assert.Equal(t, "account", result.Rule)
	assert.EqualValues(t, 7, result.Rules[0].Remaining, "all are charged, or none")
}
