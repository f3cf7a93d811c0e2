package routertest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

func perIPForTheRouter(s *suite) {
	server := s.serve(app([]Limit{perIP(perHour(3))},
		get("/", say("home")), get("/search", say("found"))))
	a := server.wantStatus(200, "the first passes", "GET /")
	require.Equal(s, s.protocol, a.Proto, "the suite speaks the protocol that it says")
	require.Equal(s, "home", a.body)
	require.Equal(s, []string{"3"}, a.Header.Values("X-RateLimit-Limit"))
	require.Equal(s, []string{"2"}, a.Header.Values("X-RateLimit-Remaining"))
	server.wantStatus(200, "the second passes", "GET /search")
	server.wantStatus(200, "the third passes", "GET /")
	server.wantStatus(429, "the fourth of three does not", "GET /")
	server.wantStatus(429, "it is one limit for the whole router", "GET /search")
}

func perIPForARoute(s *suite) {
	server := s.serve(app(nil,
		get("/", say("home")), get("/search", say("found"), perIP(perHour(2)))))
	server.wantStatus(200, "the first passes", "GET /search")
	server.wantStatus(200, "the second passes", "GET /search")
	server.wantStatus(429, "the third of two does not", "GET /search")
	a := server.wantStatus(200, "another route has no limit", "GET /")
	require.Empty(s, a.Header.Values("X-RateLimit-Limit"), "a route without a limit tells none")
	require.Empty(s, a.Header.Values("RateLimit"), "a route without a limit tells none")
}

func usersAreCountedApart(s *suite) {
	a := app([]Limit{rules(middleware.Rule{Name: "user", Key: keyfunc.User, Limit: perHour(1)})},
		get("/", say("home")))
	a.Authenticate = func(r *http.Request) context.Context {
		return keyfunc.WithUser(r.Context(), r.Header.Get("X-User"))
	}
	server := s.serve(a)
	server.wantStatus(200, "ann's first", "GET /", "X-User: ann")
	server.wantStatus(429, "ann's second", "GET /", "X-User: ann")
	server.wantStatus(200, "ben has a counter of his own", "GET /", "X-User: ben")
	server.wantStatus(200, "the first without a user", "GET /")
	server.wantStatus(429, "without a user they share a counter", "GET /")
}

func tierComesFromTheContext(s *suite) {
	limit := rules(middleware.Rule{
		Name: "plan", Key: keyfunc.First(keyfunc.User, keyfunc.IP()),
		Limit: perHour(1),
		Tiers: middleware.Tiers{"premium": perHour(2)},
	})
	var result middleware.Result
	a := app([]Limit{limit}, get("/", func(_ http.ResponseWriter, r *http.Request) {
		result, _ = middleware.FromContext(r.Context())
	}))
	a.Authenticate = func(r *http.Request) context.Context {
		ctx := r.Context()
		ctx = middleware.WithTier(ctx, r.Header.Get("X-Plan"))
		ctx = keyfunc.WithUser(ctx, "42")
		return ctx
	}
	server := s.serve(a)
	answer := server.wantStatus(200, "the first without a plan", "GET /")
	require.Equal(s, "1", answer.Header.Get("X-RateLimit-Limit"))
	require.Empty(s, result.Tier)
	server.wantStatus(429, "one is all without a plan", "GET /")
	answer = server.wantStatus(200, "premium is counted apart", "GET /", "X-Plan: premium")
	require.Equal(s, "2", answer.Header.Get("X-RateLimit-Limit"))
	require.Equal(s, "premium", result.Tier)
	server.wantStatus(200, "premium has two", "GET /", "X-Plan: premium")
	server.wantStatus(429, "premium has only two", "GET /", "X-Plan: premium")
	server.wantStatus(429, "a tier that the rule does not have is none", "GET /", "X-Plan: gold")
}

