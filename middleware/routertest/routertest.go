// Package routertest tests whether Weir keeps its promises behind a router. It is for authors of adapters.
//
// An adapter gives the router's pattern and path values to a [middleware.RateLimit], asks for a decision, and
// reports how the request ended. The suite tests all of that over real connections, in HTTP/1.1 and HTTP/2:
//
//	func TestTheAdapterKeepsItsPromises(t *testing.T) {
//		routertest.Run(t, routertest.Router{
//			Build: func(app routertest.App) http.Handler { ... },
//		})
//	}
//
// Build writes an [App] for the router, as its users would. Each case begins with a new App. The case's name is a
// promise. Run one like any subtest:
//
//	go test -run 'TestTheAdapterKeepsItsPromises/HTTP/1.1/HEAD_counts_as_GET'
package routertest

import (
	"context"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// A Router describes a router and its adapter. Build is required.
type Router struct {
	// Build returns a handler that serves app.
	Build func(app App) http.Handler

	// Pattern spells a path or a pattern with a method as the router does, such as "/users/:id" for "/users/{id}".
	// Nil: the router spells paths as [Route] does.
	Pattern func(path string) string

	// Unrouted is set if limits for the whole router or a group run before routing, so that their rules cannot
	// match by route.
	Unrouted bool

	// Nested is set if a group is a router of its own, so that outer limits do not know its routes.
	Nested bool

	// Unlisted is set if the adapter does not call RateLimit.KnowRoutes, so that no warning names a rule whose
	// route does not exist.
	Unlisted bool

	// ReturnsErrors is set if handlers return errors and the adapter passes them to the router's error handling
	// before the request ends. Then the suite uses Route.Err and App.OnError.
	ReturnsErrors bool

	// OnRefused is set if the adapter has an option for the application's own answer. Then the suite uses
	// Limit.OnRefused and App.OnStatus.
	OnRefused bool

	// KeepsRequest is set if the router's own context keeps the request, as gin's c.Request, so that a middleware
	// can replace it. Then the suite uses Route.Context.
	KeepsRequest bool

	// Store returns an empty store for the cases about the end of requests. Nil: a store in memory.
	Store func(testing.TB) limiter.Store
}

// An App is a program for a router. Build leaves out what is nil or empty.
type App struct {
	// Authenticate returns the context that a middleware in front of all limits sets.
	Authenticate func(*http.Request) context.Context

	// OnError answers an error in place of the router's error handling, unless the response has begun.
	OnError func(w http.ResponseWriter, err error)

	// OnStatus gets the status that a middleware in front of all limits sees when the rest has returned.
	OnStatus func(status int)

	// Group has the limits of the whole router, its routes and its groups. Its prefix is empty.
	Group
}

// A Group is routes with a common prefix and limits.
type Group struct {
	Prefix string
	Limits []Limit // the outermost first
	Routes []Route
	Groups []Group
}

// A Route is one method and one path.
type Route struct {
	Method  string           // empty: all methods
	Path    string           // within its group, with parameters such as {id}; "/*" ends a path for all that follows
	Limits  []Limit          // for this route alone
	Handler http.HandlerFunc // gets the path's parameters from r.PathValue
	Err     error            // what the router's handler returns after Handler

	// Context returns the context that a middleware behind all limits sets, by a copy of the request in the router's
	// context.
	Context func(*http.Request) context.Context
}

// A Limit is one middleware of the adapter.
type Limit struct {
	Rules *middleware.RateLimit

	// OnRefused is for the adapter's option, with the ResponseWriter and the request of the router's context. An
	// adapter whose option returns no error ignores the error.
	OnRefused func(w http.ResponseWriter, r *http.Request, result middleware.Result) error
}

// ColonParams is the Pattern of routers that spell {id} as :id. It leaves a "/*" at the end.
func ColonParams(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

// Run tests the adapter of a router.
func Run(t *testing.T, router Router) {
	t.Helper()
	if router.Build == nil {
		t.Fatal("routertest: a Router needs Build")
	}
	if router.Pattern == nil {
		router.Pattern = func(path string) string { return path }
	}
	for _, protocol := range []string{http1, http2} {
		t.Run(protocol, func(t *testing.T) {
			for _, c := range slices.Concat(cases, traces()) {
				if !c.isFor(router, protocol) {
					continue
				}
				t.Run(c.name, func(t *testing.T) { c.run(&suite{TB: t, router: router, protocol: protocol}) })
			}
		})
	}
}

const http1, http2 = "HTTP/1.1", "HTTP/2.0"

// A testCase tests a promise.
type testCase struct {
	name  string // what is promised
	needs string // words that isFor knows
	run   func(*suite)
}

func (c *testCase) isFor(router Router, protocol string) bool {
	lacks := map[string]bool{
		"routed":  router.Unrouted,       // limits for the whole router match by route
		"listed":  router.Unlisted,       // the adapter lists the router's routes
		"errors":  !router.ReturnsErrors, // handlers return errors
		"answers": !router.OnRefused,     // the adapter has OnRefused
		http1:     protocol != http1, http2: protocol != http2,
	}
	return !slices.ContainsFunc(strings.Fields(c.needs), func(need string) bool { return lacks[need] })
}

var cases = []testCase{
	{"spellings of a path cannot evade its limit", "routed", spellings},
	{"a rule for a route that does not exist logs a warning", "routed listed", misspeltRoute},
	{"a key from the path is what the handler sees, however the path is spelled", "", keySpellings},
	{"unknown paths count and have no pattern", "", unknownPaths},
	{"no file of an upload stays on disk", "", forms},
	{"a client that sends its whole body first gets its refusal", http1, refusedUploads},
	{"an application's answer has the refusal's status unless it sets another", "answers", ownAnswers},
	{"the status that was sent counts, however the handler ends", "", outcomes},
	{"a slot learns when its handler waits for its client", "", slotsKnowOfSlowClients},
	{"server-sent events arrive one by one, and a slot learns of the first", "", events},
	{"the ResponseWriter can do what it can without a limit", "", sameResponseWriter},
	{"an upgraded connection is the handler's", http1, upgrade},
}

// A suite runs one case.
type suite struct {
	testing.TB
	router   Router
	protocol string
	ran      atomic.Int64 // handlers
}

// build returns the router's handler for app, whose paths it spells as the router does.
func (s *suite) build(app App) http.Handler {
	app.Group = s.spelled(app.Group)
	return s.router.Build(app)
}

func (s *suite) spelled(g Group) Group {
	g.Prefix, g.Routes, g.Groups = s.router.Pattern(g.Prefix), slices.Clone(g.Routes), slices.Clone(g.Groups)
	for i := range g.Routes {
		handler := g.Routes[i].Handler
		g.Routes[i].Path = s.router.Pattern(g.Routes[i].Path)
		g.Routes[i].Handler = func(w http.ResponseWriter, r *http.Request) {
			s.ran.Add(1)
			handler(w, r)
		}
	}
	for i := range g.Groups {
		g.Groups[i] = s.spelled(g.Groups[i])
	}
	return g
}

// A server serves an App.
type server struct {
	t      testing.TB
	url    string
	client *http.Client
	ends   chan bool // of requests; nil: nobody waits for them
}

// serve serves app behind a handler that copies requests, as middleware does: package http does not see their forms.
func (s *suite) serve(app App) *server {
	handler, ends := s.build(app), make(chan bool, 1000)
	server := s.serveHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { ends <- true }()
		handler.ServeHTTP(w, r.WithContext(r.Context()))
	}))
	server.ends = ends
	return server
}

