package pace_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/pace"
)

func TestARouteThatCannotMatchIsAnErrorOfItsRule(t *testing.T) {
	_, err := pace.NewTransport(nil, pace.Options{Rules: []pace.Rule{{Host: "a.org", Limit: limiter.PerSecond(1), Match: middleware.Route("GET search")}}})
	assert.ErrorContains(t, err, `rule "a.org": pace: Match: Route: pattern "GET search"`)
}
