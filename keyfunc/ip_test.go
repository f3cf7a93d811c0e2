package keyfunc_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
)

func TestIPIsThePeer(t *testing.T) {
	for _, tt := range []struct{ peer, want string }{
		{"192.0.2.1:1234", "192.0.2.1"},
		{"192.0.2.1", "192.0.2.1"},
		{"[2001:db8::1]:1234", "2001:db8::/64"},
		{"[2001:db8::1]", "2001:db8::/64"},
		{"2001:db8::1", "2001:db8::/64"},
		{"[2001:DB8:0:0:ffff::1]:1234", "2001:db8::/64"},
		{"[2001:db8:0:1::1]:1234", "2001:db8:0:1::/64"},
		{"[2001:db8::192.0.2.1]:1234", "2001:db8::/64"},
		{"[fe80::1%eth0]:1234", "fe80::/64"},
		{"fe80::1%eth0", "fe80::/64"},
		{"[::1]:1234", "::/64"},

		// IPv4 inside IPv6, by bits and not by notation
		{"[::ffff:192.0.2.1]:1234", "192.0.2.1"},
		{"[::ffff:c000:201]:1234", "192.0.2.1"},
		{"::ffff:c000:201", "192.0.2.1"},
		{"[0:0:0:0:0:ffff:c000:0201%eth0]:1234", "192.0.2.1"},
		{"[64:ff9b::192.0.2.1]:1234", "192.0.2.1"},
		{"[64:ff9b::c000:201]:1234", "192.0.2.1"},
		{"[64:ff9b:1::c000:201]:1234", "64:ff9b:1::/64"}, // another prefix, another layout

		// no address
		{"", "no-ip"},
		{"@", "no-ip"},
		{"@abstract", "no-ip"},
		{"/run/app.sock", "no-ip"},
		{"pipe", "no-ip"},
		{":1234", "no-ip"},
		{"[]:1234", "no-ip"},
		{"example.com:1234", "no-ip"},
		{"192.0.2.1:", "no-ip"},
		{"192.0.2.1:http", "no-ip"},
		{"192.0.2.1:123456", "no-ip"},
		{"192.0.2.1:1:2", "no-ip"},
		{"[192.0.2.1]:1234", "no-ip"},
		{"[2001:db8::1", "no-ip"},
		{"[2001:db8::1]1234", "no-ip"},
		{"[fe80::1%]:1234", "no-ip"},
		{"192.0.2.1%eth0:1234", "no-ip"},

		// what inet_aton would take for an address
		{"010.0.0.1:1234", "no-ip"},
		{"10.1:1234", "no-ip"},
		{"0x7f.0.0.1:1234", "no-ip"},
		{"3405803783:1234", "no-ip"},
		{"192.0.2.256:1234", "no-ip"},
		{"192.0.2.1.:1234", "no-ip"},
	} {
		assert.Equal(t, tt.want, keyOf(t, keyfunc.IP(), from(tt.peer)), tt.peer)
	}
}

