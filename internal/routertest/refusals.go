package routertest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

const problems = "https://iana.org/assignments/http-problem-types#"

func refusalBody(s *suite) {
	server := s.serve(app([]Limit{perIP(perHour(1))}, get("/", say("home"))))
	server.wantStatus(200, "", "GET /")
	refused := func(contentType string, header ...string) answer {
		a := server.wantStatus(429, "nothing is left", "GET /", header...)
		require.Equal(s, []string{contentType}, a.Header.Values("Content-Type"), "%q", header)
		require.Equal(s, []string{"no-store"}, a.Header.Values("Cache-Control"), "no cache keeps a refusal")
		require.Equal(s, int64(len(a.body)), a.ContentLength)
		retry, err := strconv.Atoi(a.Header.Get("Retry-After"))
		require.NoError(s, err, "Retry-After is whole seconds: %q", a.Header.Values("Retry-After"))
		require.GreaterOrEqual(s, retry, 1, "Retry-After is at least 1")
		require.LessOrEqual(s, retry, 2*3600)
		return a
	}

	var problem struct {
		Type, Title, Detail string
		Status              int
		Violated            []string `json:"violated-policies"`
	}
	a := refused("application/problem+json", "Accept: application/problem+json")
	require.NoError(s, json.Unmarshal([]byte(a.body), &problem), a.body)
	require.Equal(s, problems+"quota-exceeded", problem.Type)
	require.Equal(s, 429, problem.Status)
	require.Equal(s, []string{nameOf(1)}, problem.Violated)

	var plain struct {
		Error, Message string
		RetryAfter     int `json:"retry_after"`
	}
	for _, accept := range []string{"application/json", "*/*", "application/problem+json;q=0.1, application/json"} {
		a = refused("application/json", "Accept: "+accept)
		require.NoError(s, json.Unmarshal([]byte(a.body), &plain), a.body)
		require.Equal(s, "rate_limit_exceeded", plain.Error)
		require.NotEmpty(s, plain.Message)
		require.Equal(s, a.Header.Get("Retry-After"), strconv.Itoa(plain.RetryAfter), "body and field agree")
	}
	refused("application/json") // no Accept: the client takes anything

	a = refused("text/plain; charset=utf-8", "Accept: text/html, application/xhtml+xml, */*;q=0.8")
	require.Contains(s, a.body, "Too many requests")
	require.Equal(s, []string{"nosniff"}, a.Header.Values("X-Content-Type-Options"))
}

func refusalToHead(s *suite) {
	server := s.serve(app([]Limit{perIP(perHour(1))}, get("/", say("home")),
		Route{Method: http.MethodHead, Path: "/", Handler: say("")}))
	server.wantStatus(200, "", "GET /")
	a := server.wantStatus(429, "nothing is left", "HEAD /")
	require.Empty(s, a.body)
	require.NotEmpty(s, a.Header.Get("Retry-After"), "the header fields are those of GET")
	require.NotEmpty(s, a.Header.Get("RateLimit"), "the header fields are those of GET")
}

func refusalGoesNoFurther(s *suite) {
	var behind, handled atomic.Int32
	a := app([]Limit{perIP(perHour(1))},
		get("/", func(w http.ResponseWriter, _ *http.Request) {
			handled.Add(1)
			_, _ = io.WriteString(w, "home")
		}, perIP(perHour(9))))
	a.Behind = func() { behind.Add(1) }
	server := s.serve(a)
	server.wantStatus(200, "", "GET /")
	answer := server.wantStatus(429, "", "GET /")
	require.NotContains(s, answer.body, "home", "the handler adds nothing to a refusal")
	server.wantStatus(429, "", "GET /nosuch")
	require.EqualValues(s, 1, behind.Load(), "a refused request does not reach later middleware")
	require.EqualValues(s, 1, handled.Load(), "a refused request does not reach the handler")
}

