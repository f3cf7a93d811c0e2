package rules_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules"
)

var overridesFile = `version: 1
proxies: {trusted: [127.0.0.1]}
default: {limit: 3/h sliding_log, key: user|ip, overrides: {"user:carla": 6/h sliding_log, "user:finn": 2/h sliding_log, 203.0.113.7: {requests: 1, window: 1h, algorithm: sliding_log}}}
`

func TestTheLimitOfAKeyIsExplained(t *testing.T) {
	r := parse(t, overridesFile, rules.Options{})
	require.Empty(t, r.Warnings())
	e, err := r.Explain(rules.Request{Path: "/", User: "finn"})
	require.NoError(t, err)
	require.Equal(t, `2/1h sliding-log for "user:finn", a limit of its own`, e.Steps[2].Says)
}

func TestAKeyMayBeANetwork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := parse(t, `version: 1
proxies: {trusted: [10.0.0.0/8]}
default:
  - {limit: 100/h, key: ip}
  - {limit: 3/h sliding_log, key: ip/24/48, overrides: {203.0.112.9: 1/h sliding_log, "2001:db8::/48": 2/h sliding_log}}
`, rules.Options{})
		require.Empty(t, r.Warnings())
		s := open(t, r)
		client := func(ip string) call {
			return call{from: "10.0.0.1:1", header: map[string]string{"X-Forwarded-For": ip}}
		}
		s.passes(1, client("203.0.112.1")) // as it has a limit of its own
		s.passes(2, client("2001:db8:0:7::1"))
		for _, ip := range []string{"203.0.113.1", "203.0.113.2"} {
			require.Equal(t, http.StatusOK, s.status(client(ip)))
		}
		s.passes(1, client("203.0.113.3"))
		require.Equal(t, http.StatusTooManyRequests, s.status(client("203.0.113.4")))
		require.Equal(t, http.StatusOK, s.status(client("203.0.114.1")))
		e, err := r.Explain(rules.Request{Path: "/", IP: "198.51.100.7"})
		require.NoError(t, err)
		require.Equal(t, []string{"198.51.100.7", "198.51.100.0/24"}, []string{e.Steps[2].Key, e.Steps[3].Key})
	})
}

func TestARulesFileHas25000Overrides(t *testing.T) {
	var text strings.Builder
	text.WriteString("version: 1\ndefault:\n  limit: 5/s\n  key: user\n  overrides:\n")
	for n := range 25_000 {
		fmt.Fprintf(&text, "    user:customer-%d: 100/h\n", n)
	}
	require.Len(t, parsed(t, text.String()).Config().Default[0].Overrides, 25_000)
}
