package rules_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/middleware/rules"
)

func TestWhatAFileSaysOfHowRequestsEnd(t *testing.T) {
	c := parse(t, readText(t, "testdata/explain/ends.yaml"), rules.Options{}).Config()
	login, form, tokens, api := c.ByRoute["POST /login"][0], c.ByRoute["GET /login"][0], c.ByRoute["POST /api/v1/upload"][0], c.ByRoute["GET /news"][0]
	assert.Equal(t, middleware.Statuses(401, 403), login.Counts)
	assert.Equal(t, middleware.Not(middleware.StatusClass(5)).Afterwards(), form.Counts)
	assert.NotZero(t, tokens.Cost)
	assert.Equal(t, limiter.All(limiter.PerHour(3), limiter.PerDay(5)), api.Limit)
	assert.Equal(t, limiter.All(limiter.PerHour(4), limiter.PerDay(50).With(limiter.SlidingLog)), api.Tiers["premium"])
	assert.Equal(t, bans.Escalation{After: 3, Within: time.Hour, Ban: 2 * time.Hour, Outcomes: true}, c.ByRoute["GET /api/v1/search"][0].Escalate)
}
