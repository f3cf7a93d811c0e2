package rules_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/middleware/shed"
)

func TestProxiesAreThoseThatTheFileNames(t *testing.T) {
	for text, want := range map[string]struct{ header, has string }{
		"{}":                          {},
		"{ipv6_prefix: 56}":           {},
		"{hops: 1}":                   {"X-Forwarded-For", ""},
		"{header: {name: x-real-ip}}": {"X-Real-Ip", ""},
		"{trusted: [10.0.0.0/8, \"2001:db8::/64\"]}":                          {"X-Forwarded-For", "10.1.2.3:80 [2001:db8::7]:80 [::ffff:10.1.2.3]:80"},
		"{trusted: [], unix_socket: true}":                                    {"X-Forwarded-For", "@ /run/weir.sock"},
		"{forwarded: [10.1.2.3]}":                                             {"Forwarded", "10.1.2.3:80 [::ffff:10.1.2.3]:80"},
		"{forwarded: [], unix_socket: true}":                                  {"Forwarded", "@ /run/weir.sock"},
		"{header: {name: X-Real-IP, cidrs: [10.0.0.0/8]}, unix_socket: true}": {"X-Real-Ip", "10.1.2.3:80 [::ffff:10.1.2.3]:80 @ /run/weir.sock"},
	} {
		r, err := rules.Parse([]byte("version: 1\nproxies: "+text+"\ndefault: 5/s\n"), rules.Options{})
		require.NoError(t, err, text)
		var has []string
		for _, peer := range []string{"10.1.2.3:80", "[2001:db8::7]:80", "[::ffff:10.1.2.3]:80", "@", "/run/weir.sock", "192.0.2.1:80", "10.1.2.3", "x"} {
			if r.Proxies().Has(peer) {
				has = append(has, peer)
			}
		}
		require.Equal(t, want.has, strings.Join(has, " "), text)
		require.Equal(t, want.has == "", r.Proxies().None(), text)
		require.Equal(t, want.header, r.Proxies().Header(), text)
	}
}

// No network of these lists is too wide.
func TestAListThatCoversMostAddressesIsRefused(t *testing.T) {
	var eights, sevens []string
	for n := range 256 {
		eights = append(eights, fmt.Sprintf(`"%d.0.0.0/8"`, n))
		if n%2 == 0 && n > 0 && n != 0x20 { // 0000::/7 and 2000::/7 are too wide: NAT64 and 6to4 are in them
			sevens = append(sevens, fmt.Sprintf(`"%02x00::/7"`, n))
		}
	}
	const wrong = "its networks together contain %s of the public addresses of %s: at most half are allowed"
	share := map[string]string{"IPv4": "100%", "IPv6": "93.8%"}
	for family, networks := range map[string][]string{"IPv4": eights, "IPv6": sevens} {
		list := "[" + strings.Join(networks, ", ") + "]"
		for section, want := range map[string]string{
			"ban: {cidrs: " + list + "}":         "ban: ",
			"ban: {keys: " + list + "}":          "ban: ",
			"ban: {file: clients.txt}":           "ban: ",
			"allow: {cidrs: " + list + "}":       "allow: ",
			"allow: {file: clients.txt}":         "allow: ",
			"proxies: {trusted: " + list + "}":   "proxies.trusted: it trusts strangers: ",
			"proxies: {forwarded: " + list + "}": "proxies.forwarded: it trusts strangers: ",
		} {
			dir := write(t, map[string]string{
				"clients.txt": strings.ReplaceAll(strings.Join(networks, "\n"), `"`, ""),
				"limits.yaml": "version: 1\n" + section + "\ndefault: 5/s\n",
			})
			_, err := rules.Load(dir+"/limits.yaml", rules.Options{})
			column := strings.Index(section, "{")
			if strings.HasPrefix(section, "proxies") {
				column = strings.Index(section, list)
			}
			at := fmt.Sprintf("%s/limits.yaml:2:%d: ", dir, column+1)
			require.Equal(t, []string{at + want + fmt.Sprintf(wrong, share[family], family)}, problemsOf(t, err))
		}
	}
}

func TestABannedAddressUnderAPrefixForIPv4IsOneOfIPv4(t *testing.T) {
	s := openText(t, "version: 1\nban: {cidrs: [\"64:ff9b::c633:6407\", \"64:ff9b::203.0.113.0/120\", \"2002:c000:201::/48\"]}\ndefault: 5/s\n")
	for _, peer := range []string{"198.51.100.7:1", "[64:ff9b::198.51.100.7]:1", "203.0.113.200:1", "[2002:cb00:71c8::1]:1", "[2002:c000:201:9::1]:1", "192.0.2.1:1"} {
		require.Equal(t, http.StatusForbidden, s.status(call{from: peer}), peer)
	}
	require.Equal(t, http.StatusOK, s.status(call{from: "198.51.100.8:1"}))
	require.Equal(t, http.StatusOK, s.status(call{from: "[2002:c633:6408::1]:1"}))
}

// A translator writes 64:ff9b::10.1.2.3, but anybody can send from 2002:a01:203::1.
func TestAPrivateAddressIn6to4IsNotAllowed(t *testing.T) {
	s := openText(t, "version: 1\nallow: {cidrs: [10.0.0.0/8, 127.0.0.0/8]}\ndefault: 1/h\n")
	for peer, second := range map[string]int{"10.1.2.3:1": 200, "[64:ff9b::10.1.2.3]:1": 200, "[2002:a01:203::1]:1": 429, "[2002:7f00:1::1]:1": 429} {
		require.Equal(t, http.StatusOK, s.status(call{from: peer}), peer)
		require.Equal(t, second, s.status(call{from: peer}), peer)
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
		"unix_socket":    "default: 5/s\nproxies: {trusted: [192.0.2.1], unix_socket: true}",
		"header:X-Units": "global: {limit: 5/s, cost: {header: x-units}, key: global}",
	} {
		o := rules.Options{Overload: shed.FromRules, Lacks: func(_ *rules.Proxies, n rules.Need) string {
			if n.Of == need {
				return "is lacking"
			}
			return ""
		}}
		if !strings.Contains(text, "proxies") {
			text = "proxies: {}\n" + text
		}
		_, err := rules.Parse([]byte("version: 1\n"+text+"\n"), o)
		require.ErrorContains(t, err, ": is lacking", text)
		require.ErrorContains(t, err, "3:", text)
		o.Lacks = nil
		_, err = rules.Parse([]byte("version: 1\n"+text+"\n"), o)
		require.NoError(t, err, text)
	}
	_, err := rules.Parse([]byte("version: 1\ndefault: 5/s\nendpoints: {/a: {limit: 1/s, key: user, mode: \"off\"}}\n"), rules.Options{Lacks: func(*rules.Proxies, rules.Need) string { return "is lacking" }})
	require.NoError(t, err, "a rule that is off needs nothing")
}
