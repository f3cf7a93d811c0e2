package keyfunc_test

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
)

func TestNewAddressIsTheWholeAddressOfTheClient(t *testing.T) {
	const proxy = "10.0.0.1:1"
	for _, tt := range []struct{ peer, forwarded, want string }{
		{"192.0.2.1:1234", "198.51.100.7", "192.0.2.1"},
		{"[2001:db8:1:2:3::4]:1234", "", "2001:db8:1:2:3::4"},
		{"[2001:DB8:0:0::1%eth0]:1234", "", "2001:db8::1"},
		{"[::ffff:192.0.2.1]:1234", "", "192.0.2.1"},
		{"[64:ff9b::c000:201]:1234", "", "192.0.2.1"},
		{proxy, "198.51.100.7, 192.0.2.1", "192.0.2.1"},
		{proxy, "[2001:db8:1:2:3::4]:80", "2001:db8:1:2:3::4"},
		{proxy, "64:ff9b::192.0.2.1", "192.0.2.1"},
		{"[64:ff9b::a00:1]:1", "192.0.2.1", "10.0.0.1"}, // is not the proxy
	} {
		f, err := keyfunc.NewAddress(keyfunc.TrustProxies("10.0.0.0/8"))
		require.NoError(t, err)
		assert.Equal(t, netip.MustParseAddr(tt.want), f(from(tt.peer, "X-Forwarded-For", tt.forwarded)), "%s for %q", tt.peer, tt.forwarded)
	}
	f, err := keyfunc.NewAddress()
	require.NoError(t, err)
	for _, peer := range []string{"", "@", "/run/app.sock", "garbage", "010.0.0.1:1", "192.0.2.1:http"} {
		assert.Zero(t, f(from(peer)), "%q", peer)
	}
}

// peerOnly is the key of the peer.
var peerOnly = keyfunc.IP()

// Where IP counts a proxy that is in doubt about its client, a list of addresses must not
// take the client for the proxy.
func TestAClientInDoubtHasNoAddress(t *testing.T) {
	address, err := keyfunc.NewAddress(keyfunc.TrustProxies("10.0.0.0/8"))
	require.NoError(t, err)
	const proxy = "10.0.0.5:1"
	assert.Equal(t, "203.0.113.7", address(from(proxy, "X-Forwarded-For", "203.0.113.7")).String())
	assert.Equal(t, "10.0.0.5", address(from(proxy)).String(), "the proxy's own request")
	for _, doubt := range []string{"foo", "203.0.113.7, foo", "unknown", "203.0.113.7:x"} {
		assert.False(t, address(from(proxy, "X-Forwarded-For", doubt)).IsValid(), doubt)
	}
	address, err = keyfunc.NewAddress(keyfunc.TrustHeader("X-Real-IP", "10.0.0.0/8"))
	require.NoError(t, err)
	assert.False(t, address(from(proxy)).IsValid(), "the proxy sets it on every request")
	assert.False(t, address(from(proxy, "X-Real-IP", "203.0.113.7", "X-Real-IP", "203.0.113.8")).IsValid())
	assert.Equal(t, "203.0.113.9", address(from("203.0.113.9:1", "X-Real-IP", "10.0.0.1")).String(), "a stranger says nothing")
}

// Whatever a proxy sends, the key is the client's address or its network.
func FuzzTheAddressIsThatOfTheKey(f *testing.F) {
	for _, peer := range []string{"10.0.0.1:1", "[::ffff:10.0.0.1]:1", "[fd00::1%eth0]:1", "203.0.113.9:1", "[2001:db8::1]:1", "[64:ff9b::c000:201]:1", "@", ""} {
		for _, value := range spellings {
			f.Add(peer, value, value)
			f.Add(peer, value, "10.0.0.2")
		}
	}
	type pair struct {
		key     keyfunc.Func
		address func(*http.Request) netip.Addr
	}
	var pairs []pair
	for _, options := range [][]keyfunc.IPOption{
		nil,
		opts(keyfunc.TrustProxies("10.0.0.0/8", "fd00::1"), keyfunc.TrustUnixSocket()),
		opts(keyfunc.TrustForwarded("10.0.0.0/8", "fd00::1"), keyfunc.TrustUnixSocket()),
		opts(keyfunc.TrustHops(1)),
		opts(keyfunc.TrustHops(2), keyfunc.TrustUnixSocket()),
		opts(keyfunc.TrustHeader("X-Real-IP"), keyfunc.TrustUnixSocket()),
		opts(keyfunc.TrustHeader("X-Real-IP", "10.0.0.0/8")),
	} {
		address, err := keyfunc.NewAddress(options...)
		require.NoError(f, err)
		pairs = append(pairs, pair{keyfunc.IP(options...), address})
	}
	f.Fuzz(func(t *testing.T, peer, first, second string) {
		for _, header := range forwarding {
			for _, p := range pairs {
				r := from(peer, header, first, header, second)
				key, ip := keyOf(t, p.key, r), p.address(r)
				assert.Empty(t, ip.Zone())
				switch {
				case !ip.IsValid():
					// Nobody is known, or the peer is a proxy that is in doubt, whom IP counts.
					if key != "no-ip" {
						peerKey, _ := peerOnly(from(peer))
						assert.Equal(t, peerKey, key)
					}
				case ip.Is4():
					assert.Equal(t, ip.String(), key)
				default:
					assert.False(t, ip.Is4In6())
					assert.Equal(t, netip.PrefixFrom(ip, 64).Masked().String(), key)
				}
			}
		}
	})
}

func TestNewAddressDoesNotAllocate(t *testing.T) {
	f, err := keyfunc.NewAddress(keyfunc.TrustProxies("10.0.0.0/8"))
	require.NoError(t, err)
	for _, r := range []string{"192.0.2.1:1234", "10.0.0.1:1"} {
		request := from(r, "X-Forwarded-For", "198.51.100.7, 192.0.2.1, 10.0.0.3")
		assert.Zero(t, testing.AllocsPerRun(100, func() { f(request) }), r)
	}
}
