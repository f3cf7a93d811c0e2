package routertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// An ask is a request and its answer.
type ask struct {
	target string // such as "GET /search; X-User: ann"
	status int
	said   string // by the fields, as saying writes it; "-": no fields; empty: not checked
	body   string // "-": no body; empty: not checked
	why    string
}

func (c *testCase) trace(s *suite) {
	asks := c.asks
	if s.router.Nested && c.nested != nil {
		asks = c.nested
	}
	server := s.serve(c.app(s))
	for i, ask := range asks {
		lines := strings.Split(ask.target, "; ")
		is := fmt.Sprintf("%d: %s", i, ask.why)
		a := server.wantStatus(ask.status, is, lines[0], lines[1:]...)
		equal(s, s.protocol, a.Proto, "protocol")
		if ask.said != "" {
			equal(s, strings.Trim(ask.said, "-"), saying(a.Header, strings.Contains(ask.said, "=")), is+": fields")
		}
		if ask.body != "" {
			equal(s, strings.Trim(ask.body, "-"), a.body, is+": body")
		}
		if a.StatusCode == http.StatusTooManyRequests {
			checkRefusal(s, a)
			if a.Request.Method != http.MethodHead {
				equal(s, int64(len(a.body)), a.ContentLength, is+": Content-Length: the handlers add nothing")
			}
		}
	}
}

func checkRefusal(s *suite, a answer) {
	s.Helper()
	equal(s, []string{"no-store"}, a.Header.Values("Cache-Control"), "Cache-Control of a refusal")
	if a.Header.Get("Retry-After") == "" {
		s.Error("a refusal has no Retry-After")
	}
}

var member = regexp.MustCompile(`"([^"]*)";r=([0-9]+)`)

// saying writes the fields: the rules of RateLimit in order ("all, search") or, with left, X-RateLimit-Remaining and
// -Limit and the rules with their remaining units ("1 of 2, all=9, search=1").
func saying(h http.Header, left bool) string {
	var parts []string
	if left {
		parts = append(parts, fmt.Sprint(strings.Join(h["X-Ratelimit-Remaining"], ","), " of ", strings.Join(h["X-Ratelimit-Limit"], ",")))
	}
	for _, m := range member.FindAllStringSubmatch(strings.Join(h["Ratelimit"], ", "), -1) {
		if left {
			m[1] += "=" + m[2]
		}
		parts = append(parts, m[1])
	}
	return strings.Join(parts, ", ")
}

// tell answers with the Result that the handler finds.
func tell(w http.ResponseWriter, r *http.Request) {
	result, ok := middleware.FromContext(r.Context())
	fmt.Fprintf(w, "%t %q: %d of %d in %q", ok, result.Rule, result.Remaining, result.Limit, result.Tier)
}

// answerAsAsked answers with the status that the request asks for.
func answerAsAsked(w http.ResponseWriter, r *http.Request) {
	status, _ := strconv.Atoi(r.Header.Get("X-Status"))
	w.WriteHeader(status)
}

