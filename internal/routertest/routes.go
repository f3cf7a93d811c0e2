package routertest

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// byRoute is a generous rule for the routes of a pattern, to see in the header
// fields whether it applied.
func byRoute(name string, patterns ...string) middleware.Rule {
	return middleware.Rule{
		Name: name, Match: middleware.Route(patterns...), Key: keyfunc.IP(), Limit: perHour(1000),
	}
}

// applied is the names of the rules that applied to a request.
func (s *suite) applied(server *server, target string) []string {
	s.Helper()
	a := server.wantStatus(200, "the route is there", target)
	if a.Header.Get("RateLimit") == "" {
		return nil
	}
	return readFields(s, a.Header).order
}

func rulesByRoute(s *suite) {
	server := s.serve(app(
		[]Limit{rules(
			byRoute("search", "GET /search"),
			byRoute("user", "GET /users/{id}"),
			byRoute("own", "GET "+s.router.Pattern("/users/{name}/posts/{post}")),
			byRoute("users", "/users/*"),
			byRoute("post", "POST /search"),
		)},
		get("/", say("home")),
		get("/search", say("found")),
		get("/searching", say("searching")),
		Route{Method: http.MethodPost, Path: "/search", Handler: say("posted")},
		get("/users/{id}", say("user")),
		get("/users/{id}/posts/{post}", say("post")),
	))
	for target, want := range map[string][]string{
		"GET /":                nil,
		"GET /search":          {"search"},
		"GET /search?q=weir":   {"search"},
		"POST /search":         {"post"},
		"GET /searching":       nil,
		"GET /users/7":         {"user", "users"},
		"GET /users/search":    {"user", "users"},
		"GET /users/7/posts/8": {"own", "users"},
	} {
		require.Equal(s, want, s.applied(server, target), "the rules for %s", target)
	}
}

func rulesByRouteInGroups(s *suite) {
	at := func(level string) Limit {
		return rules(
			byRoute(level+" item", "GET /v1/orgs/{org}/items/{item}"),
			byRoute(level+" list", "GET /v1/orgs/{org}/items"),
			byRoute(level+" ping", "/v1/ping"),
			byRoute(level+" v1", "/v1/*"),
		)
	}
	server := s.serve(App{Group: Group{
		Limits: []Limit{at("router")},
		Routes: []Route{get("/ping", say("pong"))},
		Groups: []Group{{
			Prefix: "/v1", Limits: []Limit{at("v1")},
			Routes: []Route{get("/ping", say("pong"))},
			Groups: []Group{{
				Prefix: "/orgs/{org}", Limits: []Limit{at("org")},
				Routes: []Route{
					get("/items", say("items")),
					get("/items/{item}", say("item"), at("route")),
				},
			}},
		}},
	}})
	want := map[string][]string{
		"GET /ping":    nil,
		"GET /v1/ping": {"router ping", "router v1", "v1 ping", "v1 v1"},
		"GET /v1/orgs/a/items": {
			"router list", "router v1", "v1 list", "v1 v1", "org list", "org v1",
		},
		"GET /v1/orgs/v1/items/ping": {
			"router item", "router v1", "v1 item", "v1 v1", "org item", "org v1", "route item", "route v1",
		},
	}
	if s.router.Nested {
		want = map[string][]string{
			"GET /ping":                  nil,
			"GET /v1/ping":               {"router v1", "v1 ping", "v1 v1"},
			"GET /v1/orgs/a/items":       {"router v1", "v1 v1", "org list", "org v1"},
			"GET /v1/orgs/v1/items/ping": {"router v1", "v1 v1", "org item", "org v1", "route item", "route v1"},
		}
	}
	for target, want := range want {
		require.Equal(s, want, s.applied(server, target), "the rules for %s", target)
	}
}