func onRefused(s *suite) {
	var result middleware.Result
	limit := limits(middleware.Config{
		Rules: []middleware.Rule{{Name: "all", Limit: perHour(1)}},
		OnRefused: func(w http.ResponseWriter, r *http.Request, refused middleware.Result) {
			result = refused
			w.Header().Set("Content-Type", "text/x-own")
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, "own words for "+r.URL.Path)
		},
	})
	server := s.serve(app([]Limit{limit}, get("/", say("home"))))
	server.wantStatus(200, "", "GET /")
	a := server.wantStatus(http.StatusTeapot, "OnRefused has the last word", "GET /")
	require.Equal(s, "own words for /", a.body, "nothing is added to what OnRefused wrote")
	require.Equal(s, []string{"text/x-own"}, a.Header.Values("Content-Type"))
	require.NotEmpty(s, a.Header.Get("Retry-After"), "the fields are set before OnRefused")
	require.Zero(s, readFields(s, a.Header).remaining)
	require.Equal(s, 429, result.Status)
	require.Equal(s, "all", result.Rule)
	require.False(s, result.Allowed)
}

func noKey(s *suite) {
	rule := func(noKey middleware.NoKey) []Limit {
		return []Limit{rules(middleware.Rule{
			Name: "key", Key: keyfunc.APIKey("X-Api-Key"), Limit: perHour(1), NoKey: noKey,
		})}
	}
	server := s.serve(app(nil,
		get("/400", say("handled"), rule(middleware.NoKeyBadRequest)...),
		get("/401", say("handled"), rule(middleware.NoKeyUnauthorized)...),
		get("/skip", say("handled"), rule(middleware.NoKeySkip)...),
		get("/share", say("handled"), rule(middleware.NoKeyShare)...),
	))
	a := server.wantStatus(400, "", "GET /400")
	require.NotContains(s, a.body, "handled")
	a = server.wantStatus(401, "", "GET /401")
	require.NotContains(s, a.body, "handled")
	require.Equal(s, "Bearer", a.Header.Get("WWW-Authenticate"))
	server.wantStatus(200, "", "GET /skip")
	server.wantStatus(200, "a skipped rule counts nothing", "GET /skip")
	server.wantStatus(200, "", "GET /share")
	server.wantStatus(429, "requests without a key share a counter", "GET /share")
	for _, path := range []string{"/400", "/401", "/skip", "/share"} {
		server.wantStatus(200, "a request with a key passes", "GET "+path, "X-Api-Key: s3cret")
	}
}

// brokenStore is a store that cannot decide.
type brokenStore struct{ limiter.Store }

func (brokenStore) Decide(context.Context, []limiter.Charge, []limiter.Decision) error {
	return errors.New("connection refused: 10.1.2.3")
}

func failingStore(s *suite) {
	limit := limits(middleware.Config{
		Store: brokenStore{},
		Rules: []middleware.Rule{{Name: "all", Limit: perHour(1)}},
	})
	var handled atomic.Int32
	server := s.serve(app([]Limit{limit}, get("/", func(http.ResponseWriter, *http.Request) { handled.Add(1) })))
	for range 3 {
		a := server.wantStatus(503, "the store could not decide", "GET /", "Accept: application/problem+json")
		require.Equal(s, "application/problem+json", a.Header.Get("Content-Type"))
		var problem struct {
			Type   string
			Status int
		}
		require.NoError(s, json.Unmarshal([]byte(a.body), &problem), a.body)
		require.Equal(s, problems+"temporary-reduced-capacity", problem.Type)
		require.Equal(s, 503, problem.Status)
		require.Equal(s, "no-store", a.Header.Get("Cache-Control"))
		require.Empty(s, a.Header.Values("RateLimit"), "what is not known is not told")
		require.NotContains(s, a.body, "10.1.2.3", "errors are not for clients")
	}
	require.Zero(s, handled.Load(), "a request that could not be decided about does not pass")
}

func panics(s *suite) {
	limit := rules(middleware.Rule{
		Name: "all", Limit: perHour(3),
		Key: func(r *http.Request) (string, error) {
			if r.Header.Get("X-Panic") == "key" {
				panic("a key function panics")
			}
			return "everybody", nil
		},
	})
	server := s.serve(app([]Limit{limit}, get("/", func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Panic") == "handler" {
			panic("a handler panics")
		}
	})))
	for range 4 {
		_, err := server.try(server.request(s.Context(), "GET /", "X-Panic: key"))
		require.Error(s, err, "a panic goes its way")
	}
	_, err := server.try(server.request(s.Context(), "GET /", "X-Panic: handler"))
	require.Error(s, err, "a panic goes its way")
	a := server.wantStatus(200, "", "GET /")
	require.EqualValues(s, 1, readFields(s, a.Header).remaining,
		"a handler that panicked was counted, a request without a decision was not")
	server.wantStatus(200, "", "GET /")
	server.wantStatus(429, "the limit holds", "GET /")
}
