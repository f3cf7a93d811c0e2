package rules_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules"
)

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

var datedFile = `version: 1
proxies: {}
ban: {cidrs: [203.0.113.7, {198.51.100.0/24: {until: 2000-01-02, because: scraper}}, {198.51.100.64/26: {until: "2000-01-02T13:00:00+01:00", because: again}}]}
allow: {cidrs: {203.0.113.64/26: {until: 2000-01-02, because: partner}}}
default: {limit: 3/h sliding_log, key: user|ip, overrides: {"user:carla": {limit: 6/h sliding_log, until: 2000-01-02, because: "import, ticket 815"}}}
`

func TestBansAllowancesAndOverridesEndWithoutAReload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := parse(t, datedFile, rules.Options{})
		require.Empty(t, r.Warnings())
		s := open(t, r)
		says := func(step int, q rules.Request) string {
			q.Path = "/"
			e, err := r.Explain(q)
			require.NoError(t, err)
			return e.Steps[step].Says
		}
		time.Sleep(time.Until(time.Date(2000, 1, 1, 23, 59, 59, 999_999_999, time.UTC)))
		for _, ip := range []string{"198.51.100.1:1", "198.51.100.65:1", "203.0.113.7:1"} {
			require.Equal(t, http.StatusForbidden, s.status(call{from: ip}))
		}
		require.Equal(t, `banned: answered 403 until 2000-01-02, because "scraper"`, says(0, rules.Request{IP: "198.51.100.1"}))
		require.Equal(t, `banned: answered 403 until 2000-01-02T12:00:00Z, because "again"`, says(0, rules.Request{IP: "198.51.100.65"}), "the latest end counts")
		require.Equal(t, `banned: answered 403`, says(0, rules.Request{IP: "203.0.113.7"}))
		require.Equal(t, `on the list: not limited until 2000-01-02, because "partner"`, says(1, rules.Request{IP: "203.0.113.65"}))
		require.Equal(t, `6/1h sliding-log for "user:carla", a limit of its own until 2000-01-02, because "import, ticket 815"`, says(2, rules.Request{User: "carla"}))
		for range 9 {
			require.Equal(t, http.StatusOK, s.status(call{from: "203.0.113.65:1"}))
		}
		s.passes(6, call{user: "carla"})

		time.Sleep(time.Nanosecond)
		s.passes(3, call{from: "198.51.100.1:1"})
		s.passes(3, call{from: "203.0.113.65:1"})
		require.Equal(t, http.StatusTooManyRequests, s.status(call{user: "carla"}))
		require.Equal(t, http.StatusForbidden, s.status(call{from: "198.51.100.65:1"}))
		require.Equal(t, `3/1h sliding-log for "user:carla"`, says(2, rules.Request{User: "carla"}))
		require.Equal(t, "not on the list", says(1, rules.Request{IP: "203.0.113.65"}))
		time.Sleep(12 * time.Hour)
		s.passes(3, call{from: "198.51.100.65:1"})
		s.passes(3, call{user: "carla"})
		require.Equal(t, http.StatusForbidden, s.status(call{from: "203.0.113.7:1"}))
		require.Len(t, parse(t, datedFile, rules.Options{}).Warnings(), 4)
	})
}

func TestNetworksThatEndAreNotMostOfTheInternetEither(t *testing.T) {
	var list []string
	for i := range 128 {
		list = append(list, fmt.Sprintf("{%d.0.0.0/8: {until: 2999-01-01}}", i+64))
	}
	_, err := rules.Parse([]byte("version: 1\nban: {cidrs: ["+strings.Join(list, ", ")+"]}\n"), rules.Options{})
	require.ErrorContains(t, err, "at most half are allowed")
}

func TestARulesFileHas25000Overrides(t *testing.T) {
	var text strings.Builder
	text.WriteString("version: 1\ndefault:\n  limit: 5/s\n  key: user\n  overrides:\n")
	for n := range 25_000 {
		fmt.Fprintf(&text, "    user:customer-%d: 100/h\n", n)
	}
	require.Len(t, parsed(t, text.String()).Config().Default[0].Overrides, 25_000)
}
