package rules_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/envoy"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/rules"
)

const shop = `
version: 1
descriptors:
  - {domain: shop, entries: [{key: kind, value: checkout}, {key: user}], limit: 5/m}
  - {domain: shop, entries: {key: user}, name: users, limits: [5/s, 9/h], mode: shadow, on_outage: open, when: after}
  - {domain: shop, entries: {key: gone}, limit: 1/s, mode: "off"}
`

func TestDescriptorsAreLimitsOfTheirEntries(t *testing.T) {
	r, err := rules.Parse([]byte(shop), rules.Options{})
	require.NoError(t, err)
	assert.Equal(t, []envoy.Descriptor{{
		Domain: "shop", Entries: []envoy.Entry{{Key: "kind", Value: "checkout"}, {Key: "user"}},
		Name: "shop/kind=checkout,user", Limit: limiter.PerMinute(5),
	}, {
		Domain: "shop", Entries: []envoy.Entry{{Key: "user"}}, After: true,
		Name: "users", Limit: limiter.All(limiter.PerSecond(5), limiter.PerHour(9)), Shadow: true, OnOutage: limiter.FailOpen,
	}}, r.Descriptors())
	assert.Empty(t, r.Config().Rules, "a program of HTTP ignores them")
}
