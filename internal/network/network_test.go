package network_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/network"
)

func TestASetContainsWhatOneOfItsNetworksDoes(t *testing.T) {
	// Addresses and prefixes from a small world, so that they meet.
	address := rapid.Custom(func(t *rapid.T) netip.Addr {
		low := byte(rapid.IntRange(0, 255).Draw(t, "low"))
		if rapid.Bool().Draw(t, "is IPv4") {
			return netip.AddrFrom4([4]byte{10, byte(rapid.IntRange(0, 1).Draw(t, "third")), 0, low})
		}
		return netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, 14: byte(rapid.IntRange(0, 1).Draw(t, "high")), 15: low})
	})
	rapid.Check(t, func(t *rapid.T) {
		var set network.Set
		var all []netip.Prefix
		for range rapid.IntRange(0, 30).Draw(t, "networks") {
			ip := address.Draw(t, "ip")
			prefix, err := ip.Prefix(rapid.IntRange(8, ip.BitLen()).Draw(t, "bits"))
			require.NoError(t, err)
			set.Add(prefix)
			all = append(all, prefix)
		}
		ip, want := address.Draw(t, "asked"), false
		for _, prefix := range all {
			want = want || prefix.Contains(ip)
		}
		if set.Contains(ip) != want {
			t.Fatalf("Contains(%v) is %v for %v", ip, !want, all)
		}
	})
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.7":             "192.0.2.7/32",
		"192.0.2.7/24":          "192.0.2.0/24",
		"2001:db8::1":           "2001:db8::1/128",
		"::ffff:192.0.2.0/120":  "192.0.2.0/24",
		"10.0.0.0/8":            "10.0.0.0/8",
		"fc00::/7":              "fc00::/7",
		"128.0.0.0/1":           "128.0.0.0/1",
		"::ffff:0.0.0.0/90":     "",
		"fe80::1%eth0":          "",
		"192.0.2.0/33":          "",
		"example.com":           "",
		"":                      "",
		"192.0.2.1 192.0.2.2":   "",
		"192.0.2.0/255.255.0.0": "",
	} {
		prefix, err := network.Parse(text)
		if want == "" {
			assert.Error(t, err, text)
			continue
		}
		require.NoError(t, err, text)
		assert.Equal(t, want, prefix.String(), text)
	}
}

func TestAnAddressWithAnIPv4AddressInItIsOfIPv4(t *testing.T) {
	for _, ip := range []string{
		"64:ff9b::192.0.2.1", "64:ff9b:1::192.0.2.1", "64:ff9b:1:ffff::192.0.2.1", "64:ff9b:1:abcd:0:0:192.0.2.1",
		"::ffff:0:192.0.2.1", "2002:c000:201:ffff::1",
	} {
		assert.Equal(t, "192.0.2.1", network.OfClient(netip.MustParseAddr(ip)).String(), ip)
	}
	for _, ip := range []string{
		"2003:c000:201::1", "2001:db8::1", "::1", "::192.0.2.1", "64:ff9b:2::c000:201",
		"64:ff9b:1:c000:2:100::", "64:ff9b:1:c000::", // RFC 6052 with a prefix of 48 bits
		"2002:a00:1::1", "2002:7f00:1::1", "2002:c0a8:101::1", "2002:a9fe:a9fe::1", "2002::1", "2002:ffff:ffff::1", // forged
	} {
		assert.Equal(t, netip.MustParseAddr(ip), network.OfClient(netip.MustParseAddr(ip)), ip)
	}
}

func setOf(networks ...string) *network.Set {
	var set network.Set
	for _, text := range networks {
		set.Add(netip.MustParsePrefix(text))
	}
	return &set
}

// each returns the networks that format makes of the numbers from first to last.
func each(format string, first, last int) (networks []string) {
	for n := first; n <= last; n++ {
		networks = append(networks, fmt.Sprintf(format, n))
	}
	return networks
}

