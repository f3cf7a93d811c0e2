// Package routertest is the suite that Weir passes behind every router, over real
// connections in HTTP/1.1 and HTTP/2.
//
// A [Router] describes a router: its Build turns an [App] into a handler, as a user of that router would write
// it. [Run] runs the suite.
package routertest

import (
	"context"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// A Router describes how to write an App for a router.
type Router struct {
	// Build returns a handler that serves app.
	Build func(app App) http.Handler

	// Pattern spells a path as the router does: "/users/:id" for "/users/{id}", for example. Nil: the
	// router uses braces.
	Pattern func(path string) string

	// Unrouted is set if limits for the whole router or a group run before routing, so that rules
	// there cannot match by route.
	Unrouted bool

	// Fails returns a handler whose route "GET /" returns an error, which the router's own error
	// handling answers with 401. Nil: handlers of the router return no errors.
	Fails func(limits []Limit) http.Handler

	// Refuses returns a handler with the route "GET /", and a limit in front of it whose OnRefused
	// is answer. A middleware of the router's further out passes the status that it sees to seen.
	// Nil: the adapter has no OnRefused.
	Refuses func(limits *middleware.RateLimit, answer Answer, seen func(status int)) http.Handler

	// Nested is set if a group is a router of its own, so that outer limits do not know its routes.
	Nested bool

	// Unlisted is set if the router does not list its routes, so that rules for others are not warned of.
	Unlisted bool
}

// An App is a program for a router.
type App struct {
	// Authenticate returns the context that a middleware in front of all limits sets. Nil: no such
	// middleware.
	Authenticate func(*http.Request) context.Context

	// Group has the limits of the whole router, its routes and its groups.
	// Its prefix is empty.
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
	Path    string           // within its group, with parameters such as {id}; "/*" ends one for all that follows
	Limits  []Limit          // for this route alone
	Handler http.HandlerFunc // finds the parameters as the router does, with r.PathValue
}

// A Limit is one middleware of the adapter's: New(Rules), or PerIP(PerIP).
type Limit struct {
	Rules *middleware.RateLimit
	PerIP limiter.Limit
}

// NetHTTP returns l as middleware of net/http.
func (l Limit) NetHTTP() func(http.Handler) http.Handler {
	if l.Rules != nil {
		return l.Rules.Handler
	}
	return middleware.PerIP(l.PerIP)
}

// ColonParams spells {id} as :id, and a "/*" at the end as it is.
func ColonParams(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

// Run runs the suite.
func Run(t *testing.T, router Router) {
	all := slices.Clone(cases)
	for _, trace := range traces {
		all = append(all, testCase{claim: trace.claim, run: trace.run, routed: trace.routed})
	}
	run(t, router, all, nil)
}

// RunEnds runs the cases about the end of requests. Each case calls store for an empty store.
func RunEnds(t *testing.T, router Router, store func(*testing.T) limiter.Store) {
	run(t, router, slices.DeleteFunc(slices.Clone(cases), func(c testCase) bool { return !c.ends }), store)
}

func run(t *testing.T, router Router, cases []testCase, store func(*testing.T) limiter.Store) {
	if router.Pattern == nil {
		router.Pattern = func(path string) string { return path }
	}
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			for _, c := range cases {
				if c.routed && router.Unrouted || c.listed && router.Unlisted || c.only != "" && c.only != protocol {
					continue
				}
				t.Run(c.claim, func(t *testing.T) {
					c.run(&suite{T: t, router: router, protocol: protocol, store: store})
				})
			}
		})
	}
}

// A testCase is one claim about every router.
type testCase struct {
	claim  string
	run    func(*suite)
	routed bool   // limits for the whole router match by route
	listed bool   // the router lists its routes
	only   string // protocol
	ends   bool   // part of RunEnds
}

