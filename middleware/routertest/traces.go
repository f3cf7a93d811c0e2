package routertest

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// tracesText has the traces, in the language that the file describes.
//
//go:embed traces.txt
var tracesText string

// traces returns the cases in tracesText.
func traces() (all []testCase) {
	for _, text := range strings.Split(tracesText, "\n== ")[1:] {
		name, rest, _ := strings.Cut(text, "\n")
		needs, rest, _ := strings.Cut(rest, "\n")
		app, needs, _ := strings.Cut(needs, ", ")
		asks, nested, hasNested := strings.Cut(strings.TrimSpace(rest), "\nnested\n")
		all = append(all, testCase{name, needs, func(s *suite) {
			if s.router.Nested && hasNested {
				asks = nested
			}
			s.trace(apps[app](s), strings.Split(asks, "\n"))
		}})
	}
	return all
}

// trace sends the requests, and checks their answers.
func (s *suite) trace(app App, asks []string) {
	server := s.serve(app)
	for i, ask := range asks {
		cells := separator.Split(ask, -1)
		lines, fields, body, is := strings.Split(cells[0], "; "), cells[2], cells[3], fmt.Sprintf("%d: %s", i, cells[4])
		status, err := strconv.Atoi(cells[1])
		must(s, err, ask)
		ran := s.ran.Load()
		a := server.wantStatus(status, is, lines[0], lines[1:]...)
		equal(s, s.protocol, a.Proto, "protocol")
		if fields != "" {
			equal(s, strings.Trim(fields, "-"), saying(a.Header, strings.Contains(fields, "=")), is+": fields")
		}
		if body != "" {
			equal(s, strings.Trim(body, "-"), a.body, is+": body")
		}
		if a.StatusCode == http.StatusTooManyRequests {
			checkRefusal(s, a)
			equal(s, ran, s.ran.Load(), is+": handlers that ran")
		}
	}
}

func checkRefusal(s *suite, a answer) {
	s.Helper()
	equal(s, []string{"no-store"}, a.Header.Values("Cache-Control"), "Cache-Control of a refusal")
	equal(s, false, a.Header.Get("Retry-After") == "", "a refusal has no Retry-After")
}

var member, separator = regexp.MustCompile(`"([^"]*)";r=([0-9]+)`), regexp.MustCompile(` *\| *`)

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

// apps are the Apps of traces.txt, by name.
var apps = map[string]func(*suite) App{
	"whole": func(*suite) App {
		return app([]Limit{named("ip", 3)}, get("/", say("home")), get("/search", say("found")))
	},
	"route": func(*suite) App { return app(nil, get("/", tell), get("/search", say("found"), named("ip", 2))) },
	"tier": func(*suite) App {
		a := app([]Limit{rules(middleware.Rule{Name: "plan", Key: keyfunc.IP(), Limit: perHour(1),
			Tiers: middleware.Tiers{"premium": perHour(2)}})}, get("/", tell))
		a.Authenticate = func(r *http.Request) context.Context { return middleware.WithTier(r.Context(), r.Header.Get("X-Plan")) }
		return a
	},
	"levels": func(*suite) App {
		all := named("all", 20)
		return App{Group: Group{Limits: []Limit{all, all}, Routes: []Route{get("/", say("home"))}, Groups: []Group{{
			Prefix: "/v1", Limits: []Limit{all}, Routes: []Route{get("/search", say("found"), named("search", 2))}}}}}
	},
	"users": func(s *suite) App {
		return app([]Limit{rules(byRoute(9, "search", "GET /search"), byRoute(9, "user", "GET /users/{id}"),
			byRoute(9, "own", "GET "+s.router.Pattern("/users/{name}/posts/{post}")), byRoute(9, "users", "/users/*"),
			byRoute(9, "post", "POST /search"))},
			get("/", say("home")), get("/search", say("found")), get("/searching", say("searching")),
			Route{Method: http.MethodPost, Path: "/search", Handler: say("posted")},
			get("/users/{id}", say("user")), get("/users/{id}/posts/{post}", say("post")))
	},
	"orgs": func(*suite) App {
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
	"search": func(*suite) App {
		return app([]Limit{rules(byRoute(2, "search", "GET /search"))}, get("/search", say("found")),
			Route{Method: http.MethodHead, Path: "/search", Handler: say("")})
	},
	"ids": func(*suite) App {
		return App{Group: Group{Groups: []Group{{Prefix: "/orgs/{org}", Limits: []Limit{perID(limiter.FailLocal)},
			Routes: []Route{get("/users/{id}", say("user")), get("/users/{id}/posts/{post}", say("post"))}}}}}
	},
	"accounts": func(*suite) App {
		by := func(field string, events int64) Limit {
			return rules(middleware.Rule{Name: field, Key: keyfunc.JSONField(field, 256), Limit: perHour(events), NoKey: middleware.NoKeySkip})
		}
		return app([]Limit{by("account", 1)}, Route{Method: http.MethodPost, Path: "/login", Limits: []Limit{by("device", 9)},
			Handler: func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }})
	},
	"login": func(s *suite) App {
		return app([]Limit{s.stored(login(2))}, Route{Path: "/login", Handler: act})
	},
	"failing": func(s *suite) App {
		a := app([]Limit{s.stored(login(2))}, Route{Method: "GET", Path: "/", Handler: act, Err: errors.New("a wrong password")})
		a.OnError = func(w http.ResponseWriter, _ error) { w.WriteHeader(http.StatusUnauthorized) }
		return a
	},
	"tokens": func(s *suite) App {
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
	"cart": func(*suite) App {
		refusals := middleware.Rule{Name: "refusals", Key: keyfunc.Global, Limit: perHour(2), Counts: middleware.Statuses(429)}
		return app([]Limit{rules(refusals), named("cart", 1)}, Route{Method: http.MethodPost, Path: "/cart", Handler: say("added")})
	},
}
