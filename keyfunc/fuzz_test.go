package keyfunc_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/keyfunc"
)

// forwarding are the headers that options read.
var forwarding = []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip"}

// spellings seed the fuzz targets with what clients and proxies have been seen to send.
var spellings = []string{
	"192.0.2.1", "192.0.2.1:80", "[2001:db8::1]:80", "2001:db8::1", "::ffff:192.0.2.1", "fe80::1%eth0",
	"64:ff9b::192.0.2.1", "10.0.0.1", "010.0.0.1", "10.1", "0x7f.1", "unknown", "_hidden", "", " , ,",
	"198.51.100.7, 192.0.2.1, 10.0.0.2", "for=192.0.2.1", `for="[2001:db8::1]:80";proto=https`,
	`for=192.0.2.1;host="x,for=9.9.9.9;y="`, `for=9.9.9.9;x="`, `for=9.9.9.9;x="\`, `for=a;for=b`, `\"`, `;`,
}

func FuzzNoHeaderChangesTheKeyWithoutTrust(f *testing.F) {
	for _, value := range spellings {
		f.Add("192.0.2.1:1234", "X-Forwarded-For", value)
		f.Add("[2001:db8::1]:1234", "Forwarded", value)
		f.Add("@", "CF-Connecting-IP", value)
	}
	fs := []keyfunc.Func{keyfunc.IP(), keyfunc.IP(keyfunc.IPv6Prefix(48))}
	f.Fuzz(func(t *testing.T, peer, header, value string) {
		for _, ip := range fs {
			want := keyOf(t, ip, from(peer))
			assert.Equal(t, want, keyOf(t, ip, from(peer, header, value)))
			for _, header := range forwarding {
				assert.Equal(t, want, keyOf(t, ip, from(peer, header, value, header, value)))
			}
		}
	})
}

func FuzzNoHeaderOfAStrangerChangesTheKey(f *testing.F) {
	for _, value := range spellings {
		f.Add("203.0.113.9:1234", value, value)
		f.Add("[2001:db8::1]:1234", value, "192.0.2.1")
		f.Add("@", value, "for=192.0.2.1")
		f.Add("[::ffff:203.0.113.9]:1", value, "")
	}
	peer := keyfunc.IP()
	fs := []keyfunc.Func{
		keyfunc.IP(keyfunc.TrustProxies("10.0.0.0/8", "fd00::1")),
		keyfunc.IP(keyfunc.TrustForwarded("10.0.0.0/8", "fd00::1")),
		keyfunc.IP(keyfunc.TrustHeader("X-Real-IP", "10.0.0.0/8", "fd00::1")),
	}
	f.Fuzz(func(t *testing.T, remoteAddr, first, second string) {
		want := keyOf(t, peer, from(remoteAddr))
		if strings.HasPrefix(want, "10.") || strings.HasPrefix(want, "fd00:") {
			t.Skip("not a stranger")
		}
		for _, header := range forwarding {
			for _, ip := range fs {
				assert.Equal(t, want, keyOf(t, ip, from(remoteAddr, header, first, header, second)))
			}
		}
	})
}

// The proxy appends to the client's line or adds a line of its own. Either way, what
// the client wrote can't change what is read from the proxy.
func FuzzWhatTheClientSendsFirstDoesNotChangeTheKey(f *testing.F) {
	for _, value := range spellings {
		f.Add(value, value)
	}
	const proxy = "10.0.0.1:1"
	xff := keyfunc.IP(keyfunc.TrustProxies("10.0.0.0/8"))
	hops := keyfunc.IP(keyfunc.TrustHops(2))
	forwarded := keyfunc.IP(keyfunc.TrustForwarded("10.0.0.0/8"))
	f.Fuzz(func(t *testing.T, sent, before string) {
		for _, appended := range []string{"192.0.2.1, 10.0.0.2", "[::ffff:c000:201]:80,10.0.0.2:1,"} {
			for _, ip := range []keyfunc.Func{xff, hops} {
				assert.Equal(t, "192.0.2.1", keyOf(t, ip, from(proxy,
					"X-Forwarded-For", before, "X-Forwarded-For", sent+", "+appended)))
				assert.Equal(t, "192.0.2.1", keyOf(t, ip, from(proxy,
					"X-Forwarded-For", before, "X-Forwarded-For", sent, "X-Forwarded-For", appended)))
			}
		}
		for _, appended := range []string{
			`for=192.0.2.1, for=10.0.0.2`,
			`for="192.0.2.1:80";host="a\"b, c\\";proto=https,for="10.0.0.2:_x";by=""`,
			`by="[2001:db8::1]";for="\192.0.2.1"`,
		} {
			assert.Equal(t, "192.0.2.1", keyOf(t, forwarded, from(proxy,
				"Forwarded", before, "Forwarded", sent+", "+appended)))
			assert.Equal(t, "192.0.2.1", keyOf(t, forwarded, from(proxy,
				"Forwarded", before, "Forwarded", sent, "Forwarded", appended)))
		}
	})
}
