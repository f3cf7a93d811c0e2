package network_test

import (
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

func TestFromNAT64(t *testing.T) {
	assert.Equal(t, "192.0.2.1", network.FromNAT64(netip.MustParseAddr("64:ff9b::192.0.2.1")).String())
	assert.Equal(t, "2001:db8::1", network.FromNAT64(netip.MustParseAddr("2001:db8::1")).String())
}