func TestPrefixesFoldNeighbours(t *testing.T) {
	for _, tt := range []struct {
		ipv4, ipv6 int // 0: IPv6Prefix
		peer, want string
	}{
		{0, 32, "[2001:db8:1:2:3::4]:1", "2001:db8::/32"},
		{0, 48, "[2001:db8:1:2:3::4]:1", "2001:db8:1::/48"},
		{24, 48, "[2001:db8:1:2:3::4]:1", "2001:db8:1::/48"},
		{0, 56, "[2001:db8:1:2ff:3::4]:1", "2001:db8:1:200::/56"},
		{0, 128, "[2001:db8:1:2:3::4]:1", "2001:db8:1:2:3::4/128"},
		{24, 48, "203.0.113.9:1", "203.0.113.0/24"},
		{20, 64, "203.0.113.9:1", "203.0.112.0/20"},
		{8, 64, "203.0.113.9", "203.0.0.0/8"},
		{32, 64, "203.0.113.9:1", "203.0.113.9"},
		{24, 48, "@", "no-ip"},

		// CVE-2026-30827: a mask on an IPv4-mapped address made ::/56 of everybody
		{0, 32, "[::ffff:192.0.2.1]:1", "192.0.2.1"},
		{0, 56, "[::ffff:c000:201]:1", "192.0.2.1"},
		{0, 56, "192.0.2.1:1", "192.0.2.1"},
		{24, 48, "[::ffff:c000:201]:1", "192.0.2.0/24"},
		{24, 48, "[64:ff9b::192.0.2.1]:1", "192.0.2.0/24"},
	} {
		opt := keyfunc.Prefixes(tt.ipv4, tt.ipv6)
		if tt.ipv4 == 0 {
			opt = keyfunc.IPv6Prefix(tt.ipv6)
		}
		assert.Equal(t, tt.want, keyOf(t, keyfunc.IP(opt), from(tt.peer)), "%s at /%d/%d", tt.peer, tt.ipv4, tt.ipv6)
	}
	behind := keyfunc.IP(keyfunc.TrustProxies("10.0.0.0/8"), keyfunc.Prefixes(24, 48))
	assert.Equal(t, "203.0.113.0/24", keyOf(t, behind, from("10.0.0.1:1", "X-Forwarded-For", "203.0.113.9")))
	assert.Equal(t, keyfunc.InDoubt, classOf(t, behind, from("10.0.0.1:1")), "the proxy's network is banned for nobody")
	assert.Equal(t, keyfunc.Own, classOf(t, behind, from("203.0.113.9:1")))
}

