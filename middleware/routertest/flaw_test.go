package routertest

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware"
)

func TestASoundAdapterPasses(t *testing.T) { Run(t, flawed("").router()) }

func TestEveryFlawIsCaught(t *testing.T) {
	const (
		refused = "a limit for the router refuses after exactly N"
		levels  = "limits of router, group and route all charge, and agree on one set of headers"
		status  = "the status that was sent counts, however the handler ends"
		answer  = "an application's answer has the refusal's status unless it sets another"
		events  = "server-sent events arrive one by one, and a slot learns of the first"
	)
	for flaw, by := range map[flawed]string{
		"a request has no pattern":                   "rules match by route with parameters",
		"a pattern is the path":                      "unknown paths count and have no pattern",
		"routes are not listed":                      "a rule for a route that does not exist logs a warning",
		"limits of groups are left out":              levels,
		"a limit charges a request once":             levels,
		"a refused request reaches its handler":      refused,
		"handlers get the request that came":         "the tier comes from the context, and the handler has the result",
		"handlers get the writer that came":          status,
		"a request does not end":                     "only failed logins count",
		"a request ends before its handler":          status,
		"a request does not end after a panic":       status,
		"a panic is 200":                             status,
		"an error is answered after the end":         "the status that answers a handler's error counts",
		"a form is not handed back":                  "no file of an upload stays on disk",
		"Flush goes past the watcher":                events,
		"Flush is lost":                              events,
		"Hijack is lost":                             "an upgraded connection is the handler's",
		"an application's answer has no status":      answer,
		"an application's answer is called too late": answer,
	} {
		t.Run(string(flaw), func(t *testing.T) {
			router := flaw.router()
			for _, c := range slices.Concat(cases, traces()) {
				if c.name == by {
					protocol := http1
					require.True(t, c.isFor(router, protocol))
					require.NotEmpty(t, failure(t, c, router, protocol), "%q passed on an adapter with that flaw", by)
					return
				}
			}
			t.Fatalf("there is no case %q", by)
		})
	}
}

// failure returns how the router's adapter fails the case, or nothing.
func failure(t *testing.T, c testCase, router Router, protocol string) []string {
	r := &recorder{TB: t}
	ended := make(chan struct{})
	go func() { // since a failure ends its goroutine
		defer close(ended)
		c.run(&suite{TB: r, router: router, protocol: protocol})
	}()
	<-ended
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.texts
}

// A recorder keeps the failures that a case reports to it.
type recorder struct {
	testing.TB
	mu    sync.Mutex
	texts []string
}

func (r *recorder) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts = append(r.texts, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// A flawed adapter is sound, but for one flaw. Its router keeps the request and the writer in a context of its own, as
// gin and echo do, and has all routes in one mux.
type flawed string

func (f flawed) router() Router {
	return Router{Pattern: pattern, ReturnsErrors: true, OnRefused: true, KeepsRequest: true, Build: f.build}
}

// An exchange is the router's context of a request.
type exchange struct {
	w http.ResponseWriter
	r *http.Request
}

type chain func(*exchange) error

func (f flawed) build(app App) http.Handler {
	mux, routes := http.NewServeMux(), []string{}
	serve := func(end chain, limits []Limit) http.HandlerFunc {
		for _, l := range slices.Backward(limits) {
			end = f.limited(l, &routes, end, app.OnError)
		}
		return func(w http.ResponseWriter, r *http.Request) {
			sent := &sent{ResponseWriter: w}
			if app.Authenticate != nil {
				r = r.WithContext(app.Authenticate(r))
			}
			err := end(&exchange{sent, r})
			if app.OnStatus != nil {
				app.OnStatus(cmp.Or(sent.status, http.StatusOK))
			}
			if err != nil && sent.status == 0 {
				app.OnError(w, err)
			}
		}
	}
	var fill func(g Group, prefix string, outer []Limit)
	fill = func(g Group, prefix string, outer []Limit) {
		if prefix == "" || f != "limits of groups are left out" {
			outer = slices.Concat(outer, g.Limits)
		}
		for _, route := range g.Routes {
			pattern := strings.TrimPrefix(route.Method+" "+prefix+route.Path, " ")
			routes = append(routes, pattern)
			mux.HandleFunc(pattern, serve(func(x *exchange) error {
				if route.Context != nil {
					x.r = x.r.WithContext(route.Context(x.r))
				}
				route.Handler(x.w, x.r)
				return route.Err
			}, slices.Concat(outer, route.Limits)))
		}
		for _, sub := range g.Groups {
			fill(sub, prefix+sub.Prefix, outer)
		}
	}
	fill(app.Group, "", nil)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		r.Pattern = ""
		serve(func(x *exchange) error { http.NotFound(x.w, x.r); return nil }, app.Limits)(w, r)
	})
	return mux
}