func rulesByHost(s *suite) {
	byHost := map[string]middleware.Rule{}
	for _, pattern := range []string{"example.org/*", "POST example.org/search", "*.example.org/search", "[2001:db8::1]/*", "GET /search"} {
		byHost[pattern] = middleware.Rule{Name: pattern, Key: keyfunc.IP(), Limit: perHour(1000)}
	}
	server := s.serve(app(
		[]Limit{limits(middleware.Config{
			ByRoute: byHost,
			Rules:   []middleware.Rule{byRoute("also", "GET example.org/users/{id}", "*.example.org/*")},
			Default: &middleware.Rule{Name: "default", Limit: perHour(1000)},
		})},
		get("/search", say("found")),
		Route{Method: http.MethodPost, Path: "/search", Handler: say("posted")},
		get("/users/{id}", say("user"))))
	for _, test := range []struct {
		host, target string
		want         []string
	}{
		{"example.org", "GET /search", []string{"example.org/*"}},
		{"EXAMPLE.Org", "GET /search", []string{"example.org/*"}},
		{"example.org:8443", "POST /search", []string{"POST example.org/search"}},
		{"example.org.:80", "GET /users/7", []string{"also", "example.org/*"}},
		{"b.a.Example.org", "GET /search", []string{"also", "*.example.org/search"}},
		{"a.example.org", "GET /users/7", []string{"also", "default"}},
		{"[2001:DB8:0::1]:80", "GET /search", []string{"[2001:db8::1]/*"}},
		{"example.org.invalid", "GET /search", []string{"GET /search"}},
		{"example.org.invalid", "POST /search", []string{"default"}},
	} {
		request := server.request(s.Context(), test.target)
		request.Host = test.host
		a, err := server.try(request)
		require.NoError(s, err)
		require.Equal(s, 200, a.StatusCode)
		require.ElementsMatch(s, test.want, readFields(s, a.Header).order, "the rules for %s of %s", test.target, test.host)
	}
}

func ruleAroundRoute(s *suite) {
	server := s.serve(app(nil,
		get("/users/{id}", say("user"), rules(byRoute("this", "GET /users/{id}"), byRoute("other", "GET /search")))))
	require.Equal(s, []string{"this"}, s.applied(server, "GET /users/7"))
}

func counterPerRoute(s *suite) {
	server := s.serve(app(
		[]Limit{rules(middleware.Rule{Name: "route", Key: keyfunc.Route, Limit: perHour(2)})},
		get("/search", say("found")), get("/users/{id}", say("user"))))
	server.wantStatus(200, "", "GET /users/1")
	server.wantStatus(200, "", "GET /users/2")
	server.wantStatus(429, "all users are one route", "GET /users/3")
	server.wantStatus(200, "another route has another counter", "GET /search")
}

func headCountsAsGet(s *suite) {
	rule := byRoute("search", "GET /search")
	rule.Limit = perHour(3)
	server := s.serve(app([]Limit{rules(rule)}, get("/search", say("found")),
		Route{Method: http.MethodHead, Path: "/search", Handler: say("")}))
	server.wantStatus(200, "", "GET /search")
	server.wantStatus(200, "", "HEAD /search")
	server.wantStatus(200, "", "HEAD /search")
	server.wantStatus(429, "HEAD took what GET would have", "GET /search")
	server.wantStatus(429, "HEAD is refused as GET is", "HEAD /search")
}