func handlerReadsTheDecision(s *suite) {
	var result middleware.Result
	server := s.serve(app(
		[]Limit{rules(middleware.Rule{Name: "all", Limit: perHour(10)})},
		get("/", func(_ http.ResponseWriter, r *http.Request) { result, _ = middleware.FromContext(r.Context()) },
			rules(middleware.Rule{Name: "home", Key: keyfunc.IP(), Limit: perHour(2)}))))
	server.wantStatus(200, "", "GET /")
	require.True(s, result.Allowed, "a request that reaches the handler was allowed")
	require.Zero(s, result.Status, "Status is for refusals")
	require.Equal(s, "home", result.Rule, "the binding rule is the one with the least left")
	require.EqualValues(s, 2, result.Limit)
	require.EqualValues(s, 1, result.Remaining)
	require.Len(s, result.Rules, 2, "the rules of both limiters are there")
	require.Equal(s, "all", result.Rules[0].Rule.Name, "outer limiters come first")
	require.EqualValues(s, 9, result.Rules[0].Remaining)
	require.EqualValues(s, 1, result.Rules[1].Remaining)
}

func preflightsCount(s *suite) {
	const limit, requests = 5, 200
	var ran atomic.Int32
	server := s.serve(app([]Limit{perIP(perHour(limit))},
		Route{Path: "/any", Handler: func(http.ResponseWriter, *http.Request) { ran.Add(1) }}))
	for i := range requests {
		r := server.request(s.Context(), "OPTIONS /any?transfer=all",
			"Origin: https://example.com", "Access-Control-Request-Method: POST", "Content-Type: application/json")
		r.Body = io.NopCloser(strings.NewReader(`{"amount":1}`))
		a, err := server.try(r)
		require.NoError(s, err)
		want := http.StatusOK
		if i >= limit {
			want = http.StatusTooManyRequests
		}
		require.Equal(s, want, a.StatusCode, "preflight %d", i+1)
	}
	require.EqualValues(s, limit, ran.Load(), "two header fields don't switch the limit off")
}

func preflightsAreExempt(s *suite) {
	options := Route{Method: http.MethodOptions, Path: "/search", Handler: say("")}
	limit := limits(middleware.Config{ExemptPreflights: true, Rules: []middleware.Rule{
		{Name: "ip", Key: keyfunc.IP(), Limit: perHour(2)},
	}})
	server := s.serve(app([]Limit{limit}, get("/search", say("found")), options))
	for range 5 {
		a := server.wantStatus(200, "a preflight is not counted", "OPTIONS /search",
			"Origin: https://example.com", "Access-Control-Request-Method: GET")
		require.Empty(s, a.Header.Values("X-RateLimit-Remaining"), "what is not counted is not told")
	}
	server.wantStatus(200, "plain OPTIONS is counted", "OPTIONS /search")
	server.wantStatus(200, "OPTIONS without Access-Control-Request-Method is no preflight",
		"OPTIONS /search", "Origin: https://example.com")
	server.wantStatus(429, "the third OPTIONS of two", "OPTIONS /search")
	server.wantStatus(429, "they count on the limit of all", "GET /search")
	server.wantStatus(200, "a preflight passes when nothing is left", "OPTIONS /search",
		"Origin: https://example.com", "Access-Control-Request-Method: GET")
}

func oneLimiterInSeveralPlaces(s *suite) {
	limit := rules(middleware.Rule{Name: "ip", Key: keyfunc.IP(), Limit: perHour(4)})
	server := s.serve(App{Group: Group{Limits: []Limit{limit, limit}, Groups: []Group{{
		Prefix: "/v1", Limits: []Limit{limit},
		Routes: []Route{get("/search", say("found"), limit)},
	}}}})
	for left := range 4 {
		a := server.wantStatus(200, "each request is charged once", "GET /v1/search")
		require.Equal(s, fmt.Sprint(3-left), a.Header.Get("X-RateLimit-Remaining"))
	}
	server.wantStatus(429, "four are all", "GET /v1/search")
}

func concurrentRequests(s *suite) {
	const limit, requests = 10, 40
	var handled atomic.Int32
	server := s.serve(app([]Limit{perIP(perHour(limit))},
		get("/", func(http.ResponseWriter, *http.Request) { handled.Add(1) })))
	var passed, refused atomic.Int32
	var all sync.WaitGroup
	for range requests {
		r := server.request(s.Context(), "GET /")
		all.Go(func() {
			a, err := server.try(r)
			switch {
			case err != nil:
				s.Errorf("a request failed: %v", err)
			case a.StatusCode == 200:
				passed.Add(1)
			case a.StatusCode == 429:
				refused.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(s, limit, passed.Load(), "exactly the limit passes")
	require.EqualValues(s, requests-limit, refused.Load(), "all others are refused")
	require.EqualValues(s, limit, handled.Load(), "the handler sees what passed")
}