var traces = []testCase{
	{
		name: "a limit for the router refuses after exactly N",
		app: func(*suite) App {
			return app([]Limit{named("ip", 3)}, get("/", say("home")), get("/search", say("found")))
		},
		asks: []ask{
			{"GET /", 200, "2 of 3, ip=2", "home", "the first passes"},
			{"GET /search", 200, "1 of 3, ip=1", "found", "the second passes"},
			{"GET /; X-Forwarded-For: 198.51.100.2", 200, "0 of 3, ip=0", "home", "a header from no trusted proxy makes no new client"},
			{"GET /", 429, "0 of 3, ip=0", "", "the fourth of three does not"},
			{"GET /search; Accept: text/plain", 429, "", "", "it is one limit for the whole router"},
		},
	},
	{
		name: "a limit for a route limits that route alone",
		app:  func(*suite) App { return app(nil, get("/", tell), get("/search", say("found"), named("ip", 2))) },
		asks: []ask{
			{"GET /search", 200, "1 of 2, ip=1", "", "the first passes"},
			{"GET /search", 200, "0 of 2, ip=0", "", "the second passes"},
			{"GET /search", 429, "", "", "the third of two does not"},
			{"GET /", 200, "-", `false "": 0 of 0 in ""`, "another route has no limit"},
		},
	},
	{
		name: "the tier comes from the context, and the handler's has the result",
		app: func(*suite) App {
			a := app([]Limit{rules(middleware.Rule{Name: "plan", Key: keyfunc.IP(), Limit: perHour(1),
				Tiers: middleware.Tiers{"premium": perHour(2)}})}, get("/", tell))
			a.Authenticate = func(r *http.Request) context.Context {
				return middleware.WithTier(r.Context(), r.Header.Get("X-Plan"))
			}
			return a
		},
		asks: []ask{
			{"GET /", 200, "", `true "plan": 0 of 1 in ""`, "the first without a plan"},
			{"GET /", 429, "", "", "one is all without a plan"},
			{"GET /; X-Plan: premium", 200, "", `true "plan": 1 of 2 in "premium"`, "premium"},
		},
	},
	{
		name: "limits of router, group and route all charge, and agree on one set of headers",
		app: func(*suite) App {
			all := named("all", 20)
			return App{Group: Group{Limits: []Limit{all, all}, Routes: []Route{get("/", say("home"))}, Groups: []Group{{
				Prefix: "/v1", Limits: []Limit{all}, Routes: []Route{get("/search", say("found"), named("search", 2))}}}}}
		},
		asks: []ask{
			{"GET /", 200, "18 of 20, all=19, all=18", "home", "the router's limits alone; a limiter charges in each place"},
			{"GET /v1/search", 200, "1 of 2, all=17, all=16, all=15, search=1", "found", "outer limits come first; X-RateLimit is the stricter"},
			{"GET /v1/search", 200, "0 of 2, all=14, all=13, all=12, search=0", "found", "and so on"},
			{"GET /v1/search", 429, "0 of 2, search=0", "", "a refusing rule comes first"},
		},
	},
	{
		name: "rules match by route with parameters", routed: true,
		app: func(s *suite) App {
			return app([]Limit{rules(byRoute(9, "search", "GET /search"), byRoute(9, "user", "GET /users/{id}"),
				byRoute(9, "own", "GET "+s.router.Pattern("/users/{name}/posts/{post}")), byRoute(9, "users", "/users/*"),
				byRoute(9, "post", "POST /search"))},
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
		name: "rules match by route in groups, wherever the limit is", routed: true,
		app: func(*suite) App {
			at := func(level string) Limit {
				return rules(byRoute(9, level+" item", "GET /v1/orgs/{org}/items/{item}"),
					byRoute(9, level+" list", "GET /v1/orgs/{org}/items"),
					byRoute(9, level+" ping", "/v1/ping"), byRoute(9, level+" v1", "/v1/*"))
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
			return app([]Limit{rules(byRoute(2, "search", "GET /search"))}, get("/search", say("found")),
				Route{Method: http.MethodHead, Path: "/search", Handler: say("")})
		},
		asks: []ask{
			{"GET /search", 200, "1 of 2, search=1", "", "the first"},
			{"HEAD /search", 200, "0 of 2, search=0", "", "the second"},
			{"GET /search", 429, "", "", "HEAD took what GET would have"},
			{"HEAD /search", 429, "0 of 2, search=0", "-", "HEAD is refused as GET is, with its fields and without a body"},
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
	{
		name: "a key from the body counts, and the handler reads the body",
		app: func(*suite) App {
			by := func(field string, events int64) Limit {
				return rules(middleware.Rule{Name: field, Key: keyfunc.JSONField(field, 256), Limit: perHour(events), NoKey: middleware.NoKeySkip})
			}
			return app([]Limit{by("account", 1)}, Route{Method: http.MethodPost, Path: "/login", Limits: []Limit{by("device", 9)},
				Handler: func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }})
		},
		asks: []ask{
			{`POST /login; Body: {"account":"jane","device":"a"}`, 200, "account, device", `{"account":"jane","device":"a"}`, "two limits read it"},
			{`POST /login; Body: {"account":"joe"}`, 200, "account", `{"account":"joe"}`, "each account has a counter of its own"},
			{`POST /login; Body: {"account":"jane"}`, 429, "", "", "the second of jane's"},
			{"POST /login; Body: no JSON", 200, "-", "no JSON", "no key"},
		},
	},
	{
		name: "only failed logins count",
		app: func(s *suite) App {
			return app([]Limit{s.stored(login(2))}, Route{Path: "/login", Handler: answerAsAsked})
		},
		asks: []ask{
			{"POST /login; X-Status: 200", 200, "", "", "a right one does not count"},
			{"POST /login; X-Status: 401", 401, "", "", "the first wrong one"},
			{"POST /login; X-Status: 200", 200, "", "", "a right one does not count"},
			{"POST /login; X-Status: 403", 403, "", "", "the second wrong one"},
			{"POST /login; X-Status: 200", 429, "", "", "two are all"},
		},
	},
	{
		name: "the status that answers a handler's error counts", errors: true,
		app: func(s *suite) App {
			wrong := errors.New("a wrong password")
			a := app([]Limit{s.stored(login(2))}, Route{Method: "GET", Path: "/", Handler: func(http.ResponseWriter, *http.Request) {}, Err: wrong})
			a.OnError = func(w http.ResponseWriter, err error) {
				if errors.Is(err, wrong) {
					w.WriteHeader(http.StatusUnauthorized)
				}
			}
			return a
		},
		asks: []ask{
			{"GET /", 401, "", "", "the router's error handling answers"},
			{"GET /", 401, "", "", "the router's error handling answers"},
			{"GET /", 429, "", "", "its status counts"},
		},
	},
	{
		name: "a reservation is refunded if a limiter further in refuses the request",
		app: func(s *suite) App {
			outer := s.stored(middleware.Rule{Name: "tokens", Key: keyfunc.Global, Limit: perHour(70),
				Cost: middleware.Reserve(func(*http.Request) int64 { return 30 })})
			between := s.stored(middleware.Rule{Name: "between", Key: keyfunc.Global, Limit: perHour(100), Counts: middleware.Statuses(200)})
			handler := func(_ http.ResponseWriter, r *http.Request) {
				if err := middleware.Settle(r.Context(), "tokens", 10); err != nil {
					s.Error(err)
				}
			}
			return app([]Limit{outer, between}, get("/", handler, named("narrow", 1)), get("/wide", handler))
		},
		asks: []ask{
			{"GET /", 200, "", "", "it leaves 60 of 70"},
			{"GET /", 429, "", "", "its 30 are refunded"},
			{"GET /", 429, "", "", "its 30 are refunded"},
			{"GET /wide", 200, "", "", "60 are left"},
		},
	},
	{
		name: "an application's own answer has the refusal's status",
		app: func(*suite) App {
			return app([]Limit{limits(middleware.Config{
				Rules: []middleware.Rule{{Name: "all", Key: keyfunc.Global, Limit: perHour(1)}},
				Refusal: middleware.Refusal{Answer: func(w http.ResponseWriter, r *http.Request, result middleware.Result) {
					_, _ = io.WriteString(w, "slower")
				}},
			})}, get("/", say("home")))
		},
		asks: []ask{
			{"GET /", 200, "", "home", "the first passes"},
			{"GET /", 429, "", "slower", "the second does not"},
		},
	},
	{
		name: "a client of gRPC can read its refusal, which counts as 429", only: http2,
		app: func(*suite) App {
			refusals := middleware.Rule{Name: "refusals", Key: keyfunc.Global, Limit: perHour(2), Counts: middleware.Statuses(429)}
			return app([]Limit{rules(refusals), named("cart", 1)}, Route{Method: http.MethodPost, Path: "/cart", Handler: say("added")})
		},
		asks: []ask{
			{"POST /cart; Content-Type: application/grpc; Body: message", 200, "refusals, cart", "added", "it passes"},
			{"POST /cart; Content-Type: application/grpc; Body: message", 200, "cart", "-", "the first refusal"},
			{"POST /cart; Content-Type: application/grpc; Body: message", 200, "cart", "-", "the second refusal"},
			{"POST /cart; Content-Type: application/grpc; Body: message", 200, "refusals", "-", "two refusals are all"},
		},
	},
}
