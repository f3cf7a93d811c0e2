package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// events limits an event stream to one request in 12 seconds.
func events(edits ...func(*middleware.Config)) middleware.Config {
	c := middleware.Config{Logger: quiet, Rules: []middleware.Rule{{
		Name: "events", Match: middleware.Route("GET /events"), Key: keyfunc.Global,
		Limit: logOf(1, 12*time.Second), Refusal: middleware.Refusal{Stream: true},
	}}}
	for _, edit := range edits {
		edit(&c)
	}
	return c
}

// eventSource is a request as browsers send it.
func eventSource(edits ...func(*http.Request)) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/events", nil)
	r.Pattern = "GET /events"
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Cache-Control", "no-cache")
	for _, edit := range edits {
		edit(r)
	}
	return r
}

func streamOf(name, path string) middleware.Rule {
	return middleware.Rule{Name: name, Match: middleware.Route(path), Key: keyfunc.Global, Limit: limiter.PerSecond(1)}
}

func TestARefusedEventSourceComesBack(t *testing.T) {
	onRule := func(edit func(*middleware.Rule)) func(*middleware.Config) {
		return func(c *middleware.Config) { edit(&c.Rules[0]) }
	}
	for name, edit := range map[string]func(*middleware.Config){
		"a rule with a Match": func(*middleware.Config) {},
		"all rules":           func(c *middleware.Config) { c.Rules[0].Refusal.Stream, c.Refusal.Stream = false, true },
		"one of two routes":   onRule(func(r *middleware.Rule) { r.Match = middleware.Route("POST /x", "/*", "/events") }),
		"below a path":        onRule(func(r *middleware.Rule) { r.Match = middleware.Route("/events/*") }),
		"a rule of a route": func(c *middleware.Config) {
			c.Rules[0].Match = nil
			c.ByRoute, c.Rules = map[string][]middleware.Rule{"GET /events": c.Rules}, nil
		},
		"a longer wait than clients should stop at": onRule(func(r *middleware.Rule) { r.Refusal.StopAbove = 12 * time.Second }),
	} {
		phase.Run(t, name, func(t *testing.T) {
			h := limited(t, events(edit)).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			h.ServeHTTP(httptest.NewRecorder(), eventSource())
			w := httptest.NewRecorder()
			h.ServeHTTP(w, eventSource())
			assert.Equal(t, http.StatusOK, w.Code)
			assert.Equal(t, "retry: 12000\n\n", w.Body.String())
			assert.Equal(t, "text/event-stream", w.Header().Get("Content-Type"))
			assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
			assert.Equal(t, "12", w.Header().Get("Retry-After"))
		})
	}
}

func TestAllOtherRefusalsOfAStreamRouteStay(t *testing.T) {
	field := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header[name] = []string{value} }
	}
	onRule := func(edit func(*middleware.Rule)) func(*middleware.Config) {
		return func(c *middleware.Config) { edit(&c.Rules[0]) }
	}
	list := bansOf(t)
	type edits struct {
		config  func(*middleware.Config)
		request func(*http.Request)
		status  int
	}
	cases := map[string]edits{
		"HEAD":                {request: func(r *http.Request) { r.Method = http.MethodHead }},
		"POST":                {config: onRule(func(r *middleware.Rule) { r.Match = middleware.Route("/events") }), request: func(r *http.Request) { r.Method = http.MethodPost }},
		"any type":            {request: field("Accept", "*/*")},
		"a browser":           {request: field("Accept", "text/html,text/event-stream")},
		"with a weight":       {request: field("Accept", "text/event-stream;q=1")},
		"no Accept":           {request: func(r *http.Request) { r.Header.Del("Accept") }},
		"two fields":          {request: func(r *http.Request) { r.Header.Add("Accept", "text/event-stream") }},
		"HTTP/1.0, as nginx":  {request: func(r *http.Request) { r.Proto, r.ProtoMinor = "HTTP/1.0", 0 }},
		"a longer wait":       {config: onRule(func(r *middleware.Rule) { r.Limit = logOf(1, 61*time.Second) })},
		"clients should stop": {config: onRule(func(r *middleware.Rule) { r.Refusal.StopAbove = 11 * time.Second })},
		"too expensive":       {config: onRule(func(r *middleware.Rule) { r.Cost = middleware.CostOf(func(*http.Request) int64 { return 2 }) })},
		"own answer": {config: onRule(func(r *middleware.Rule) {
			r.Refusal.Answer = func(w http.ResponseWriter, _ *http.Request, _ middleware.Result) { w.WriteHeader(429) }
		})},
		"own status": {config: func(c *middleware.Config) {
			c.Rules[0].Refusal, c.Refusal.Stream = middleware.Refusal{Status: 503}, true
			c.Rules = append(c.Rules, streamOf("other", "/other"))
		}, status: 503},
		"a rule for all": {config: func(c *middleware.Config) {
			c.Rules[0].Match, c.Rules[0].Refusal, c.Refusal.Stream = nil, middleware.Refusal{}, true
			c.Rules = append(c.Rules, streamOf("other", "/other"))
		}},
		"a rule for /*": {config: func(c *middleware.Config) {
			c.Rules[0].Match, c.Rules[0].Refusal, c.Refusal.Stream = middleware.Route("/*"), middleware.Refusal{}, true
			c.Rules = append(c.Rules, streamOf("other", "/other"))
		}},
		"a route that it does not name": {config: onRule(func(r *middleware.Rule) { r.Match = middleware.Route("/*", "/other") })},
		"slots of all":                  {config: onRule(func(r *middleware.Rule) { r.Limit = limiter.AtOnce(1) }), status: 503},
		"no key":                        {config: onRule(func(r *middleware.Rule) { r.Key, r.NoKey = keyfunc.Bearer, middleware.NoKeyBadRequest }), status: 400},
		"no credentials":                {config: onRule(func(r *middleware.Rule) { r.Key, r.NoKey = keyfunc.Bearer, middleware.NoKeyUnauthorized }), status: 401},
		"banned like a limit":           {config: func(c *middleware.Config) { c.Bans = middleware.Bans{List: list, Keys: byIP, Status: 429} }},
		"banned":                        {config: func(c *middleware.Config) { c.Bans = middleware.Bans{Deny: always} }, status: 403},
		"denied": {config: onRule(func(r *middleware.Rule) {
			*r = middleware.Rule{Name: "events", Match: r.Match, Mode: middleware.Deny, Refusal: middleware.Refusal{Status: 429, RetryAfter: time.Second}}
		})},
		"an outage": {config: func(c *middleware.Config) {
			c.Store = &spy{fails: func(context.Context, []limiter.Charge) error { return errors.New("down") }}
		}, status: 503},
	}
	for _, name := range []string{
		"X-Forwarded-Uri", "X-Forwarded-Method", "X-Original-Uri", "X-Original-Url", "X-Original-Method", "X-Auth-Request-Redirect",
		"X-Envoy-Auth-Partial-Body", "X-Envoy-Expected-Rq-Timeout-Ms", "X-Envoy-External-Address",
	} {
		cases["a question with "+name] = edits{request: field(name, "")}
	}
	for name, c := range cases {
		phase.Run(t, name, func(t *testing.T) {
			require.NoError(t, list.Ban(t.Context(), "192.0.2.1", time.Minute))
			config := events()
			if c.config != nil {
				c.config(&config)
			}
			l := limited(t, config)
			block := make(chan struct{})
			defer close(block)
			h := l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if name == "slots of all" {
					<-block
				}
			}))
			var edits []func(*http.Request)
			if c.request != nil {
				edits = append(edits, c.request)
			}
			first := func() { h.ServeHTTP(httptest.NewRecorder(), eventSource(edits...)) }
			if name == "slots of all" {
				go first()
				time.Sleep(time.Millisecond)
			} else {
				first()
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, eventSource(edits...))
			if c.status == 0 {
				c.status = 429
			}
			assert.Equal(t, c.status, w.Code)
			assert.NotEqual(t, "text/event-stream", w.Header().Get("Content-Type"))
		})
	}
}

