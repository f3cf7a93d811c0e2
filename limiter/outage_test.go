package limiter_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
)

func TestOutagePoliciesRoundTripAsText(t *testing.T) {
	for _, o := range []limiter.Outage{limiter.FailLocal, limiter.FailOpen, limiter.FailClosed} {
		text, err := o.MarshalText()
		require.NoError(t, err)
		assert.Equal(t, o.String(), string(text))
		var read limiter.Outage
		require.NoError(t, read.UnmarshalText(text))
		assert.Equal(t, o, read)
	}
	var read limiter.Outage
	require.NoError(t, read.UnmarshalText([]byte("CLOSED")))
	assert.Equal(t, limiter.FailClosed, read)
}

func TestOutagePoliciesThatAreNoneAreRefused(t *testing.T) {
	var o limiter.Outage
	assert.EqualError(t, o.UnmarshalText([]byte("ajar")), `limiter: outage policy "ajar" is not one of local, open, closed`)
	_, err := limiter.Outage(3).MarshalText()
	assert.EqualError(t, err, "limiter: OnOutage is 3: it must be FailLocal, FailOpen or FailClosed")
	assert.Equal(t, "Outage(3)", limiter.Outage(3).String())

	_, err = limiter.New(limiter.Config{Name: "mail", Limit: limiter.PerHour(50), OnOutage: 3})
	assert.EqualError(t, err, "limiter: OnOutage is 3: it must be FailLocal, FailOpen or FailClosed")
}
