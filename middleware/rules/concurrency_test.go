package rules_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

// placesFile says how many requests are in progress at once, in each way that a file can.
const placesFile = `version: 1
proxies: {trusted: [127.0.0.1]}
global: {name: pool, concurrency: 5}
tiers:
  free: {concurrency: 1, key: user}
  premium: 1000/s
endpoints:
  "GET /news": {name: exports, concurrency: 2, tiers: {premium: {concurrency: 3}}}
  "GET /login": {name: turns, concurrency: {max: 1, queue: 1, max_wait: 1m}}
  "POST /login": {name: logins, limit: 3/h sliding_log, concurrency: 1}
default: 1000/s
`

var placesClaims = []lineClaim{
	{line: "concurrency:", claim: "no more are in progress at once, and none is taken by a refusal", run: boundedAtOnce, file: placesFile},
	{line: "queue:", claim: "one more waits for its turn", run: waitsInTurn, file: placesFile},
	{line: "concurrency:", claim: "beside a limit, in tiers and for all together", run: placesBesideLimits, file: placesFile},
}

func TestEveryWayToSayHowManyAtOnceWorksOnEveryRouterAndStore(t *testing.T) {
	t.Parallel()
	holdOnEveryRouterAndStore(t, placesClaims)
}

// begin has a request come that goes on until the end is called, which returns its status.
func (s *lineService) begin(t *testing.T, request string, c lineClient) (end func() int) {
	t.Helper()
	began, ends, status := make(chan struct{}), make(chan struct{}), make(chan int, 1)
	name := fmt.Sprint("place", lineServices.Add(1))
	lineHeld.Store(name, func() { close(began); <-ends })
	t.Cleanup(func() { lineHeld.Delete(name) })
	go func() { status <- s.ask(t, request+"?held="+name, c).StatusCode }()
	select {
	case <-began:
	case got := <-status:
		require.Failf(t, "the request was answered", "%s by %+v: %d", request, c, got)
	}
	return func() int {
		close(ends)
		return <-status
	}
}

func boundedAtOnce(t *testing.T, s *lineService) {
	visitor := lineClient{ip: "203.0.113.1"}
	first, second := s.begin(t, "GET /news", visitor), s.begin(t, "GET /news", visitor)
	for range 3 {
		response := s.ask(t, "GET /news", visitor)
		require.Equal(t, 429, response.StatusCode)
		require.Contains(t, response.Header.Get("RateLimit-Policy"), `"exports";q=2;qu="concurrent-requests"`)
		require.Contains(t, response.Header.Get("RateLimit"), `"exports";r=0`)
		retryAfter(t, response.Header, time.Minute)
	}
	s.passes(t, "GET /news", lineClient{ip: "203.0.113.2"}, 3)
	require.Equal(t, 200, first())
	s.free(t, "exports", "203.0.113.1", 1)
	s.passes(t, "GET /news", visitor, 1)
	require.Equal(t, 200, second())
	s.free(t, "exports", "203.0.113.1", 0)
	s.free(t, "pool", "", 0)
}

// free waits until so many requests of a key are in progress: an answer is read before its
// handler has returned.
func (s *lineService) free(t *testing.T, rule, key string, n int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		found, err := s.watcher.RateLimit.Peek(t.Context(), rule, key)
		require.NoError(t, err)
		return found[0].Concurrent.Limit-found[0].Concurrent.Remaining == n
	}, 20*time.Second, time.Millisecond)
}

func waitsInTurn(t *testing.T, s *lineService) {
	visitor := lineClient{ip: "203.0.113.1"}
	first, answered := s.begin(t, "GET /login", visitor), make(chan int)
	go func() { answered <- s.ask(t, "GET /login", visitor).StatusCode }()
	waiting := func() (n int64) {
		for _, p := range s.watcher.RateLimit.InProgress() {
			n += p.Waiting
		}
		return n
	}
	require.Eventually(t, func() bool { return waiting() == 1 }, 20*time.Second, time.Millisecond)
	require.Equal(t, 429, s.ask(t, "GET /login", visitor).StatusCode, "one waits, and no more")
	s.free(t, "pool", "", 1)
	require.Equal(t, 200, first())
	require.Equal(t, 200, <-answered)
	require.Zero(t, waiting())
}