func TestTrustProxiesReadsForwardedFor(t *testing.T) {
	const proxy = "10.0.0.1:1234"
	for _, tt := range []struct {
		name  string
		peer  string
		lines []string
		want  string
	}{
		{"no header", proxy, nil, "10.0.0.1"},
		{"one client", proxy, []string{"192.0.2.1"}, "192.0.2.1"},
		{"client's own entry", proxy, []string{"198.51.100.7, 192.0.2.1"}, "192.0.2.1"},
		{"client's own line", proxy, []string{"198.51.100.7", "192.0.2.1"}, "192.0.2.1"},
		{"a proxy in between", proxy, []string{"198.51.100.7, 192.0.2.1, 10.9.9.9"}, "192.0.2.1"},
		{"a proxy in between, lines", proxy, []string{"192.0.2.1, 10.9.9.8", "10.9.9.9"}, "192.0.2.1"},
		{"all are proxies", proxy, []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"the peer is a stranger", "203.0.113.9:1", []string{"192.0.2.1"}, "203.0.113.9"},
		{"the peer is on a socket", "@", []string{"192.0.2.1"}, "no-ip"},
		{"the peer has no address", "garbage", []string{"192.0.2.1"}, "no-ip"},

		// the proxy, however it is spelled
		{"mapped peer", "[::ffff:10.0.0.1]:1", []string{"192.0.2.1"}, "192.0.2.1"},
		{"mapped peer in hex", "[::ffff:a00:1]:1", []string{"192.0.2.1"}, "192.0.2.1"},
		{"peer with a zone", "[fd00::1%eth0]:1", []string{"192.0.2.1"}, "192.0.2.1"},
		{"mapped proxy in between", proxy, []string{"192.0.2.1, ::ffff:10.0.0.2"}, "192.0.2.1"},
		{"proxy with a zone in between", proxy, []string{"192.0.2.1, fd00::2%eth0"}, "192.0.2.1"},
		{"proxy with a port in between", proxy, []string{"192.0.2.1, [fd00::2]:80, 10.0.0.2:80"}, "192.0.2.1"},
		{"NAT64 is not the proxy", "[64:ff9b::10.0.0.1]:1", []string{"192.0.2.1"}, "10.0.0.1"},

		// the client, however it is spelled
		{"port", proxy, []string{"192.0.2.1:4711"}, "192.0.2.1"},
		{"mapped", proxy, []string{"::ffff:192.0.2.1"}, "192.0.2.1"},
		{"mapped in hex", proxy, []string{"::ffff:c000:201"}, "192.0.2.1"},
		{"mapped, brackets, port", proxy, []string{"[::ffff:192.0.2.1]:4711"}, "192.0.2.1"},
		{"IPv6", proxy, []string{"2001:db8::1"}, "2001:db8::/64"},
		{"IPv6 upper case", proxy, []string{"2001:DB8:0::00:1"}, "2001:db8::/64"},
		{"IPv6 brackets", proxy, []string{"[2001:db8::1]"}, "2001:db8::/64"},
		{"IPv6 brackets, port", proxy, []string{"[2001:db8::1]:4711"}, "2001:db8::/64"},
		{"IPv6 zone", proxy, []string{"fe80::1%eth0"}, "fe80::/64"},
		{"NAT64", proxy, []string{"64:ff9b::192.0.2.1"}, "192.0.2.1"},

		// whitespace and empty entries (RFC 9110 §5.6.1)
		{"no space", proxy, []string{"198.51.100.7,192.0.2.1"}, "192.0.2.1"},
		{"tabs", proxy, []string{"\t192.0.2.1\t,\t10.0.0.2\t"}, "192.0.2.1"},
		{"trailing comma", proxy, []string{"192.0.2.1, ,,"}, "192.0.2.1"},
		{"leading comma", proxy, []string{",192.0.2.1"}, "192.0.2.1"},
		{"empty line", proxy, []string{"192.0.2.1", "", " , "}, "192.0.2.1"},
		{"nothing but commas", proxy, []string{", ,"}, "10.0.0.1"},

		// not an address: the peer, whatever stands to the left
		{"unknown", proxy, []string{"192.0.2.1, unknown"}, "10.0.0.1"},
		{"garbage", proxy, []string{"192.0.2.1, x"}, "10.0.0.1"},
		{"garbage behind a proxy", proxy, []string{"192.0.2.1, x, 10.0.0.2"}, "10.0.0.1"},
		{"garbage before the client", proxy, []string{"x, 192.0.2.1"}, "192.0.2.1"},
		{"quotes", proxy, []string{`"192.0.2.1"`}, "10.0.0.1"},
		{"nginx on a socket", proxy, []string{"192.0.2.1, unix:"}, "10.0.0.1"},
		{"brackets around IPv4", proxy, []string{"[192.0.2.1]"}, "10.0.0.1"},
		{"IPv6 with a port but no brackets", proxy, []string{"2001:db8::1:2:3:4:5:6:4711"}, "10.0.0.1"},
		{"space in between", proxy, []string{"192.0.2.1 192.0.2.2"}, "10.0.0.1"},
		{"no-break space", proxy, []string{"\u00a0192.0.2.1"}, "10.0.0.1"},
		{"octal", proxy, []string{"010.0.0.2"}, "10.0.0.1"},
		{"short", proxy, []string{"10.1"}, "10.0.0.1"},
		{"hex", proxy, []string{"0x7f.1"}, "10.0.0.1"},
		{"integer", proxy, []string{"3405803783"}, "10.0.0.1"},
		{"CIDR", proxy, []string{"192.0.2.1/32"}, "10.0.0.1"},
		{"empty port", proxy, []string{"192.0.2.1:"}, "10.0.0.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := keyfunc.IP(keyfunc.TrustProxies("10.0.0.0/8", "fd00::/8"))
			assert.Equal(t, tt.want, keyOf(t, f, from(tt.peer, lines("X-Forwarded-For", tt.lines)...)))
		})
	}
}

