package chilimit_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/adapters/chilimit"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// seeing is chilimit's middleware, with a rule that notes the pattern it is shown.
func seeing(patterns *[]string) func(http.Handler) http.Handler {
	return chilimit.New(middleware.Must(middleware.New(middleware.Config{Rules: []middleware.Rule{{
		Name: "all", Key: keyfunc.Global, Limit: limiter.PerSecond(1_000_000),
		Match: middleware.MatchFunc(func(r *http.Request) bool {
			*patterns = append(*patterns, r.Pattern)
			return true
		}),
	}}})))
}

func serve(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

// say answers with a text, to see which route was reached.
func say(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// override makes chi route every request as a POST.
func override(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		chi.RouteContext(r.Context()).RouteMethod = http.MethodPost
		next.ServeHTTP(w, r)
	})
}

// Whatever stands in front, the pattern is that of the route that answers.
func TestThePatternIsThatOfTheRouteThatAnswers(t *testing.T) {
	type middlewares = []func(http.Handler) http.Handler
	for _, test := range []struct {
		name             string
		front            middlewares
		method, path     string
		reached, pattern string
	}{
		{"root", nil, "GET", "/", "root", "/"},
		{"route", nil, "GET", "/search", "search", "/search"},
		{"catch-all", nil, "GET", "/any/thing", "any", "/*"},
		{"catch-all with slashes", nil, "GET", "//search", "any", "/*"},
		{"parameter", nil, "GET", "/users/7", "user", "/users/{id}"},
		{"encoded parameter", nil, "GET", "/users/a%2Fb", "user", "/users/{id}"},
		{"regular expression", nil, "GET", "/years/2026", "year", "/years/{year:[0-9]{4}}"},
		{"sub-router", nil, "GET", "/v1/search", "v1 search", "/v1/search"},
		{"sub-router's root", nil, "GET", "/v1", "v1", "/v1/"},
		{"sub-router's root with a slash", nil, "GET", "/v1/", "v1", "/v1/"},
		{"sub-router's catch-all", nil, "GET", "/v1/files/v1/files/x", "file", "/v1/files/*"},
		{"sub-router of a parameter", nil, "GET", "/v1/orgs/search/items", "items", "/v1/orgs/{org}/items"},
		{"its root", nil, "GET", "/v1/orgs/search", "org", "/v1/orgs/{org}/"},
		{"its root with a slash", nil, "GET", "/v1/orgs/search/", "org", "/v1/orgs/{org}/"},
		{"mounted at the root of a sub-router", nil, "GET", "/v1/orgs/search/deep/er", "deeper", "/v1/orgs/{org}/deep/er"},

		{"stripped slash", middlewares{chimiddleware.StripSlashes}, "GET", "/search/", "search", "/search"},
		{"stripped slash beside a longer route", middlewares{chimiddleware.StripSlashes}, "GET", "/twice/", "once", "/twice"},
		{"the same without a slash", middlewares{chimiddleware.StripSlashes}, "GET", "/twice", "once", "/twice"},
		{"stripped slash in a sub-router", middlewares{chimiddleware.StripSlashes}, "GET", "/v1/search/", "v1 search", "/v1/search"},
		{"cleaned path", middlewares{chimiddleware.CleanPath}, "GET", "//search", "search", "/search"},
		{"cleaned path in a sub-router", middlewares{chimiddleware.CleanPath}, "GET", "//v1//search", "v1 search", "/v1/search"},
		{"cleaned path of a parameter", middlewares{chimiddleware.CleanPath}, "GET", "/v1/orgs//search/./items", "items", "/v1/orgs/{org}/items"},
		{"format", middlewares{chimiddleware.URLFormat}, "GET", "/search.json", "search", "/search"},
		{"format in a sub-router", middlewares{chimiddleware.URLFormat}, "GET", "/v1/search.json", "v1 search", "/v1/search"},
		{"HEAD as GET", middlewares{chimiddleware.GetHead}, "HEAD", "/search", "search", "/search"},
		{"HEAD as GET in a sub-router", middlewares{chimiddleware.GetHead}, "HEAD", "/v1/search", "v1 search", "/v1/search"},
		{"overridden method", middlewares{override}, "GET", "/orders", "ordered", "/orders"},

		{"nothing there", nil, "POST", "/v1/nosuch", "", ""},
		{"a method that is not known", nil, "BREW", "/search", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var atRouter, inV1, inOrg, atRoute []string
			r := chi.NewRouter()
			r.Use(test.front...)
			r.Use(seeing(&atRouter))
			with := func(r chi.Router) chi.Router { return r.With(seeing(&atRoute)) }
			with(r).Get("/", say("root"))
			with(r).Get("/*", say("any"))
			with(r).Get("/search", say("search"))
			with(r).Post("/orders", say("ordered"))
			with(r).Get("/users/{id}", say("user"))
			with(r).Get("/years/{year:[0-9]{4}}", say("year"))
			with(r).Get("/twice", say("once"))
			with(r).Get("/twice/{twice}", say("twice"))
			with(r).Get("/twice/", say("slash"))
			r.Route("/v1", func(r chi.Router) {
				r.Use(seeing(&inV1))
				with(r).Get("/", say("v1"))
				with(r).Get("/search", say("v1 search"))
				with(r).Get("/files/*", say("file"))
				org := chi.NewRouter()
				org.Use(seeing(&inOrg))
				with(org).Get("/", say("org"))
				with(org).Get("/items", say("items"))
				deep := chi.NewRouter()
				with(deep).Get("/er", say("deeper"))
				org.Mount("/deep", deep)
				r.Mount("/orgs/{org}", org)
			})
			w := serve(r, test.method, test.path)
			if test.reached != "" && test.method != "HEAD" {
				require.Equal(t, test.reached, w.Body.String(), "the route that chi chooses")
			}
			require.Equal(t, []string{test.pattern}, atRouter, "for the whole router")
			for where, patterns := range map[string][]string{"in /v1": inV1, "in /v1/orgs/{org}": inOrg, "at the route": atRoute} {
				if len(patterns) > 0 {
					require.Equal(t, []string{test.pattern}, patterns, where)
				}
			}
			require.Equal(t, test.reached != "", len(atRoute) == 1, "a route's own limit sees its requests")
		})
	}
}