func (s *suite) serveHandler(h http.Handler) *server {
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // cases panic on purpose
	protocols := new(http.Protocols)
	protocols.SetHTTP1(s.protocol == http1)
	protocols.SetUnencryptedHTTP2(s.protocol == http2) // handshakes would be most of the suite's time
	srv.Config.Protocols = protocols
	srv.Start()
	s.Cleanup(srv.Close)
	client := srv.Client()
	client.Transport.(*http.Transport).Protocols = protocols
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &server{t: s.TB, url: srv.URL, client: client}
}

// An answer is a response and its whole body.
type answer struct {
	*http.Response
	body string
}

// request makes a request such as "GET /search". Headers are written like "Accept: text/plain", and a body like
// "Body: text".
func (s *server) request(target string, header ...string) *http.Request {
	s.t.Helper()
	method, path, _ := strings.Cut(target, " ")
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, nil)
	must(s.t, err, target)
	for _, line := range header {
		if name, value, _ := strings.Cut(line, ": "); name == "Body" {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(value)), int64(len(value))
		} else {
			r.Header.Add(name, value)
		}
	}
	return r
}

func (s *server) ask(target string, header ...string) answer {
	s.t.Helper()
	a, err := s.try(s.request(target, header...))
	must(s.t, err, target)
	return a
}

