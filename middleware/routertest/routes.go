package routertest

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// byRoute is a generous rule for a pattern. The header fields show whether it applied.
func byRoute(name string, patterns ...string) middleware.Rule {
	return middleware.Rule{
		Name: name, Match: middleware.Route(patterns...), Key: keyfunc.IP(), Limit: perHour(1000),
	}
}

// strictly is byRoute with a limit that is met.
func strictly(events int64, pattern string) middleware.Rule {
	rule := byRoute(pattern, pattern)
	rule.Limit = perHour(events)
	return rule
}

func spellings(s *suite) {
	const limit = 3
	ran := runs{}
	item := strictly(limit, "/v1/items/{item}")
	everywhere := []Limit{rules(strictly(limit, "GET /search"), strictly(limit, "/users/{id}"), item)}
	var inGroup []Limit
	if s.router.Nested {
		inGroup = []Limit{rules(item)}
	}
	server := s.serve(App{Group: Group{
		Limits: everywhere,
		Routes: []Route{get("/search", ran.handler("/search")), get("/users/{id}", ran.handler("/users/{id}"))},
		Groups: []Group{{Prefix: "/v1", Limits: inGroup, Routes: []Route{get("/items/{item}", ran.handler("/v1/items/{item}"))}}},
	}})
	for range limit + 1 {
		for _, path := range []string{
			"/search", "//search", "/search/", "//search//", "/SEARCH", "/Search", "/./search", "/x/../search",
			"/%73earch", "/%2Fsearch", "/search%2F", "/search%2f..", "/search;v=1", "/search?page=2", "/search%20",

			"/users/1", "/users/2/", "//users/3", "/users//4", "/users/%35", "/users/a%2Fb", "/users/a%2F..%2Fsearch",
			"/USERS/6", "/users/{id}",

			"/v1/items/1", "/v1/items/2/", "//v1/items/3", "/v1//items/4", "/v1/%69tems/5", "/%761/items/6",
			"/v1/items/a%2Fb", "/v1/./items/7", "/V1/Items/8",
		} {
			server.ask("GET " + path)
		}
	}
	ran.check(s, limit) // a spelling may count on a route without reaching it: a redirect to it does
}

// requestSpellings spells the method and the host in ways that some handlers understand.
func requestSpellings(s *suite) {
	const limit = 3
	ran := runs{}
	login, shop := []Limit{rules(strictly(limit, "POST /login"))}, []Limit{rules(strictly(limit, "shop.example/*"))}
	server := s.serve(app(login, Route{Path: "/login", Handler: ran.handler("POST /login")}))
	ofHost := s.serve(app(shop, get("/cart", ran.handler("shop.example"))))
	for range limit + 1 {
		for _, method := range []string{"POST", "post", "Post", "pOsT"} {
			server.ask(method + " /login")
		}
		for _, host := range []string{
			"shop.example", "SHOP.example", "shop.example.", "shop.example:80", "shop.example:", "Shop.Example.:0080",
		} {
			ofHost.ask("GET /cart", "Host: "+host)
		}
	}
	ran.check(s, limit)
	for _, host := range []string{
		"shop.example:80:80", "shop.example::", "shop.example:8o", "shop.example:+80", "shop.example..",
		"shop.example,other.example", "shop%2eexample", "other.example;shop.example",
	} {
		ofHost.wantStatus(400, "programs read this host differently: "+host, "GET /cart", "Host: "+host)
	}
	ofHost.wantStatus(200, "another host has no rule", "GET /cart", "Host: other.example")
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
		server.wantStatus(200, "the warning refuses nobody", "POST /login")
	}
	equal(s, 1, strings.Count(log.String(), "weir-no-such-route"), "warnings in the log "+log.String())
	if want := `rule=typo route="POST /logn"`; !strings.Contains(log.String(), want) {
		s.Errorf("the log is %s, want a warning with %s", log.String(), want)
	}
}

func unknownPaths(s *suite) {
	var lock sync.Mutex
	var patterns []string
	limit := rules(middleware.Rule{
		Name: "all", Key: keyfunc.IP(), Limit: perHour(4),
		Match: middleware.MatchFunc(func(r *http.Request) bool {
			lock.Lock()
			defer lock.Unlock()
			patterns = append(patterns, r.Pattern)
			return true
		}),
	})
	server := s.serve(App{Group: Group{
		Limits: []Limit{limit},
		Routes: []Route{get("/search", say("found"))},
		Groups: []Group{{Prefix: "/v1", Routes: []Route{get("/items", say("items"))}}},
	}})
	for _, target := range []string{"GET /nosuch", "GET /v1/nosuch", "GET /search/nosuch", "GET /nosuch/%ff%00"} {
		a := server.wantStatus(404, "there is nothing there", target)
		equal(s, "4", a.Header.Get("X-RateLimit-Limit"), target+" counts")
	}
	server.wantStatus(429, "unknown paths count", "GET /nosuch")
	equal(s, 5, len(patterns), "requests that the rule saw")
	for _, pattern := range patterns {
		if strings.Contains(pattern, "nosuch") {
			s.Errorf("the pattern is %q, want no part of the raw path", pattern)
		}
	}
}