// A limit in front of CleanPath sees the path before it is cleaned.
func TestMiddlewareThatCleansAfterwardsEvadesNothing(t *testing.T) {
	var patterns []string
	r := chi.NewRouter()
	r.Use(seeing(&patterns), chimiddleware.CleanPath, chimiddleware.StripSlashes)
	r.Get("/search", say("search"))
	for _, path := range []string{"//search", "/search/", "/./search"} {
		require.Equal(t, "search", serve(r, "GET", path).Body.String())
	}
	require.Equal(t, []string{"/search", "/search", "/search"}, patterns)
}

func TestOneMiddlewareServesSeveralRouters(t *testing.T) {
	var patterns []string
	limited := seeing(&patterns)
	shared := chi.NewRouter()
	shared.Use(limited)
	shared.Get("/items", say("items"))
	for _, prefix := range []string{"/a", "/b"} {
		r := chi.NewRouter()
		r.Mount(prefix, shared)
		require.Equal(t, "items", serve(r, "GET", prefix+"/items").Body.String())
	}
	require.Equal(t, []string{"/a/items", "/b/items"}, patterns)
}

// Where a handler stands between two routers, chi itself does not know the inner one.
func TestBehindAnotherHandlerTheRouteIsKnownToItsOwnLimit(t *testing.T) {
	var inside, atRoute []string
	sub := chi.NewRouter()
	sub.Use(seeing(&inside))
	sub.With(seeing(&atRoute)).Get("/items", say("items"))
	r := chi.NewRouter()
	r.Mount("/v1", http.HandlerFunc(sub.ServeHTTP))
	require.Equal(t, "items", serve(r, "GET", "/v1/items").Body.String())
	require.Equal(t, []string{"/v1/*"}, inside)
	require.Equal(t, []string{"/v1/items"}, atRoute)
}

func TestWithoutChiThereIsNoPattern(t *testing.T) {
	var patterns []string
	require.Equal(t, "plain", serve(seeing(&patterns)(say("plain")), "GET", "/").Body.String())
	require.Equal(t, []string{""}, patterns)
}

func TestClientsBehindRealIPDoNotChooseTheirAddress(t *testing.T) {
	for _, header := range []string{"X-Real-IP", "True-Client-IP", "X-Forwarded-For"} {
		r := chi.NewRouter()
		r.Use(chimiddleware.RealIP)
		r.Use(middleware.PerIP(limiter.PerHour(5)))
		r.Get("/", say("in"))
		passed := 0
		for i := range 50 {
			request := httptest.NewRequest("GET", "/", nil)
			request.Header.Set(header, fmt.Sprintf("198.51.100.%d", i))
			w := httptest.NewRecorder()
			r.ServeHTTP(w, request)
			if w.Code == 200 {
				passed++
			}
		}
		require.Equal(t, 5, passed, "of 50 with another %s each", header)
	}
}