func TestAStreamCountsAsA429(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		var seen recorder
		outer := limited(t, middleware.Config{Rules: []middleware.Rule{{
			Name: "refusals", Key: keyfunc.Global, Limit: logOf(100, time.Hour), Counts: middleware.Statuses(429),
		}}})
		h := outer.Handler(limited(t, events(func(c *middleware.Config) { c.Observer = &seen })).
			Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
		for range 4 {
			h.ServeHTTP(httptest.NewRecorder(), eventSource())
		}
		assert.Equal(t, middleware.OutcomeRefused, seen.last(t).Outcome)
		left, err := outer.Peek(t.Context(), "refusals", "")
		require.NoError(t, err)
		assert.EqualValues(t, 97, left[0].Remaining)
	})
}

// Allow answers from within a handler, which a proxy may ask.
func TestAllowStreamsOnlyOnTheRoutesOfTheRule(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := limited(t, events())
		for pattern, want := range map[string]int{"GET /events": 200, "GET /auth": 429, "": 429} {
			l.Allow(httptest.NewRecorder(), eventSource(), "events", "")
			w := httptest.NewRecorder()
			l.Allow(w, eventSource(func(r *http.Request) { r.Pattern = pattern }), "events", "")
			assert.Equal(t, want, w.Code, pattern)
		}
	})
}

func TestAStreamNeedsARouteAndALimit(t *testing.T) {
	rule := func(edit func(*middleware.Rule)) middleware.Config {
		return events(func(c *middleware.Config) { edit(&c.Rules[0]) })
	}
	for name, c := range map[string]struct {
		config middleware.Config
		want   string
	}{
		"no Match":       {rule(func(r *middleware.Rule) { r.Match = nil }), `Rules[0] "events": Refusal.Stream is true: it needs the route`},
		"a function":     {rule(func(r *middleware.Rule) { r.Match = always }), `Refusal.Stream is true: it needs the route`},
		"all routes":     {rule(func(r *middleware.Rule) { r.Match = middleware.Route("/*") }), `Refusal.Stream is true: it needs the route`},
		"the last route": {rule(func(r *middleware.Rule) { r.Match = middleware.Route("/", "GET example.org/{rest...}") }), `Refusal.Stream is true: it needs the route`},
		"no GET":         {rule(func(r *middleware.Rule) { r.Match = middleware.Route("POST /events") }), `Refusal.Stream is true: it needs the route`},
		"another status": {rule(func(r *middleware.Rule) { r.Refusal.Status = 503 }), `Refusal.Stream is true: it needs the Status 429, which is 503`},
		"denies":         {rule(func(r *middleware.Rule) { r.Mode = middleware.Deny }), `Refusal.Stream is true: it needs a limit`},
		"of no rule": {events(func(c *middleware.Config) {
			c.Refusal, c.Rules[0].Match, c.Rules[0].Refusal = c.Rules[0].Refusal, nil, middleware.Refusal{}
		}), `Config.Refusal.Stream is true: no rule names`},
	} {
		_, err := middleware.New(c.config)
		assert.ErrorContains(t, err, c.want, name)
	}
}
