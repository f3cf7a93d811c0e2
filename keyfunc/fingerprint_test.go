package keyfunc_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/keyfunc"
)

func TestFingerprintTellsClientsApart(t *testing.T) {
	// Each of these is another client than the others.
	clients := []struct {
		peer    string
		headers []string
	}{
		{"192.0.2.1:1", nil},
		{"192.0.2.2:1", nil},
		{"[2001:db8::1]:1", nil},
		{"[2001:db8:0:1::1]:1", nil},
		{"@", nil},
		{"192.0.2.1:1", []string{"User-Agent", "curl/8"}},
		{"192.0.2.1:1", []string{"Accept", "curl/8"}},
		{"192.0.2.1:1", []string{"Accept-Language", "curl/8"}},
		{"192.0.2.1:1", []string{"Accept-Encoding", "curl/8"}},
		{"192.0.2.1:1", []string{"Accept", ""}},
		{"192.0.2.1:1", []string{"Accept", "a", "Accept", "b"}},
		{"192.0.2.1:1", []string{"Accept", "ab"}},
		{"192.0.2.1:1", []string{"Accept", "a", "Accept-Language", "b"}},
		{"192.0.2.1:1", []string{"Accept", "a\x00\x01b"}},
	}
	f := keyfunc.Fingerprint()
	seen := map[string]bool{}
	for _, client := range clients {
		key := keyOf(t, f, from(client.peer, client.headers...))
		assert.Regexp(t, `^fp:[0-9A-Za-z_-]{43}$`, key)
		assert.False(t, seen[key], "%v has the key of another client", client)
		seen[key] = true
	}
}

func TestFingerprintIsOneClientsOnAllItsConnections(t *testing.T) {
	f := keyfunc.Fingerprint()
	want := keyOf(t, f, from("[2001:db8::1]:1", "User-Agent", "curl/8"))
	for _, peer := range []string{"[2001:db8::1]:2", "[2001:db8::ffff]:1"} {
		r := from(peer, "User-Agent", "curl/8", "X-Request-Id", peer, "X-Forwarded-For", "192.0.2.1")
		assert.Equal(t, want, keyOf(t, f, r), peer)
	}
}

func TestFingerprintTakesTheOptionsOfIP(t *testing.T) {
	f := keyfunc.Fingerprint(keyfunc.TrustProxies("10.0.0.1"), keyfunc.IPv6Prefix(48))
	want := keyOf(t, f, from("10.0.0.1:1", "X-Forwarded-For", "2001:db8::1"))
	assert.Equal(t, want, keyOf(t, f, from("[2001:db8:0:1::1]:1")), "proxied or not, it is one network")
	assert.NotEqual(t, want, keyOf(t, f, from("10.0.0.1:1", "X-Forwarded-For", "2001:db8:1::1")))
}
