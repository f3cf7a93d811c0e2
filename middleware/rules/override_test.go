package rules_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules"
)

var overridesFile = `version: 1
proxies: {trusted: [127.0.0.1]}
default: {limit: 3/h sliding_log, key: user|ip, overrides: {"user:carla": 6/h sliding_log, "user:finn": 2/h sliding_log, 203.0.113.7: {requests: 1, window: 1h, algorithm: sliding_log}}}
`

func TestLimitsOfSingleKeysWorkOnEveryRouterAndStore(t *testing.T) {
	t.Parallel()
	holdOnEveryRouterAndStore(t, []lineClaim{
		{line: "overrides:", claim: "what was used stays used", run: overridden, file: overridesFile},
	})
}

func overridden(t *testing.T, s *lineService) {
	at := func(ip, user string) lineClient { return lineClient{ip: ip, user: user} }
	for user, most := range map[string]int{"carla": 6, "finn": 2, "fay": 3} {
		h := s.passes(t, "GET /news", at("203.0.113.1", user), most)
		require.Contains(t, h.Get("RateLimit"), `"default";r=0`)
		s.refuses(t, "GET /news", at("203.0.113.2", user))
	}
	s.passes(t, "GET /news", at("203.0.113.7", ""), 1)
	s.refuses(t, "GET /news", at("203.0.113.7", ""))
	s.passes(t, "GET /news", at("203.0.113.8", ""), 3)

	s.edit(t, strings.Replace(overridesFile, "6/h", "8/h", 1))
	require.NoError(t, s.reloaded(t))
	s.passes(t, "GET /news", at("203.0.113.1", "carla"), 2)
	s.refuses(t, "GET /news", at("203.0.113.1", "carla"))
	s.edit(t, strings.Replace(overridesFile, `"user:carla": 6/h sliding_log, `, "", 1))
	require.NoError(t, s.reloaded(t))
	s.refuses(t, "GET /news", at("203.0.113.1", "carla"))
}

func TestTheLimitOfAKeyIsExplained(t *testing.T) {
	r := parse(t, overridesFile, rules.Options{})
	require.Empty(t, r.Warnings())
	e, err := r.Explain(rules.Request{Path: "/", User: "finn"})
	require.NoError(t, err)
	require.Equal(t, `2/1h sliding-log for "user:finn", a limit of its own`, e.Steps[2].Says)
}
