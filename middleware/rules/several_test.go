package rules_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules"
)

func TestARuleMayBeAListInEachSection(t *testing.T) {
	r := parse(t, `version: 1
global: [{limit: 10/s, key: global}, {limit: 5/s, key: ip}]
tiers: {free: [3/s, {limit: 9/m, key: ip}]}
endpoints: {"GET /a": [{limit: 3/s}]}
default: [4/s, {limit: 9/m, key: [user, "header:X-Tenant"], name: tenants}]
`, rules.Options{})
	c := r.Config()
	require.Equal(t, []string{"global", "global by ip"}, []string{c.Rules[0].Name, c.Rules[1].Name})
	require.Equal(t, []string{"tier:free", "tier:free by ip"}, []string{c.ByTier["free"][0].Name, c.ByTier["free"][1].Name})
	require.Equal(t, "GET /a", c.ByRoute["GET /a"][0].Name)
	require.Equal(t, []string{"default", "tenants"}, []string{c.Default[0].Name, c.Default[1].Name})
	require.Empty(t, r.Warnings(), "a rule by address holds what is made up")
	require.Contains(t, r.Needs(), rules.Need{Rule: "tenants", Of: "header:X-Tenant"})

	for tier, want := range map[string][]string{
		"free": {"global global", "global global by ip", "tiers tier:free", "tiers tier:free by ip"},
		"":     {"global global", "global global by ip", "default default", "default tenants"},
	} {
		e, err := r.Explain(rules.Request{Path: "/b", Tier: tier, Header: http.Header{"X-Tenant": {"acme"}}})
		require.NoError(t, err)
		var names []string
		for _, s := range e.Steps {
			if s.Rule != "" {
				names = append(names, s.Section+" "+s.Rule)
			}
		}
		require.Equal(t, want, names, tier)
	}
}
