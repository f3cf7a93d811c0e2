package limiter_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/limiter"
)

func TestOutagePoliciesThatAreNoneAreRefused(t *testing.T) {
	assert.EqualError(t, limiter.Outage(3).Validate(), "limiter: OnOutage is 3: it must be FailLocal, FailOpen or FailClosed")
	assert.Equal(t, "Outage(3)", limiter.Outage(3).String())

	_, err := limiter.New(limiter.Config{Name: "mail", Limit: limiter.PerHour(50), OnOutage: 3})
	assert.EqualError(t, err, "limiter: OnOutage is 3: it must be FailLocal, FailOpen or FailClosed")
}
