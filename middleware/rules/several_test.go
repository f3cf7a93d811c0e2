package rules_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules"
)

const severalFile = `version: 1
proxies: {trusted: [127.0.0.1]}
endpoints:
  "POST /login":
    - {limit: 3/h sliding_log, key: ip}
    - {limit: 5/h sliding_log, key: user, no_key: skip}
    - {limit: 8/h sliding_log, key: global, name: logins}
`

func TestSeveralRulesOfOneEndpointWorkOnEveryRouterAndStore(t *testing.T) {
	t.Parallel()
	holdOnEveryRouterAndStore(t, []lineClaim{
		{line: "endpoints:", claim: "an address, an account and all together have a limit each", run: severalRules, file: severalFile},
	})
}

func severalRules(t *testing.T, s *lineService) {
	const request = "POST /login"
	at := func(ip, user string) lineClient { return lineClient{ip: ip, user: user} }
	s.passes(t, request, at("203.0.113.1", "carla"), 3)
	h := s.refuses(t, request, at("203.0.113.1", "finn"))
	require.Contains(t, h.Get("RateLimit"), `"POST /login";r=0`, "the address has used up its limit")
	require.Contains(t, h.Get("RateLimit"), `"POST /login by user";r=5`, "and of the account nothing was taken")
	s.passes(t, request, at("203.0.113.2", "carla"), 2)
	h = s.refuses(t, request, at("203.0.113.3", "carla"))
	require.Contains(t, h.Get("RateLimit"), `"POST /login by user";r=0`)
	require.Contains(t, h.Get("RateLimit"), `"POST /login";r=3`)
	s.passes(t, request, at("203.0.113.4", ""), 3)
	require.Contains(t, s.refuses(t, request, at("203.0.113.5", "")).Get("RateLimit"), `"logins";r=0`)

	s.edit(t, severalFile+"default: 9/h sliding_log\n")
	require.NoError(t, s.reloaded(t))
	s.refuses(t, request, at("203.0.113.6", "fay"))
}

func TestARuleMayBeAListInEachSection(t *testing.T) {
	r := parse(t, `version: 1
global: [10/s, {limit: 5/s, key: ip}]
tiers: {free: [3/s, {limit: 9/m, key: ip}]}
endpoints: {"GET /a": [{limit: 3/s}]}
default: [4/s, {limit: 9/m, key: [user, "header:X-Tenant"], name: tenants}]
`, rules.Options{})
	c := r.Config()
	require.Equal(t, []string{"global", "global by ip"}, []string{c.Rules[0].Name, c.Rules[0].And[0].Name})
	require.Equal(t, []string{"tier:free", "tier:free by ip"}, []string{c.ByTier["free"].Name, c.ByTier["free"].And[0].Name})
	require.Equal(t, "GET /a", c.ByRoute["GET /a"].Name)
	require.Equal(t, []string{"default", "tenants"}, []string{c.Default.Name, c.Default.And[0].Name})
	require.Empty(t, r.Warnings(), "a rule by address holds what is made up")
	require.Contains(t, r.Needs(), rules.Need{Rule: "tenants", Of: "header:X-Tenant"})

	e, err := r.Explain(rules.Request{Path: "/b", Tier: "free", Header: http.Header{"X-Tenant": {"acme"}}})
	require.NoError(t, err)
	var names []string
	for _, s := range e.Steps {
		if s.Rule != "" {
			names = append(names, s.Section+" "+s.Rule)
		}
	}
	require.Equal(t, []string{"global global", "global global by ip", "tiers tier:free", "tiers tier:free by ip", "default default", "default tenants"}, names)
}