func placesBesideLimits(t *testing.T, s *lineService) {
	visitor := lineClient{ip: "203.0.113.1"}
	end := s.begin(t, "POST /login", visitor)
	response := s.ask(t, "POST /login", visitor)
	require.Equal(t, 429, response.StatusCode)
	require.Equal(t, "2", response.Header.Get("X-RateLimit-Remaining"), "the refusal took none of the limit")
	require.Contains(t, response.Header.Get("RateLimit-Policy"), `"logins.concurrent";q=1;qu="concurrent-requests"`)
	require.Equal(t, 200, end())
	s.free(t, "logins", "203.0.113.1", 0)
	for range 2 {
		s.passes(t, "POST /login", visitor, 1)
		s.free(t, "logins", "203.0.113.1", 0)
	}
	s.refuses(t, "POST /login", visitor)
	s.free(t, "logins", "203.0.113.1", 0)

	premium := lineClient{ip: "203.0.113.1", user: "carla", tier: "premium"}
	var ends []func() int
	for range 3 {
		ends = append(ends, s.begin(t, "GET /news", premium))
	}
	require.Equal(t, 429, s.ask(t, "GET /news", premium).StatusCode)
	free := lineClient{ip: "203.0.113.9", user: "finn", tier: "free"}
	ends = append(ends, s.begin(t, "GET /healthz", free))
	require.Equal(t, 429, s.ask(t, "GET /healthz", free).StatusCode)
	ends = append(ends, s.begin(t, "GET /healthz", lineClient{ip: "203.0.113.10"}))
	response = s.ask(t, "GET /healthz", lineClient{ip: "203.0.113.11"})
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode, "the pool is that of all clients")
	retryAfter(t, response.Header, time.Minute)
	for _, end := range ends {
		require.Equal(t, 200, end())
	}
}

func TestWhatAFileSaysOfHowManyAtOnce(t *testing.T) {
	c := parse(t, placesFile, rules.Options{}).Config()
	assert.Equal(t, limiter.AtOnce(5), c.Rules[0].Limit)
	assert.Nil(t, c.Rules[0].Key)
	assert.Equal(t, limiter.AtOnce(1), c.ByTier["free"].Limit)
	exports := c.ByRoute["GET /news"]
	assert.Equal(t, limiter.AtOnce(2), exports.Limit)
	assert.Equal(t, middleware.Tiers{"premium": limiter.AtOnce(3)}, exports.Tiers)
	assert.Equal(t, limiter.AtOnce(1).Queue(1, time.Minute), c.ByRoute["GET /login"].Limit)
	both := c.ByRoute["POST /login"]
	limits, atOnce, err := limiter.Split(both.Limit)
	require.NoError(t, err)
	assert.EqualValues(t, 3, limits[0].Events)
	assert.EqualValues(t, 1, atOnce.Max)
	_, err = middleware.New(c)
	require.NoError(t, err)
}

func TestHowManyAtOnceIsExplained(t *testing.T) {
	r := parse(t, placesFile, rules.Options{})
	for _, c := range []struct{ method, path, tier, says string }{
		{"GET", "/news", "", `2 at once for "192.0.2.1"`},
		{"GET", "/news", "premium", `3 at once for "192.0.2.1", the limit of tier premium`},
		{"GET", "/login", "", `1 at once, 1 more wait up to 1m0s for "192.0.2.1"`},
		{"POST", "/login", "", `3/1h sliding-log, 1 at once for "192.0.2.1"`},
	} {
		e, err := r.Explain(rules.Request{Method: c.method, Path: c.path, Tier: c.tier})
		require.NoError(t, err)
		assert.Equal(t, c.says, e.Steps[len(e.Steps)-1].Says)
	}
}