// limited is the adapter.
func (f flawed) limited(l Limit, routes *[]string, next chain, onError func(http.ResponseWriter, error)) chain {
	var first sync.Once
	return func(x *exchange) (err error) {
		switch f {
		case "a request has no pattern":
			x.r.Pattern = ""
		case "a pattern is the path":
			x.r.Pattern = x.r.URL.Path
		case "a limit charges a request once":
			if x.r.Context().Value(l.Rules) != nil {
				return next(x)
			}
			x.r = x.r.WithContext(context.WithValue(x.r.Context(), l.Rules, true))
		}
		if f != "routes are not listed" {
			first.Do(func() { l.Rules.KnowRoutes(*routes) })
		}
		var onRefused func(middleware.Result)
		if l.OnRefused != nil {
			onRefused = func(result middleware.Result) {
				inner := &sent{ResponseWriter: x.w, unsaid: result.Status}
				switch f {
				case "an application's answer has no status":
					inner.unsaid = http.StatusOK
				case "an application's answer is called too late":
					inner.WriteHeader(result.Status)
				}
				if err = l.OnRefused(inner, x.r, result); err == nil && inner.status == 0 {
					inner.WriteHeader(inner.unsaid)
				}
			}
		}
		entered := l.Rules.Enter(x.w, x.r, onRefused)
		switch {
		case entered != nil:
			return f.next(x, entered, next, onError)
		case f == "a refused request reaches its handler":
			return next(x)
		}
		return err
	}
}

// next calls the handlers of a request that has entered.
func (f flawed) next(
	x *exchange, entered *middleware.Entered, next chain, onError func(http.ResponseWriter, error),
) (err error) {
	inner, status := x.w, http.StatusInternalServerError
	switch f {
	default:
		x.w = entered.Writer
	case "handlers get the writer that came":
	case "Flush goes past the watcher":
		x.w = past{entered.Writer, x.w}
	case "Flush is lost", "Hijack is lost":
		x.w = struct{ http.ResponseWriter }{entered.Writer}
	}
	if f != "handlers get the request that came" {
		x.r = entered.Request
	}
	switch f {
	case "a panic is 200":
		status = http.StatusOK
	case "a request ends before its handler":
		entered.End(http.StatusOK)
	}
	defer func() {
		x.w = inner
		if f != "a form is not handed back" {
			entered.Request.MultipartForm = cmp.Or(x.r.MultipartForm, entered.Request.MultipartForm)
		}
		if f != "a request does not end" && (f != "a request does not end after a panic" || status == http.StatusOK) {
			entered.End(status)
		}
	}()
	if err = next(x); err != nil && onError != nil && f != "an error is answered after the end" {
		onError(x.w, err)
		err = nil
	}
	status = http.StatusOK
	return err
}

// past flushes the inner writer.
type past struct {
	http.ResponseWriter
	inner http.ResponseWriter
}

func (p past) Flush()                      { _ = http.NewResponseController(p.inner).Flush() }
func (p past) Unwrap() http.ResponseWriter { return p.inner }

// sent is a writer that knows the status.
type sent struct {
	http.ResponseWriter
	status, unsaid int
}

func (s *sent) Written() bool               { return s.status != 0 }
func (s *sent) Unwrap() http.ResponseWriter { return s.ResponseWriter }
func (s *sent) Flush()                      { _ = http.NewResponseController(s.ResponseWriter).Flush() }

func (s *sent) WriteHeader(status int) {
	if s.status == 0 && status >= http.StatusOK {
		s.status = status
	}
	s.ResponseWriter.WriteHeader(status)
}

func (s *sent) Write(b []byte) (int, error) {
	if s.status == 0 {
		s.WriteHeader(cmp.Or(s.unsaid, http.StatusOK))
	}
	return s.ResponseWriter.Write(b)
}
