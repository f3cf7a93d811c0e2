package routertest

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// A trace is a sequence of requests to an App, with their answers.
type trace struct {
	name   string // what is promised
	routed bool   // limits for the whole router match by route
	app    func(*suite) App
	asks   []ask
	nested []ask // in place of asks if a group is a router of its own; nil: asks
}

// An ask is a request and its answer.
type ask struct {
	target string // such as "GET /search; X-User: ann"
	status int
	said   string // by the fields, as saying writes it; "-": no fields; empty: not checked
	body   string // "-": no body; empty: not checked; for a refusal in Weir's words its Content-Type
	why    string
}

func (t *trace) run(s *suite) {
	asks := t.asks
	if s.router.Nested && t.nested != nil {
		asks = t.nested
	}
	server := s.serve(t.app(s))
	for i, ask := range asks {
		lines := strings.Split(ask.target, "; ")
		a := server.ask(lines[0], lines[1:]...)
		is := fmt.Sprintf("%d: %s: %s", i, ask.target, ask.why)
		equal(s, ask.status, a.StatusCode, is)
		equal(s, s.protocol, a.Proto, "protocol")
		switch ask.said {
		case "":
		case "-":
			equal(s, 0, len(a.Header.Values("X-RateLimit-Limit"))+len(a.Header.Values("RateLimit")), is+": fields")
		default:
			equal(s, ask.said, saying(s, a.Header, ask.said), is)
		}
		switch ask.body {
		case "":
		case "-":
			equal(s, "", a.body, is)
		default:
			equal(s, ask.body, a.says(s), is)
		}
	}
}

// says returns the body or, for a refusal in Weir's words, its Content-Type. A refusal must be whole, and not cached.
func (a *answer) says(s *suite) string {
	if a.StatusCode != http.StatusTooManyRequests {
		return a.body
	}
	equal(s, int64(len(a.body)), a.ContentLength, "Content-Length of a refusal")
	equalLists(s, []string{"no-store"}, a.Header.Values("Cache-Control"), "Cache-Control of a refusal")
	if a.Header.Get("Retry-After") == "" {
		s.Error("a refusal has no Retry-After")
	}
	return a.Header.Get("Content-Type")
}

// saying writes the fields in the form of like: X-RateLimit-Remaining and -Limit ("1 of 2"), and the rules of
// RateLimit in order, with their remaining units ("all=9") or without ("all").
func saying(s *suite, h http.Header, like string) string {
	f, both, left := readFields(s, h), strings.Contains(like, " of "), strings.Contains(like, "=")
	var parts []string
	if both {
		parts = append(parts, fmt.Sprintf("%d of %d", f.remaining, f.limit))
	}
	for i, name := range f.names {
		switch {
		case left:
			parts = append(parts, fmt.Sprintf("%s=%d", name, f.left[i]))
		case !both:
			parts = append(parts, name)
		}
	}
	return strings.Join(parts, ", ")
}

// asAsked authenticates clients by their header fields.
func asAsked(a App) App {
	a.Authenticate = func(r *http.Request) context.Context {
		return keyfunc.WithUser(middleware.WithTier(r.Context(), r.Header.Get("X-Plan")), r.Header.Get("X-User"))
	}
	return a
}

// tell answers with the Result that the handler finds.
func tell(w http.ResponseWriter, r *http.Request) {
	result, ok := middleware.FromContext(r.Context())
	fmt.Fprintf(w, "%t %t %d %q: %d of %d in %q",
		ok, result.Allowed, result.Status, result.Rule, result.Remaining, result.Limit, result.Tier)
	for _, r := range result.Rules {
		fmt.Fprintf(w, ", %s %d", r.Rule.Name, r.Remaining)
	}
}

// named is a limit with one rule by address.
func named(name string, events int64) Limit {
	return rules(middleware.Rule{Name: name, Key: keyfunc.IP(), Limit: perHour(events)})
}

// traceCases returns the traces as cases.
func traceCases() (all []testCase) {
	for _, t := range traces {
		all = append(all, testCase{name: t.name, run: t.run, routed: t.routed})
	}
	return all
}

