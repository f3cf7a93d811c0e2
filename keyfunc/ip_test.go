package keyfunc_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
)

// testdata/addresses.txt is a table: an option, and for each peer and header the key.
func TestAddressesAreReadAsTheTableSays(t *testing.T) {
	var ip keyfunc.Func
	var header string
	for _, row := range table(t, "addresses.txt") {
		if row[0] == "=" {
			ip, header = addressesBy(t, row[1], row[2:])
			continue
		}
		key, peer, sent := row[0], row[1], lines(header, row[2:])
		assert.Equal(t, key, keyOf(t, ip, from(peer, sent...)), row)
		if header == "Forwarded" {
			assert.Equal(t, "203.0.113.9", keyOf(t, ip, from("203.0.113.9:1", sent...)), "a stranger's header is not read: %q", row)
		}
	}
}

// addressesBy is the key of an option of the table, and the header that the option reads.
func addressesBy(t *testing.T, option string, args []string) (f keyfunc.Func, header string) {
	switch option {
	case "TrustProxies":
		return keyfunc.IP(keyfunc.TrustProxies(args...)), "X-Forwarded-For"
	case "TrustForwarded":
		return keyfunc.IP(keyfunc.TrustForwarded(args...)), "Forwarded"
	case "TrustHeader":
		return keyfunc.IP(keyfunc.TrustHeader("x-real-ip", args...)), "X-Real-IP"
	case "TrustHops":
		n, err := strconv.Atoi(args[0])
		require.NoError(t, err)
		return keyfunc.IP(keyfunc.TrustHops(n)), "X-Forwarded-For"
	}
	require.Equal(t, "IP", option)
	return keyfunc.IP(), "X-Forwarded-For"
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
		{0, 64, "[2002:c000:201:1::1]:1", "192.0.2.1"},
		{0, 128, "[2002:c000:201:2::1]:1", "192.0.2.1"},
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
	assert.Equal(t, keyfunc.Network, classOf(t, behind, from("203.0.113.9:1")))
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
	var eights []string // 256 networks, none of them too wide
	for n := range 256 {
		eights = append(eights, fmt.Sprintf("%d.0.0.0/8", n))
	}
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
		{"everybody, in many pieces", opts(keyfunc.TrustProxies(eights...)),
			`keyfunc: TrustProxies: it trusts strangers: its networks together contain 100% of the public addresses of IPv4: at most half are allowed`},
		{"everybody, behind a NAT64", opts(keyfunc.TrustHeader("X-Real-IP", "64:ff9b::/96")),
			`keyfunc: TrustHeader("64:ff9b::/96"): it trusts strangers; networks wider than /104 are refused`},
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
			`keyfunc: TrustHeader("x-forwarded-for"): the client may have written the first entries of this list; use the option that trusts proxies by their address`},
		{"another list", opts(keyfunc.TrustHeader("forwarded")),
			`keyfunc: TrustHeader("forwarded"): the client may have written the first entries of this list; use the option that trusts proxies by their address`},
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
			`keyfunc: TrustUnixSocket(): it needs another option, such as trusted proxies, that says which header to read`},
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