func spellings(s *suite) {
	const limit = 3
	strict := func(name, pattern string) middleware.Rule {
		rule := byRoute(name, pattern)
		rule.Limit = perHour(limit)
		return rule
	}
	var searches, users, items atomic.Int32
	count := func(n *atomic.Int32) http.HandlerFunc {
		return func(http.ResponseWriter, *http.Request) { n.Add(1) }
	}
	everywhere := []Limit{rules(
		strict("search", "GET /search"), strict("user", "/users/{id}"), strict("item", "/v1/items/{item}"))}
	var inGroup []Limit
	if s.router.Nested {
		inGroup = []Limit{rules(strict("item", "/v1/items/{item}"))}
	}
	server := s.serve(App{Group: Group{
		Limits: everywhere,
		Routes: []Route{get("/search", count(&searches)), get("/users/{id}", count(&users))},
		Groups: []Group{{Prefix: "/v1", Limits: inGroup, Routes: []Route{get("/items/{item}", count(&items))}}},
	}})
	for range limit + 1 {
		for _, path := range []string{
			"/search", "//search", "/search/", "//search//", "/SEARCH", "/Search", "/./search", "/x/../search",
			"/%73earch", "/%2Fsearch", "/search%2F", "/search%2f..", "/search;v=1", "/search?page=2", "/search%20",
		} {
			server.ask("GET " + path)
		}
		for _, path := range []string{
			"/users/1", "/users/2/", "//users/3", "/users//4", "/users/%35", "/users/a%2Fb", "/users/a%2F..%2Fsearch", "/USERS/6", "/users/{id}",
		} {
			server.ask("GET " + path)
		}
		for _, path := range []string{
			"/v1/items/1", "/v1/items/2/", "//v1/items/3", "/v1//items/4", "/v1/%69tems/5", "/%761/items/6", "/v1/items/a%2Fb", "/v1/./items/7", "/V1/Items/8",
		} {
			server.ask("GET " + path)
		}
	}
	for route, ran := range map[string]int32{"/search": searches.Load(), "/users/{id}": users.Load(), "/v1/items/{item}": items.Load()} {
		// A spelling may count on a route without reaching it: a redirect to it does.
		if ran < 1 || ran > limit {
			s.Errorf("the handler of %s ran %d times, want from 1 to %d: however a path is spelled, it counts on the limit of the route that it reaches", route, ran, limit)
		}
	}
}

func misspeltRoute(s *suite) {
	var log bytes.Buffer
	limit := Limit{Rules: middleware.Must(middleware.New(middleware.Config{
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Rules: []middleware.Rule{
			byRoute("login", "POST /login"),
			byRoute("any", "DELETE /any"),
			byRoute("users", "/users/*", s.router.Pattern("GET /users/{name}")),
			byRoute("typo", "POST /logn"),
		},
	}))}
	server := s.serve(app([]Limit{limit}, get("/", say("home")), get("/users/{id}", say("user")),
		Route{Path: "/any", Handler: say("any")}, Route{Method: http.MethodPost, Path: "/login", Handler: say("in")}))
	for range 3 {
		server.wantStatus(200, "it is only warned of", "POST /login")
	}
	require.Equal(s, 1, strings.Count(log.String(), "weir-no-such-route"), log.String())
	require.Contains(s, log.String(), `rule=typo route="POST /logn"`)
}

func unknownPaths(s *suite) {
	var lock sync.Mutex
	var patterns []string
	limit := rules(middleware.Rule{
		Name: "all", Key: keyfunc.IP(), Limit: perHour(4),
		Match: func(r *http.Request) bool {
			lock.Lock()
			defer lock.Unlock()
			patterns = append(patterns, r.Pattern)
			return true
		},
	})
	server := s.serve(App{Group: Group{
		Limits: []Limit{limit},
		Routes: []Route{get("/search", say("found"))},
		Groups: []Group{{Prefix: "/v1", Routes: []Route{get("/items", say("items"))}}},
	}})
	for _, target := range []string{"GET /nosuch", "GET /v1/nosuch", "GET /search/nosuch", "GET /nosuch/%ff%00"} {
		a := server.wantStatus(404, "there is nothing there", target)
		require.Equal(s, "4", a.Header.Get("X-RateLimit-Limit"), "%s is counted", target)
	}
	server.wantStatus(429, "unknown paths are counted", "GET /nosuch")
	require.Len(s, patterns, 5)
	for _, pattern := range patterns {
		require.NotContains(s, pattern, "nosuch", "a raw path is never a pattern")
	}
}
