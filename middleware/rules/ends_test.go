package rules_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

// endsFile says what requests really cost, in each way that a file can.
const endsFile = `version: 1
proxies: {trusted: [127.0.0.1]}
endpoints:
  "POST /login": {limit: 5/h, counts: [401, 403], key: ip}
  "GET /login":  {limit: 2/h, counts: "!5xx", when: after, key: ip}
  "POST /api/v1/upload": {name: tokens, limit: 100/h sliding_log, key: user, cost: {header: X-Device, settle: true}}
  "GET /news": {name: api, limits: [3/h, 5/24h], tiers: {premium: {limits: [4/h, 50/24h sliding_log]}}}
  "GET /api/v1/search": {limit: 100/h, counts: 4xx, escalate: {after: 3, within: 1h, ban: 1h, of: outcomes}}
`

var endClaims = []lineClaim{
	{line: "counts:", claim: "right logins have no end, five wrong ones have", run: wrongLoginsCount, file: endsFile},
	{line: "when:", claim: "what was no fault of the client is never charged", run: chargedAfter, file: endsFile},
	{line: "settle:", claim: "a request costs what the handler says", run: settledByHandler, file: endsFile},
	{line: "limits:", claim: "all of several limits have to have room", run: severalLimits, file: endsFile},
	{line: "of:", claim: "answers lead to a ban", run: outcomesBan, file: endsFile},
}

func TestEveryWayToSayWhatARequestCostWorksOnEveryRouterAndStore(t *testing.T) {
	t.Parallel()
	holdOnEveryRouterAndStore(t, endClaims)
}

func answers(t *testing.T, s *lineService, request string, c lineClient, status int) http.Header {
	t.Helper()
	response := s.ask(t, request, c)
	require.Equal(t, status, response.StatusCode, request)
	return response.Header
}

func wrongLoginsCount(t *testing.T, s *lineService) {
	visitor := lineClient{ip: "203.0.113.1"}
	s.passes(t, "POST /login", visitor, 20)
	for i := range 5 {
		answers(t, s, "POST /login?status="+[]string{"401", "403"}[i%2], visitor, 401+2*(i%2))
		if i < 4 {
			s.passes(t, "POST /login", visitor, 3)
		}
	}
	s.refuses(t, "POST /login", visitor)
	s.passes(t, "POST /login", lineClient{ip: "203.0.113.2"}, 1)
}

func chargedAfter(t *testing.T, s *lineService) {
	visitor := lineClient{ip: "203.0.113.1"}
	for range 5 {
		answers(t, s, "GET /login?status=503", visitor, 503)
	}
	s.passes(t, "GET /login", visitor, 1)
	answers(t, s, "GET /login?status=503", visitor, 503)
	s.passes(t, "GET /login", visitor, 1)
	s.refuses(t, "GET /login", visitor)
}

func settledByHandler(t *testing.T, s *lineService) {
	asks := func(tokens string) lineClient { return lineClient{ip: "203.0.113.1", user: "carla", device: tokens} }
	left := func(request, tokens string) string {
		return s.passes(t, request, asks(tokens), 1).Get("X-RateLimit-Remaining")
	}
	require.Equal(t, "40", left("POST /api/v1/upload?settle=10", "60"), "60 are reserved")
	require.Equal(t, "30", left("POST /api/v1/upload?settle=25", "60"), "of which 10 were used")
	s.refuses(t, "POST /api/v1/upload", asks("66"))
	require.Equal(t, "64", left("POST /api/v1/upload?settle=85", "1"), "35 were used")
	h := s.refuses(t, "POST /api/v1/upload", asks("1"))
	require.Equal(t, "0", h.Get("X-RateLimit-Remaining"), "120 are used, 20 of them owed")
	finn := lineClient{ip: "203.0.113.1", user: "finn", device: "1000"}
	h = s.passes(t, "POST /api/v1/upload?settle=5", finn, 1)
	require.Equal(t, "0", h.Get("X-RateLimit-Remaining"), "no more is reserved than there is")
	finn.device = "95"
	s.passes(t, "POST /api/v1/upload", finn, 1)
}

func severalLimits(t *testing.T, s *lineService) {
	visitor := lineClient{ip: "203.0.113.1"}
	h := s.passes(t, "GET /news", visitor, 3)
	require.Equal(t, []string{`"api";q=3;w=3600, "api.86400";q=5;w=86400`}, h.Values("RateLimit-Policy"))
	require.Contains(t, h.Get("RateLimit"), `"api";r=0`)
	require.Contains(t, h.Get("RateLimit"), `"api.86400";r=2`)
	require.Equal(t, "3", s.refuses(t, "GET /news", visitor).Get("X-RateLimit-Limit"))
	h = s.passes(t, "GET /news", lineClient{ip: "203.0.113.1", tier: "premium"}, 4)
	require.Contains(t, h.Get("RateLimit"), `"api.86400";r=46`)
}

func outcomesBan(t *testing.T, s *lineService) {
	visitor := lineClient{ip: "203.0.113.1"}
	s.passes(t, "GET /api/v1/search", visitor, 5)
	for range 3 {
		answers(t, s, "GET /api/v1/search?status=404", visitor, 404)
	}
	answers(t, s, "GET /api/v1/search", visitor, 403)
	answers(t, s, "GET /news", visitor, 403)
}

func TestWhatAFileSaysOfHowRequestsEnd(t *testing.T) {
	c := parse(t, endsFile, rules.Options{}).Config()
	login, form, tokens, api := c.ByRoute["POST /login"], c.ByRoute["GET /login"], c.ByRoute["POST /api/v1/upload"], c.ByRoute["GET /news"]
	assert.Equal(t, middleware.Statuses(401, 403), login.Counts)
	assert.False(t, login.ChargeAfter)
	assert.Equal(t, middleware.Not(middleware.StatusClass(5)), form.Counts)
	assert.True(t, form.ChargeAfter)
	assert.True(t, tokens.Settles)
	assert.NotNil(t, tokens.Cost)
	assert.Equal(t, limiter.All(limiter.PerHour(3), limiter.PerDay(5)), api.Limit)
	assert.Equal(t, limiter.All(limiter.PerHour(4), limiter.PerDay(50).With(limiter.SlidingLog)), api.Tiers["premium"])
	assert.True(t, c.ByRoute["GET /api/v1/search"].Escalate.Outcomes)
}

func TestHowRequestsEndIsExplained(t *testing.T) {
	r := parse(t, endsFile, rules.Options{})
	for _, c := range []struct{ method, path, says string }{
		{"POST", "/login", `5/1h for "192.0.2.1"; counts: 401, 403`},
		{"GET", "/login", `2/1h for "192.0.2.1"; counts: !5xx; when: after`},
		{"POST", "/api/v1/upload", `100/1h sliding-log for all clients together; cost.header: X-Device; cost.settle: true`},
		{"GET", "/news", `3/1h, 5/1d for "192.0.2.1"`},
	} {
		e, err := r.Explain(rules.Request{Method: c.method, Path: c.path})
		require.NoError(t, err)
		assert.Equal(t, c.says, e.Steps[len(e.Steps)-1].Says)
	}
}