var traces = []trace{
	{
		name: "PerIP for the router refuses after exactly N",
		app: func(*suite) App {
			return app([]Limit{perIP(perHour(3))}, get("/", say("home")), get("/search", say("found")))
		},
		asks: []ask{
			{"GET /", 200, "2 of 3", "home", "the first passes"},
			{"GET /search; X-Forwarded-For: 198.51.100.1", 200, "", "found", "the second passes"},
			{"GET /; X-Forwarded-For: 198.51.100.2", 200, "", "", "the third passes"},
			{"GET /", 429, "0 of 3", "", "the fourth of three does not"},
			{"GET /search", 429, "", "", "it is one limit for the whole router"},
			{"GET /; X-Forwarded-For: 198.51.100.3", 429, "", "", "a header from no trusted proxy makes no new client"},
		},
	},
	{
		name: "PerIP for a route limits that route alone",
		app:  func(*suite) App { return app(nil, get("/", tell), get("/search", say("found"), perIP(perHour(2)))) },
		asks: []ask{
			{"GET /search", 200, "1 of 2", "", "the first passes"},
			{"GET /search", 200, "", "", "the second passes"},
			{"GET /search", 429, "", "", "the third of two does not"},
			{"GET /", 200, "-", `false false 0 "": 0 of 0 in ""`, "another route has no limit"},
		},
	},
	{
		name: "the tier comes from the context",
		app: func(*suite) App {
			return asAsked(app([]Limit{rules(middleware.Rule{Name: "plan", Key: keyfunc.IP(), Limit: perHour(1),
				Tiers: middleware.Tiers{"premium": perHour(2)}})}, get("/", tell)))
		},
		asks: []ask{
			{"GET /", 200, "0 of 1", `true true 0 "plan": 0 of 1 in "", plan 0`, "the first without a plan"},
			{"GET /", 429, "", "", "one is all without a plan"},
			{"GET /; X-Plan: premium", 200, "1 of 2", `true true 0 "plan": 1 of 2 in "premium", plan 1`, "premium"},
			{"GET /; X-Plan: premium", 200, "", "", "premium has two"},
			{"GET /; X-Plan: premium", 429, "", "", "premium has only two"},
			{"GET /; X-Plan: gold", 429, "", "", "a tier that the rule does not have is none"},
		},
	},
	{
		name: "one limiter in several places charges each time",
		app: func(*suite) App {
			limit := named("ip", 8)
			return App{Group: Group{Limits: []Limit{limit, limit}, Groups: []Group{{
				Prefix: "/v1", Limits: []Limit{limit}, Routes: []Route{get("/search", say("found"), limit)}}}}}
		},
		asks: []ask{
			{"GET /v1/search", 200, "4 of 8, ip=7, ip=6, ip=5, ip=4", "", "each request is charged in four places"},
			{"GET /v1/search", 200, "0 of 8, ip=3, ip=2, ip=1, ip=0", "", "each request is charged in four places"},
			{"GET /v1/search", 429, "", "", "eight are all"},
		},
	},
	{
		name: "router and route agree on one set of headers",
		app: func(*suite) App {
			return app([]Limit{named("all", 10)}, get("/search", say("found"), named("search", 2)), get("/", say("home")))
		},
		asks: []ask{
			{"GET /", 200, "9 of 10, all=9", "", "the router's limit alone"},
			{"GET /search", 200, "1 of 2, all=8, search=1", "", "outer limits come first; X-RateLimit is the stricter"},
			{"GET /search", 200, "0 of 2, all=7, search=0", "", "and so on"},
			{"GET /search", 429, "0 of 2, search=0", "", "a refusing rule comes first; the outer is charged"},
		},
	},
	{
		name: "a handler limits by a key that it alone knows",
		app: func(*suite) App {
			logins := rules(middleware.Rule{Name: "login", Key: keyfunc.Global, Limit: perHour(2)}).Rules
			return app([]Limit{named("all", 10)}, get("/login", func(w http.ResponseWriter, r *http.Request) {
				if logins.Allow(w, r, "login", r.Header.Get("X-User")) {
					fmt.Fprint(w, "welcome")
				}
			}))
		},
		asks: []ask{
			{"GET /login; X-User: ann", 200, "1 of 2, all=9, login=1", "welcome", "the router's limit comes first"},
			{"GET /login; X-User: ann", 200, "0 of 2, all=8, login=0", "welcome", "the second of ann"},
			{"GET /login; X-User: ann", 429, "0 of 2, login=0", "application/json", "the answer is whole"},
			{"GET /login; X-User: bob", 200, "1 of 2, all=6, login=1", "welcome", "bob is counted apart"},
		},
	},
	{
		name: "rules match by route with parameters", routed: true,
		app: func(s *suite) App {
			return app([]Limit{rules(byRoute("search", "GET /search"), byRoute("user", "GET /users/{id}"),
				byRoute("own", "GET "+s.router.Pattern("/users/{name}/posts/{post}")), byRoute("users", "/users/*"),
				byRoute("post", "POST /search"))},
				get("/", say("home")), get("/search", say("found")), get("/searching", say("searching")),
				Route{Method: http.MethodPost, Path: "/search", Handler: say("posted")},
				get("/users/{id}", say("user")), get("/users/{id}/posts/{post}", say("post")))
		},
		asks: []ask{
			{"GET /", 200, "-", "home", "no rule is for it"},
			{"GET /search", 200, "search", "found", "the method counts"},
			{"GET /search?q=weir", 200, "search", "found", "the query does not"},
			{"POST /search", 200, "post", "posted", "the method counts"},
			{"GET /searching", 200, "-", "searching", "a pattern is no prefix"},
			{"GET /users/7", 200, "user, users", "user", "a parameter stands for any value"},
			{"GET /users/search", 200, "user, users", "user", "also for the name of another route"},
			{"GET /users/7/posts/8", 200, "own, users", "post", "a parameter of any name, as the router spells it"},
		},
	},
	{
		name: "a rule may be for requests with a header or a parameter of the query",
		app: func(*suite) App {
			debug := middleware.MatchFunc(func(r *http.Request) bool {
				return r.Header.Get("X-Plan") == "beta" && r.URL.Query().Get("debug") == "1"
			})
			rule := middleware.Rule{Name: "debug", Key: keyfunc.IP(), Limit: perHour(1), Match: debug}
			return app([]Limit{named("all", 10), rules(rule)}, get("/users/{id}", say("user")))
		},
		asks: []ask{
			{"GET /users/7?debug=1; X-Plan: beta", 200, "all, debug", "user", "it has both"},
			{"GET /users/7?debug=1; X-Plan: beta", 429, "", "", "one is all for such requests"},
			{"GET /users/7?debug=2; X-Plan: beta", 200, "all", "user", "another value"},
			{"GET /users/7?debug=1", 200, "all", "user", "it has one of them"},
		},
	},
	{
		name: "rules match by route in groups, wherever the limit is", routed: true,
		app: func(*suite) App {
			at := func(level string) Limit {
				return rules(byRoute(level+" item", "GET /v1/orgs/{org}/items/{item}"),
					byRoute(level+" list", "GET /v1/orgs/{org}/items"),
					byRoute(level+" ping", "/v1/ping"), byRoute(level+" v1", "/v1/*"))
			}
			ping := []Route{get("/ping", say("pong"))}
			return App{Group: Group{Limits: []Limit{at("router")}, Routes: ping, Groups: []Group{{
				Prefix: "/v1", Limits: []Limit{at("v1")}, Routes: ping, Groups: []Group{{
					Prefix: "/orgs/{org}", Limits: []Limit{at("org")},
					Routes: []Route{get("/items", say("items")), get("/items/{item}", say("item"), at("route"))}}}}}}}
		},
		asks: []ask{
			{"GET /ping", 200, "-", "", "it is in no group"},
			{"GET /v1/ping", 200, "router ping, router v1, v1 ping, v1 v1", "", "it is in one"},
			{"GET /v1/orgs/a/items", 200, "router list, router v1, v1 list, v1 v1, org list, org v1", "",
				"a group has a parameter"},
			{"GET /v1/orgs/v1/items/ping", 200,
				"router item, router v1, v1 item, v1 v1, org item, org v1, route item, route v1", "",
				"values that are names elsewhere"},
		},
		nested: []ask{
			{"GET /ping", 200, "-", "", "it is in no group"},
			{"GET /v1/ping", 200, "router v1, v1 ping, v1 v1", "", "the outer limit does not know the inner routes"},
			{"GET /v1/orgs/a/items", 200, "router v1, v1 v1, org list, org v1", "",
				"the outer limits do not know the inner routes"},
			{"GET /v1/orgs/v1/items/ping", 200, "router v1, v1 v1, org item, org v1, route item, route v1", "",
				"values that are names elsewhere"},
		},
	},
	{
		name: "HEAD counts as GET", routed: true,
		app: func(*suite) App {
			return app([]Limit{rules(strictly(2, "GET /search"))}, get("/search", say("found")),
				Route{Method: http.MethodHead, Path: "/search", Handler: say("")})
		},
		asks: []ask{
			{"GET /search", 200, "1 of 2", "", "the first"},
			{"HEAD /search", 200, "0 of 2", "", "the second"},
			{"GET /search", 429, "", "", "HEAD took what GET would have"},
			{"HEAD /search", 429, "0 of 2, GET /search=0", "-", "HEAD is refused as GET is, with its fields and without a body"},
		},
	},
	{
		name: "a refusal is what the client accepts",
		app:  func(*suite) App { return app([]Limit{named("ip", 1)}, get("/", say("home"))) },
		asks: []ask{
			{"GET /", 200, "", "home", "the first passes"},
			{"GET /; Accept: application/problem+json", 429, "", "application/problem+json", "the handler adds nothing"},
			{"GET /", 429, "", "application/json", "no Accept: the client takes anything"},
			{"GET /; Accept: text/html", 429, "", "text/plain; charset=utf-8", "for browsers"},
		},
	},
	{
		name: "a key from the path is known in groups", routed: true,
		app: func(*suite) App {
			return App{Group: Group{Groups: []Group{{Prefix: "/orgs/{org}", Limits: []Limit{perID()},
				Routes: []Route{get("/users/{id}", say("user")), get("/users/{id}/posts/{post}", say("post"))}}}}}
		},
		asks: []ask{
			{"GET /orgs/a/users/1", 200, "", "user", "the first of 1"},
			{"GET /orgs/a/users/2", 200, "", "user", "the first of 2"},
			{"GET /orgs/a/users/1", 429, "", "", "the second of 1"},
			{"GET /orgs/a/users/2/posts/7", 429, "", "", "the second of 2, whatever the route"},
		},
	},
}
