package rules_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/middleware/shed"
)

func TestProxiesAreThoseThatTheFileNames(t *testing.T) {
	for text, want := range map[string]string{
		"{}":                          "",
		"{hops: 1}":                   "",
		"{header: {name: X-Real-IP}}": "",
		"{trusted: [10.0.0.0/8, \"2001:db8::/64\"]}":                          "10.1.2.3:80 [2001:db8::7]:80 [::ffff:10.1.2.3]:80",
		"{forwarded: [10.1.2.3]}":                                             "10.1.2.3:80 [::ffff:10.1.2.3]:80",
		"{header: {name: X-Real-IP, cidrs: [10.0.0.0/8]}, unix_socket: true}": "10.1.2.3:80 [::ffff:10.1.2.3]:80 @ /run/weir.sock",
	} {
		r, err := rules.Parse([]byte("version: 1\nproxies: "+text+"\ndefault: 5/s\n"), rules.Options{})
		require.NoError(t, err, text)
		has := ""
		for _, peer := range []string{"10.1.2.3:80", "[2001:db8::7]:80", "[::ffff:10.1.2.3]:80", "@", "/run/weir.sock", "192.0.2.1:80", "10.1.2.3", "x"} {
			if r.Proxies().Has(peer) {
				has += " " + peer
			}
		}
		if has != "" {
			has = has[1:]
		}
		require.Equal(t, want, has, text)
		require.Equal(t, want == "", r.Proxies().None(), text)
	}
}

func TestWhatAProgramLacksIsRefusedWithItsLine(t *testing.T) {
	for need, text := range map[string]string{
		"user":           "default: {limit: 5/s, key: user}",
		"tier":           "overload: {priority: [gold]}",
		"overload":       "overload: {}",
		"status":         "default: {limit: 5/s, counts: [401]}",
		"concurrency":    "default: {limit: 5/s, tiers: {gold: {concurrency: 2}}}",
		"queue":          "default: {limit: 5/s, algorithm: leaky_bucket}",
		"settled":        "default: {limit: 5/s, cost: {units: 2, settle: true}}",
		"router":         "endpoints: {\"/files/{name}.json\": 5/s}",
		"header:X-Units": "global: {limit: 5/s, cost: {header: x-units}}",
	} {
		o := rules.Options{Overload: shed.FromRules, Lacks: func(_ *rules.Proxies, n rules.Need) string {
			if n.Of == need {
				return "is lacking"
			}
			return ""
		}}
		_, err := rules.Parse([]byte("version: 1\nproxies: {}\n"+text+"\n"), o)
		require.ErrorContains(t, err, ": is lacking", text)
		require.ErrorContains(t, err, "3:", text)
		o.Lacks = nil
		_, err = rules.Parse([]byte("version: 1\nproxies: {}\n"+text+"\n"), o)
		require.NoError(t, err, text)
	}
	_, err := rules.Parse([]byte("version: 1\ndefault: 5/s\nendpoints: {/a: {limit: 1/s, key: user, mode: \"off\"}}\n"), rules.Options{Lacks: func(*rules.Proxies, rules.Need) string { return "is lacking" }})
	require.NoError(t, err, "a rule that is off needs nothing")
}
