package routertest

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// byRoute is a rule for a pattern. The header fields show whether it applied.
func byRoute(events int64, name string, patterns ...string) middleware.Rule {
	return middleware.Rule{
		Name: name, Match: middleware.Route(patterns...), Key: keyfunc.IP(), Limit: perHour(events),
	}
}

// perID allows one request for each id in the path, and with FailOpen those whose id cannot be read.
func perID(onOutage limiter.Outage) Limit {
	return rules(middleware.Rule{
		Name: "id", Key: keyfunc.PathValue("id"), Limit: perHour(1), NoKey: middleware.NoKeySkip, OnOutage: onOutage,
	})
}

// A tally receives names.
type tally chan string

// check requires at least that many names, each counted at most that often, and returns them.
func (t tally) check(s *suite, names, most int) map[string]int {
	counts := map[string]int{}
	for len(t) > 0 {
		counts[<-t]++
	}
	if len(counts) < names {
		s.Errorf("counted %v, want at least %d names", counts, names)
	}
	for what, n := range counts {
		if n > most {
			s.Errorf("%s: counted %d times in all spellings, want at most %d", what, n, most)
		}
	}
	return counts
}

func spellings(s *suite) {
	const limit = 3
	ran := make(tally, 10_000)
	counted := func(what string) http.HandlerFunc { return func(http.ResponseWriter, *http.Request) { ran <- what } }
	item := byRoute(limit, "item", "/v1/items/{item}")
	var inGroup []Limit
	if s.router.Nested {
		inGroup = []Limit{rules(item)}
	}
	server := s.serve(App{Group: Group{
		Limits: []Limit{rules(byRoute(limit, "search", "GET /search"), byRoute(limit, "user", "/users/{id}"),
			byRoute(limit, "login", "POST /login"), item)},
		Routes: []Route{get("/search", counted("/search")), get("/users/{id}", counted("/users/{id}")),
			{Path: "/login", Handler: counted("/login")}},
		Groups: []Group{{Prefix: "/v1", Limits: inGroup, Routes: []Route{get("/items/{item}", counted("/v1/items/{item}"))}}},
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
		for _, method := range []string{"POST", "post", "Post", "pOsT"} {
			server.ask(method + " /login")
		}
	}
	ran.check(s, 4, limit) // a spelling may count on a route without reaching it: a redirect to it does
}

func misspeltRoute(s *suite) {
	var log bytes.Buffer
	limit := Limit{Rules: middleware.Must(middleware.New(middleware.Config{
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Rules: []middleware.Rule{
			byRoute(9, "login", "POST /login"),
			byRoute(9, "any", "DELETE /any"),
			byRoute(9, "users", "/users/*", s.router.Pattern("GET /users/{name}")),
			byRoute(9, "typo", "POST /logn"),
		},
	}))}
	// Not behind another handler: gin's adapter finds the routes of the server's own handler.
	server := s.serveHandler(s.build(app([]Limit{limit}, get("/", say("home")), get("/users/{id}", say("user")),
		Route{Path: "/any", Handler: say("any")}, Route{Method: http.MethodPost, Path: "/login", Handler: say("in")})))
	for range 3 {
		server.wantStatus(200, "the warning refuses nobody", "POST /login")
	}
	equal(s, 1, strings.Count(log.String(), "weir-no-such-route"), "warnings in the log "+log.String())
	equal(s, true, strings.Contains(log.String(), `rule=typo route="POST /logn"`), "the warning names the rule: "+log.String())
}

func unknownPaths(s *suite) {
	patterns := make(tally, 100)
	limit := rules(middleware.Rule{
		Name: "all", Key: keyfunc.IP(), Limit: perHour(4),
		Match: middleware.MatchFunc(func(r *http.Request) bool {
			patterns <- r.Pattern
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
	for pattern := range patterns.check(s, 1, 5) {
		equal(s, false, strings.Contains(pattern, "nosuch"), "a pattern has a part of the raw path: "+pattern)
	}
}

// keySpellings compares the keys with what handlers see, however a path is spelled.
func keySpellings(s *suite) {
	ran := make(tally, 10_000)
	see := func(route string) http.HandlerFunc {
		return func(_ http.ResponseWriter, r *http.Request) {
			id, err := url.PathUnescape(r.PathValue("id")) // chi's is escaped
			must(s, err, "the id of "+route)
			ran <- route + " for id " + id
		}
	}
	// Each route has a limiter of its own, as their ids are the same.
	servers := []*server{s.serve(app(nil,
		get("/users/{id}", see("user"), perID(limiter.FailLocal)),
		get("/notes/{id}", see("note"), perID(limiter.FailOpen)),
		get("/authors/{id}/posts", see("posts"), perID(limiter.FailLocal)),
		get("/files/{id}/*", see("file"), perID(limiter.FailLocal)),
		get("/teams/{team}/docs/{id}/*", see("doc"), perID(limiter.FailLocal)),
	))}
	if !s.router.Unrouted {
		servers = append(servers, s.serve(app([]Limit{perID(limiter.FailLocal)},
			get("/files/{id}/*", see("all")), get("/teams/{team}/docs/{id}/*", see("all")))))
	}
	for _, server := range servers {
		for range 2 {
			for _, id := range []string{"1", "%31", "a%2Fb", "%61%2fb", "a+b", "a%2Bb", "%C3%A9", "é", "1%2Fx", "."} {
				server.ask("GET /users/" + id)
				server.ask("GET /authors/" + id + "/posts")
				for _, path := range []string{"z", "../2/z", "x%2Fy", "%2e%2e/3"} {
					for _, prefix := range []string{"/files/", "/files//", "/files/x/../", "/files/y/../"} {
						server.ask("GET " + prefix + id + "/" + path)
					}
				}
			}
			server.ask("GET /notes/1")
			server.ask("GET /notes/1/2") // echo routes it to the note
		}
		for i := range 5 {
			// After a brace that is not escaped, net/url takes the whole path for unescaped. Most routers do not.
			for _, id := range []string{"7", "%37"} {
				r := server.request("GET /")
				r.URL.Opaque = fmt.Sprintf("/teams/x%%2Fdocs%%2F%d%%2F{/docs/%s/z", 100+i, id) // as it is
				_, err := server.try(r)
				must(s, err, r.URL.Opaque)
			}
		}
	}
	ran.check(s, 1, 1)
}