// No deployment has so many proxies, and to read them takes time.
func TestAForwardingHeaderIsReadUpToItsBound(t *testing.T) {
	for header, key := range map[string]keyfunc.Func{
		"X-Forwarded-For": keyfunc.IP(keyfunc.TrustProxies("10.0.0.0/8")),
		"Forwarded":       keyfunc.IP(keyfunc.TrustForwarded("10.0.0.0/8")),
	} {
		hop := func(address string) string {
			if header == "Forwarded" {
				return "for=" + address
			}
			return address
		}
		chain := func(n int) string { return strings.Repeat(","+hop("10.0.0.2"), n) }
		assert.Equal(t, "192.0.2.9", keyOf(t, key, from("10.0.0.1:1", header, hop("192.0.2.9")+chain(100))), "a hundred proxies are read")
		assert.Equal(t, "192.0.2.9", keyOf(t, key, from("10.0.0.1:1", header, strings.Repeat("x", 1<<20)+","+hop("192.0.2.9")+chain(100))),
			"what a client wrote in front of its address does not matter")

		// Wherever the bound cuts an address off, what is left is not taken for one.
		for n := 200; n < 1100; n++ {
			got := keyOf(t, key, from("10.0.0.1:1", header, hop("198.51.100.7")+chain(n)))
			assert.Contains(t, []string{"198.51.100.7", "10.0.0.1"}, got)
		}
		for padding := range 20 {
			got := keyOf(t, key, from("10.0.0.1:1", header, hop("198.51.100.7")+chain(2000)+strings.Repeat(" ", padding)))
			assert.Equal(t, "10.0.0.1", got, "in doubt, the client is the peer")
			got = keyOf(t, key, from("10.0.0.1:1", header, hop("198.51.100.7"), header, strings.Repeat(",", 9000)+strings.Repeat(" ", padding)))
			assert.Equal(t, "10.0.0.1", got, "empty entries are read too")
		}
		lines := slices.Repeat([]string{header, hop("10.0.0.2")}, 10_000)
		assert.Equal(t, "10.0.0.1", keyOf(t, key, from("10.0.0.1:1", append([]string{header, hop("198.51.100.7")}, lines...)...)), "of all lines together")
	}
}

func TestTrustHopsCountsFromTheRight(t *testing.T) {
	for _, tt := range []struct {
		name  string
		hops  int
		peer  string
		lines []string
		want  string
	}{
		{"one hop", 1, "203.0.113.1:1", []string{"198.51.100.7, 192.0.2.1"}, "192.0.2.1"},
		{"two hops", 2, "203.0.113.1:1", []string{"198.51.100.7, 192.0.2.1, 203.0.113.2"}, "192.0.2.1"},
		{"over lines", 2, "203.0.113.1:1", []string{"198.51.100.7", "192.0.2.1", "203.0.113.2"}, "192.0.2.1"},
		{"empty entries are not hops", 2, "203.0.113.1:1", []string{"192.0.2.1,, 203.0.113.2, ", ""}, "192.0.2.1"},
		{"fewer than hops", 3, "203.0.113.1:1", []string{"192.0.2.1, 203.0.113.2"}, "203.0.113.1"},
		{"no header", 1, "203.0.113.1:1", nil, "203.0.113.1"},
		{"not an address", 1, "203.0.113.1:1", []string{"192.0.2.1, unknown"}, "203.0.113.1"},
		{"not an address on the way", 2, "203.0.113.1:1", []string{"192.0.2.1, unknown"}, "203.0.113.1"},
		{"mapped, with a port", 1, "203.0.113.1:1", []string{"[::ffff:c000:201]:80"}, "192.0.2.1"},
		{"a socket is not trusted", 1, "@", []string{"192.0.2.1"}, "no-ip"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := keyfunc.IP(keyfunc.TrustHops(tt.hops))
			assert.Equal(t, tt.want, keyOf(t, f, from(tt.peer, lines("X-Forwarded-For", tt.lines)...)))
		})
	}
}

