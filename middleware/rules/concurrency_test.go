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

func TestWhatAFileSaysOfHowManyAtOnce(t *testing.T) {
	c := parse(t, readText(t, "testdata/explain/concurrency.yaml"), rules.Options{}).Config()
	assert.Equal(t, limiter.AtOnce(5), c.Rules[0].Limit)
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