// try sends a request, and waits for its end, which may come after its answer.
func (s *server) try(r *http.Request) (a answer, err error) {
	response, err := s.client.Do(r)
	if err == nil {
		defer response.Body.Close()
		var body []byte
		body, err = io.ReadAll(response.Body)
		a = answer{response, string(body)}
	}
	if s.ends != nil {
		receive(s.t, s.ends, "the end of a request")
	}
	return a, err
}

// wantStatus sends a request and checks the status.
func (s *server) wantStatus(want int, why, target string, header ...string) answer {
	s.t.Helper()
	a := s.ask(target, header...)
	equal(s.t, want, a.StatusCode, target+": "+why)
	return a
}

// limits makes a limiter that discards its warnings.
func limits(c middleware.Config) Limit {
	c.Logger = slog.New(slog.DiscardHandler)
	c.Headers.Send = middleware.HeadersBoth // they list the rules that apply
	return Limit{Rules: middleware.Must(middleware.New(c))}
}

func rules(rules ...middleware.Rule) Limit {
	return limits(middleware.Config{Rules: rules, Results: true})
}

// stored is rules on the router's Store.
func (s *suite) stored(rule middleware.Rule) Limit {
	c := middleware.Config{Rules: []middleware.Rule{rule}}
	if s.router.Store != nil {
		c.Store = s.router.Store(s.TB)
	}
	return limits(c)
}

// perHour is a limit without windows: real connections have no fake time, and no case may depend on when an hour
// begins.
func perHour(events int64) limiter.Limit { return limiter.PerHour(events).With(limiter.SlidingLog) }

// named is a limit with one rule by address.
func named(name string, events int64) Limit {
	return rules(middleware.Rule{Name: name, Key: keyfunc.IP(), Limit: perHour(events)})
}

// login is a rule for failed logins.
func login(events int64) middleware.Rule {
	return middleware.Rule{
		Name: "login", Key: keyfunc.Global, Limit: perHour(events), Counts: middleware.Statuses(401, 403),
	}
}

// say returns a handler that answers 200 with a text.
func say(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

func get(path string, handler http.HandlerFunc, limits ...Limit) Route {
	return Route{Method: http.MethodGet, Path: path, Handler: handler, Limits: limits}
}

// app returns an App of these routes.
func app(limit []Limit, routes ...Route) App {
	return App{Group: Group{Limits: limit, Routes: routes}}
}

// equal ends the case if got is not want. Why says what is promised.
func equal[V any](t testing.TB, want, got V, why string) {
	t.Helper()
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("%s: got %#v, want %#v", why, got, want)
	}
}

// must ends the case if err is not nil.
func must(t testing.TB, err error, why string) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", why, err)
	}
}

// receive waits for something that must happen. The half minute only ends a broken test.
func receive[T any](t testing.TB, from <-chan T, what string) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(30 * time.Second):
		t.Fatalf("waited half a minute for %s", what)
	}
	return value
}