var cases = []testCase{

	{claim: "spellings of a path cannot evade its limit", run: spellings, routed: true},
	{claim: "no spelling of the method or the host leaves the limit", run: requestSpellings, routed: true},
	{claim: "a rule for a route that is not there is warned of", run: misspeltRoute, routed: true, listed: true},
	{claim: "a key from the path is what the handler sees, however it is spelled", run: keySpellings},
	{claim: "a key from the body is counted, and the handler reads the body", run: keyFromBody},
	{claim: "no file of an upload stays on disk", run: forms},
	{claim: "unknown paths are counted and have no pattern", run: unknownPaths},
	{claim: "a refused upload gets its answer, whoever sends it", run: refusedUploads, only: "HTTP/1.1"},
	{claim: "an application's answer has the refusal's status unless it says another", run: ownAnswers},

	{claim: "five failed logins, and right ones without end", run: failedLogins, ends: true},
	{claim: "values are counted once, and not at all where the answer does not count", run: distinctValues, ends: true},
	{claim: "logins at once", run: loginsAtOnce, ends: true},
	{claim: "what counts is the status that was sent, however the handler ends", run: outcomes, ends: true},
	{claim: "a client that breaks its body off, or holds it back, is charged whatever is answered", run: heldBack, ends: true},
	{claim: "an error that a handler returns counts as it is answered", run: errorsAreAnswered},

	{claim: "a slot learns when its handler waits for its client", run: slotsKnowOfSlowClients},
	{claim: "server-sent events arrive one by one", run: events},
	{claim: "the ResponseWriter is what it is without a limit", run: sameResponseWriter},
	{claim: "an upgraded connection is the handler's", run: upgrade, only: "HTTP/1.1"},
}

// A suite is one case's view of the router.
type suite struct {
	*testing.T
	router   Router
	protocol string
	store    func(*testing.T) limiter.Store // nil: memory
}

// A server serves an App.
type server struct {
	t      *testing.T
	url    string
	client *http.Client
}

func (s *suite) serve(app App) *server { return s.serveHandler(s.router.Build(app)) }

func (s *suite) serveHandler(h http.Handler) *server {
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // cases panic on purpose
	protocols := new(http.Protocols)
	protocols.SetHTTP1(s.protocol == "HTTP/1.1")
	protocols.SetUnencryptedHTTP2(s.protocol == "HTTP/2.0") // handshakes would be most of the suite's time
	srv.Config.Protocols = protocols
	srv.Start()
	s.Cleanup(srv.Close)
	client := srv.Client()
	client.Transport.(*http.Transport).Protocols = protocols
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &server{t: s.T, url: srv.URL, client: client}
}

// An answer is a response that was read to its end.
type answer struct {
	*http.Response
	body string
}

// request makes a request. Headers are written like "Accept: text/plain".
func (s *server) request(ctx context.Context, target string, header ...string) *http.Request {
	s.t.Helper()
	method, path, _ := strings.Cut(target, " ")
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, nil)
	require.NoError(s.t, err)
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Add(name, value)
	}
	return r
}

// ask sends a request such as "GET /search".
func (s *server) ask(target string, header ...string) answer {
	s.t.Helper()
	a, err := s.try(s.request(s.t.Context(), target, header...))
	require.NoError(s.t, err, target)
	return a
}

// askRaw asks for a path as it is spelled here, which package http would correct.
func (s *server) askRaw(path string) {
	s.t.Helper()
	r := s.request(s.t.Context(), "GET /")
	r.URL.Opaque = path
	_, err := s.try(r)
	require.NoError(s.t, err, path)
}

func (s *server) try(r *http.Request) (answer, error) {
	response, err := s.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response, string(body)}, err
}

// wantStatus sends a request and checks the status.
func (s *server) wantStatus(want int, why, target string, header ...string) answer {
	s.t.Helper()
	a := s.ask(target, header...)
	require.Equal(s.t, want, a.StatusCode, "%s: %s", target, why)
	return a
}

// limits makes a limiter that keeps its warnings to itself.
func limits(c middleware.Config) Limit {
	c.Logger = slog.New(slog.DiscardHandler)
	return Limit{Rules: middleware.Must(middleware.New(c))}
}

func rules(rules ...middleware.Rule) Limit {
	return limits(middleware.Config{Rules: rules, Results: true})
}

// perHour is a limit without windows: real connections know no fake time, and no case may
// depend on when the clock says that an hour begins.
func perHour(events int64) limiter.Limit { return limiter.PerHour(events).With(limiter.SlidingLog) }

func perIP(limit limiter.Limit) Limit { return Limit{PerIP: limit} }

// say is a handler that answers 200 with a text.
func say(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

func get(path string, handler http.HandlerFunc, limits ...Limit) Route {
	return Route{Method: http.MethodGet, Path: path, Handler: handler, Limits: limits}
}

// app is an App of these routes.
func app(limit []Limit, routes ...Route) App {
	return App{Group: Group{Limits: limit, Routes: routes}}
}

// receive waits for something that must happen. The half minute only ends a broken test.
func receive[T any](t *testing.T, from <-chan T, what string) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(30 * time.Second):
		t.Fatalf("waited half a minute for %s", what)
	}
	return value
}