func TestNetworksThatTogetherContainMostAddressesAreNoList(t *testing.T) {
	halves := []string{}
	for n := range 256 { // each /8 in pieces, and some of it twice
		halves = append(halves, fmt.Sprintf("%d.0.0.0/9", n), fmt.Sprintf("%d.128.0.0/9", n), fmt.Sprintf("%d.1.0.0/16", n))
	}
	var sevens []string
	for n := 0; n < 256; n += 2 {
		sevens = append(sevens, fmt.Sprintf("%02x00::/7", n))
	}
	for name, networks := range map[string][]string{
		"all of IPv4":                each("%d.0.0.0/8", 0, 255),
		"all of IPv4 in pieces":      halves,
		"all public addresses":       each("%d.0.0.0/8", 1, 223),
		"all but a quarter":          each("%d.0.0.0/8", 60, 223),
		"all of IPv6":                sevens,
		"all of IPv6 in use":         append(each("2%03x::/16", 0, 0xfff), each("3%03x::/16", 0, 0xfff)...),
		"all of IPv6, and a list":    append(each("%02x00::/8", 0x20, 0x3f), "192.0.2.0/24"),
		"all of IPv4 behind a NAT64": each("64:ff9b::%02x00:0/104", 0, 255),
		"all of IPv4 behind its own": each("64:ff9b:1::%02x00:0/104", 0, 255),
		"half of IPv4 twice over":    append(each("%d.0.0.0/8", 1, 110), each("64:ff9b::%02x00:0/104", 111, 150)...),
	} {
		assert.ErrorContains(t, setOf(networks...).Check(), "at most half are allowed", name)
	}
	for name, networks := range map[string][]string{
		"nothing":            nil,
		"one network":        {"203.0.113.0/24"},
		"private networks":   {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"},
		"half of IPv4":       append(each("%d.0.0.0/8", 1, 9), each("%d.0.0.0/8", 11, 111)...),
		"one many times":     append(each("1.0.%d.0/24", 0, 255), each("1.%d.0.0/16", 0, 255)...),
		"no public address":  append(each("%d.0.0.0/8", 224, 255), "0.0.0.0/8", "127.0.0.0/8", "10.0.0.0/8"),
		"addresses of IPv6":  each("2001:db8::%x/128", 0, 1000),
		"a twin of all IPv4": each("64:ff9b:2::%02x00:0/104", 0, 255),
	} {
		assert.NoError(t, setOf(networks...).Check(), name)
	}
}

func TestANetworkWithIPv4AddressesInItIsOfIPv4(t *testing.T) {
	for text, want := range map[string]string{
		"64:ff9b::192.0.2.1/128":    "192.0.2.1/32",
		"64:ff9b::c000:200/120":     "192.0.2.0/24",
		"64:ff9b::/64":              "64:ff9b::/64",
		"64:ff9b:1:2::c000:200/120": "192.0.2.0/24",
		"::ffff:0:192.0.2.1/128":    "192.0.2.1/32",
		"2002:c000:200::/40":        "192.0.2.0/24",
		"2002:c000:201::/48":        "192.0.2.1/32",
		"2002:c000:201:1::/64":      "192.0.2.1/32",
		"2002:a00::/24":             "2002:a00::/24",
		"2002::/15":                 "2002::/15",
		"2001:db8::/32":             "2001:db8::/32",
		"192.0.2.0/24":              "192.0.2.0/24",
	} {
		assert.Equal(t, want, network.OfClients(netip.MustParsePrefix(text)).String())
	}
	for text, widest := range map[string]int{"10.0.0.0/8": 8, "fc00::/7": 7, "64:ff9b::/96": 104, "64:ff9b::/64": 104, "64:ff9b:1:2::/64": 104, "::ffff:0:0:0/96": 104, "::/7": 104, "::/0": 7, "2002::/16": 24, "2000::/7": 24, "2002:c000:201::/48": 24, "2003::/16": 7} {
		assert.Equal(t, widest, network.Widest(netip.MustParsePrefix(text)), text)
	}
}