func TestTrustHeaderTakesOneAddress(t *testing.T) {
	const proxy = "10.0.0.1:1234"
	for _, tt := range []struct {
		name  string
		peer  string
		lines []string
		want  string
	}{
		{"address", proxy, []string{"192.0.2.1"}, "192.0.2.1"},
		{"whitespace", proxy, []string{" 192.0.2.1\t"}, "192.0.2.1"},
		{"port", proxy, []string{"[2001:db8::1]:80"}, "2001:db8::/64"},
		{"zone", proxy, []string{"fe80::1%eth0"}, "fe80::/64"},
		{"a trusted address", proxy, []string{"10.0.0.2"}, "10.0.0.2"},
		{"no header", proxy, nil, "10.0.0.1"},
		{"empty", proxy, []string{""}, "10.0.0.1"},
		{"two lines", proxy, []string{"192.0.2.1", "192.0.2.1"}, "10.0.0.1"},
		{"two addresses", proxy, []string{"192.0.2.1, 192.0.2.2"}, "10.0.0.1"},
		{"trailing comma", proxy, []string{"192.0.2.1,"}, "10.0.0.1"},
		{"not an address", proxy, []string{"unknown"}, "10.0.0.1"},
		{"a stranger sends it", "203.0.113.9:1", []string{"192.0.2.1"}, "203.0.113.9"},
		// echo v5 looks for the proxy in the header itself
		{"a stranger names a proxy", "203.0.113.9:1", []string{"10.0.0.2"}, "203.0.113.9"},
		{"a socket is not trusted", "@", []string{"192.0.2.1"}, "no-ip"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := keyfunc.IP(keyfunc.TrustHeader("x-real-ip", "10.0.0.0/8"))
			assert.Equal(t, tt.want, keyOf(t, f, from(tt.peer, lines("X-Real-IP", tt.lines)...)))
		})
	}
}

func TestTrustHeaderWithoutNetworksTrustsAnyPeerWithAnAddress(t *testing.T) {
	f := keyfunc.IP(keyfunc.TrustHeader("CF-Connecting-IP"))
	assert.Equal(t, "192.0.2.1", keyOf(t, f, from("203.0.113.9:1", "CF-Connecting-IP", "192.0.2.1")))
	assert.Equal(t, "no-ip", keyOf(t, f, from("@", "CF-Connecting-IP", "192.0.2.1")))
}

func TestNoOtherHeaderIsTried(t *testing.T) {
	r := from("10.0.0.1:1", "X-Real-IP", "192.0.2.1", "CF-Connecting-IP", "192.0.2.1",
		"X_Forwarded_For", "192.0.2.1", "True-Client-IP", "192.0.2.1")
	for _, opt := range []keyfunc.IPOption{
		keyfunc.TrustProxies("10.0.0.0/8"),
		keyfunc.TrustForwarded("10.0.0.0/8"),
		keyfunc.TrustHops(1),
		keyfunc.TrustHeader("X-Client-IP"),
	} {
		assert.Equal(t, "10.0.0.1", keyOf(t, keyfunc.IP(opt), r))
	}
}

func TestTrustUnixSocketTrustsOnlySockets(t *testing.T) {
	for _, tt := range []struct {
		name   string
		trust  keyfunc.IPOption
		header string
	}{
		{"TrustProxies", keyfunc.TrustProxies(), "X-Forwarded-For"},
		{"TrustForwarded", keyfunc.TrustForwarded(), "Forwarded"},
		{"TrustHops", keyfunc.TrustHops(1), "X-Forwarded-For"},
		{"TrustHeader", keyfunc.TrustHeader("X-Real-IP"), "X-Real-IP"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			value := "192.0.2.1"
			if tt.header == "Forwarded" {
				value = "for=192.0.2.1"
			}
			f := keyfunc.IP(keyfunc.TrustUnixSocket(), tt.trust)
			for _, peer := range []string{"", "@", "@abstract", "/run/client.sock"} {
				assert.Equal(t, "192.0.2.1", keyOf(t, f, from(peer, tt.header, value)), peer)
				assert.Equal(t, "no-ip", keyOf(t, f, from(peer, tt.header, "unknown")), peer)
				assert.Equal(t, "no-ip", keyOf(t, f, from(peer)), peer)
			}
			// somebody wrote a header into RemoteAddr
			assert.Equal(t, "no-ip", keyOf(t, f, from("garbage", tt.header, value)))
		})
	}
}

