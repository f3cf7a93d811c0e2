package rules_test

import (
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

func TestWhatAFileSaysOfHowManyAtOnce(t *testing.T) {
	c := parse(t, placesFile, rules.Options{}).Config()
	assert.Equal(t, limiter.AtOnce(5), c.Rules[0].Limit)
	assert.Nil(t, c.Rules[0].Key)
	assert.Equal(t, limiter.AtOnce(1), c.ByTier["free"][0].Limit)
	exports := c.ByRoute["GET /news"][0]
	assert.Equal(t, limiter.AtOnce(2), exports.Limit)
	assert.Equal(t, middleware.Tiers{"premium": limiter.AtOnce(3)}, exports.Tiers)
	assert.Equal(t, limiter.AtOnce(1).Queue(1, time.Minute), c.ByRoute["GET /login"][0].Limit)
	both := c.ByRoute["POST /login"][0]
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
