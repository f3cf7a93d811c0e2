package rules_test

import (
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

func TestWhatAFileSaysOfHowRequestsEnd(t *testing.T) {
	c := parse(t, endsFile, rules.Options{}).Config()
	login, form, tokens, api := c.ByRoute["POST /login"][0], c.ByRoute["GET /login"][0], c.ByRoute["POST /api/v1/upload"][0], c.ByRoute["GET /news"][0]
	assert.Equal(t, middleware.Statuses(401, 403), login.Counts)
	assert.Equal(t, middleware.Not(middleware.StatusClass(5)).Afterwards(), form.Counts)
	assert.NotZero(t, tokens.Cost)
	assert.Equal(t, limiter.All(limiter.PerHour(3), limiter.PerDay(5)), api.Limit)
	assert.Equal(t, limiter.All(limiter.PerHour(4), limiter.PerDay(50).With(limiter.SlidingLog)), api.Tiers["premium"])
	assert.True(t, c.ByRoute["GET /api/v1/search"][0].Escalate.Outcomes)
}

func TestHowRequestsEndIsExplained(t *testing.T) {
	r := parse(t, endsFile, rules.Options{})
	for _, c := range []struct{ method, path, says string }{
		{"POST", "/login", `5/1h for "192.0.2.1"; counts: 401, 403`},
		{"GET", "/login", `2/1h for "192.0.2.1"; counts: !5xx; when.charge: after`},
		{"POST", "/api/v1/upload", `100/1h sliding-log for all clients together; cost.header: X-Device; cost.settle: true`},
		{"GET", "/news", `3/1h, 5/1d for "192.0.2.1"`},
	} {
		e, err := r.Explain(rules.Request{Method: c.method, Path: c.path})
		require.NoError(t, err)
		assert.Equal(t, c.says, e.Steps[len(e.Steps)-1].Says)
	}
}