func TestTrustUnixSocketDoesNotTrustAddresses(t *testing.T) {
	f := keyfunc.IP(keyfunc.TrustProxies(), keyfunc.TrustUnixSocket())
	assert.Equal(t, "127.0.0.1", keyOf(t, f, from("127.0.0.1:1", "X-Forwarded-For", "192.0.2.1")))
}

func TestNetworksMayBeAddressesAndIPv4InsideIPv6(t *testing.T) {
	for _, tt := range []struct {
		cidr, peer string
		trusted    bool
	}{
		{"10.0.0.1", "10.0.0.1:1", true},
		{"10.0.0.1", "10.0.0.2:1", false},
		{"10.0.0.1", "[::ffff:10.0.0.1]:1", true},
		{"10.0.0.1/8", "10.9.9.9:1", true},
		{"2001:db8::1", "[2001:db8::1]:1", true},
		{"2001:db8::1", "[2001:db8::2]:1", false},
		{"fe80::1", "[fe80::1%eth0]:1", true},
		{"::ffff:10.0.0.1", "10.0.0.1:1", true},
		{"::ffff:10.0.0.0/104", "10.9.9.9:1", true},
		{"::ffff:10.0.0.0/104", "11.0.0.1:1", false},
		{"::ffff:10.0.0.0/104", "[::ffff:a09:909]:1", true},
	} {
		f := keyfunc.IP(keyfunc.TrustProxies(tt.cidr))
		got := keyOf(t, f, from(tt.peer, "X-Forwarded-For", "192.0.2.1")) == "192.0.2.1"
		assert.Equal(t, tt.trusted, got, "%s in %s", tt.peer, tt.cidr)
	}
}

