package rules_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules"
)

const keysFile = `version: 1
proxies: {trusted: [127.0.0.1]}
global: {limit: 1000/h, key: ip}
endpoints:
  "GET /news": {limit: 2/h sliding_log, key: "query:tenant", no_key: bad_request}
  "GET /beta/{feature}": {limit: 2/h sliding_log, key: "path:feature"}
`

func TestKeysFromPathAndQueryWorkOnEveryRouterAndStore(t *testing.T) {
	t.Parallel()
	holdOnEveryRouterAndStore(t, []lineClaim{
		{line: "key:", claim: "a parameter of the path or of the query has a counter for each value", run: keysOfPathAndQuery, file: keysFile},
	})
}

func keysOfPathAndQuery(t *testing.T, s *lineService) {
	visitor, other := lineClient{ip: "203.0.113.1"}, lineClient{ip: "203.0.113.2"}
	for _, value := range []string{"a", "b"} {
		s.passes(t, "GET /news?tenant="+value, visitor, 2)
		s.refuses(t, "GET /news?x=1&t%65nant="+value, other)
		s.passes(t, "GET /beta/"+value, visitor, 2)
		s.refuses(t, "GET /beta/"+value, other)
	}
	require.Equal(t, 400, s.ask(t, "GET /news", visitor).StatusCode)
	require.Equal(t, 400, s.ask(t, "GET /news?tenant=c&tenant=d", visitor).StatusCode)
}

func TestAKeyOfTheQueryIsExplained(t *testing.T) {
	r := parse(t, keysFile, rules.Options{})
	e, err := r.Explain(rules.Request{Path: "/news", Query: "tenant=acme"})
	require.NoError(t, err)
	require.Equal(t, "query:tenant:acme", e.Steps[3].Key)
	require.Contains(t, r.Needs(), rules.Need{Rule: "GET /news", Of: "query:tenant"})
	require.Empty(t, r.Warnings())
}