func TestNewIPRefusesWhatCannotBeMeant(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts []keyfunc.IPOption
		want string
	}{
		{"no networks", opts(keyfunc.TrustProxies()),
			`keyfunc: TrustProxies(): it needs the addresses of your proxies`},
		{"no networks for Forwarded", opts(keyfunc.TrustForwarded()),
			`keyfunc: TrustForwarded(): it needs the addresses of your proxies`},
		{"everybody", opts(keyfunc.TrustProxies("0.0.0.0/0")),
			`keyfunc: TrustProxies("0.0.0.0/0"): it trusts strangers; networks wider than /8 are refused`},
		{"everybody, IPv6", opts(keyfunc.TrustForwarded("::/0")),
			`keyfunc: TrustForwarded("::/0"): it trusts strangers; networks wider than /7 are refused`},
		{"everybody, in two halves", opts(keyfunc.TrustProxies("0.0.0.0/1", "128.0.0.0/1")),
			`keyfunc: TrustProxies("0.0.0.0/1"): it trusts strangers; networks wider than /8 are refused` + "\n" +
				`keyfunc: TrustProxies("128.0.0.0/1"): it trusts strangers; networks wider than /8 are refused`},
		{"everybody with IPv6", opts(keyfunc.TrustProxies("2000::/3")),
			`keyfunc: TrustProxies("2000::/3"): it trusts strangers; networks wider than /7 are refused`},
		{"everybody, mapped", opts(keyfunc.TrustHeader("X-Real-IP", "::ffff:0:0/96")),
			`keyfunc: TrustHeader("::ffff:0:0/96"): it trusts strangers; networks wider than /8 are refused`},
		{"mapped and wider", opts(keyfunc.TrustProxies("::ffff:10.0.0.0/95")),
			`keyfunc: TrustProxies("::ffff:10.0.0.0/95"): it is wider than IPv4; write it as IPv4`},
		{"not a network", opts(keyfunc.TrustProxies("10.0.0.0/33")),
			`keyfunc: TrustProxies("10.0.0.0/33"): it is neither an address nor a CIDR`},
		{"a name", opts(keyfunc.TrustProxies("private")),
			`keyfunc: TrustProxies("private"): it is neither an address nor a CIDR`},
		{"octal", opts(keyfunc.TrustProxies("010.0.0.0/8")),
			`keyfunc: TrustProxies("010.0.0.0/8"): it is neither an address nor a CIDR`},
		{"empty", opts(keyfunc.TrustProxies("")),
			`keyfunc: TrustProxies(""): it is neither an address nor a CIDR`},
		{"a zone", opts(keyfunc.TrustProxies("fe80::1%eth0")),
			`keyfunc: TrustProxies("fe80::1%eth0"): zones can't be told apart; leave it out`},
		{"no hops", opts(keyfunc.TrustHops(0)), `keyfunc: TrustHops(0): it must be at least 1`},
		{"fewer hops", opts(keyfunc.TrustHops(-1)), `keyfunc: TrustHops(-1): it must be at least 1`},
		{"a list", opts(keyfunc.TrustHeader("x-forwarded-for")),
			`keyfunc: TrustHeader("x-forwarded-for"): it is a list that the client may have begun; use TrustProxies`},
		{"another list", opts(keyfunc.TrustHeader("forwarded")),
			`keyfunc: TrustHeader("forwarded"): it is a list that the client may have begun; use TrustForwarded`},
		{"no header", opts(keyfunc.TrustHeader("")),
			`keyfunc: TrustHeader(""): it is not the name of a header`},
		{"not a header", opts(keyfunc.TrustHeader("X-Real-IP: ")),
			`keyfunc: TrustHeader("X-Real-IP: "): it is not the name of a header`},
		{"bits", opts(keyfunc.IPv6Prefix(31)), `keyfunc: IPv6Prefix(31): it must be from 32 to 128`},
		{"more bits", opts(keyfunc.IPv6Prefix(129)), `keyfunc: IPv6Prefix(129): it must be from 32 to 128`},
		{"widths", opts(keyfunc.Prefixes(7, 129)), `keyfunc: Prefixes(7, 129): they must be from 8 to 32, and from 32 to 128`},
		{"two ways", opts(keyfunc.TrustProxies("10.0.0.0/8"), keyfunc.TrustHops(1)),
			`keyfunc: TrustProxies, TrustHops: an address is found in one way; keep one of them`},
		{"one way twice", opts(keyfunc.TrustProxies("10.0.0.1"), keyfunc.TrustProxies("10.0.0.2")),
			`keyfunc: TrustProxies, TrustProxies: an address is found in one way; keep one of them`},
		{"a socket and no way", opts(keyfunc.TrustUnixSocket()),
			`keyfunc: TrustUnixSocket(): it needs TrustProxies or another option that says which header to read`},
		{"nil", opts(keyfunc.IPv6Prefix(48), nil), `keyfunc: option 2 is nil`},
		{"everything at once", opts(keyfunc.TrustProxies("x", "10.0.0.0/7"), keyfunc.IPv6Prefix(1)),
			`keyfunc: TrustProxies("x"): it is neither an address nor a CIDR` + "\n" +
				`keyfunc: TrustProxies("10.0.0.0/7"): it trusts strangers; networks wider than /8 are refused` + "\n" +
				`keyfunc: IPv6Prefix(1): it must be from 32 to 128`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := keyfunc.NewIP(tt.opts...)
			require.EqualError(t, err, tt.want)
			assert.Nil(t, f)
			address, err := keyfunc.NewAddress(tt.opts...)
			require.EqualError(t, err, tt.want)
			assert.Nil(t, address)
			assert.PanicsWithValue(t, tt.want, func() { keyfunc.IP(tt.opts...) })
			assert.PanicsWithValue(t, tt.want, func() { keyfunc.Fingerprint(tt.opts...) })
		})
	}
}

func opts(opts ...keyfunc.IPOption) []keyfunc.IPOption { return opts }
