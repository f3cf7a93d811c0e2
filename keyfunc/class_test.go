package keyfunc_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/keyfunc"
)

// combined are all ways to make one key of others.
func combined(fs ...keyfunc.Func) map[string]keyfunc.Func {
	all := map[string]keyfunc.Func{
		"Join":              keyfunc.Join(fs...),
		"JoinPresent":       keyfunc.JoinPresent(fs...),
		"Hash(Join)":        keyfunc.Hash(secret, keyfunc.Join(fs...)),
		"First(User, Join)": keyfunc.First(keyfunc.User, keyfunc.Join(fs...)),
		"Join(Hash)":        keyfunc.Join(keyfunc.Hash(secret, keyfunc.JoinPresent(fs...))),
	}
	if len(fs) == 1 {
		all["alone"] = fs[0]
	}
	return all
}

func assertClass(t *testing.T, want keyfunc.Class, r *http.Request, fs ...keyfunc.Func) {
	t.Helper()
	for how, f := range combined(fs...) {
		assert.Equal(t, want, classOf(t, f, r), how)
	}
}

func TestAKeyOfClientsThatHaveNothingToDoWithEachOtherIsShared(t *testing.T) {
	r := from("192.0.2.1:1", "X-Key", "mine")
	r.Pattern, r.Host = "GET /", "example.com"
	onSocket := from("@", "User-Agent", "curl/8")
	onSocket.Pattern = "GET /"
	ip, key := keyfunc.IP(), keyfunc.APIKey("X-Key")

	assertClass(t, keyfunc.Shared, r, keyfunc.Global)
	assertClass(t, keyfunc.Shared, r, keyfunc.Route)
	assertClass(t, keyfunc.Shared, r, keyfunc.Method)
	assertClass(t, keyfunc.Shared, r, keyfunc.Host)
	assertClass(t, keyfunc.Shared, r, keyfunc.Route, keyfunc.Method)
	assertClass(t, keyfunc.Shared, r, keyfunc.Host, keyfunc.Global)
	assertClass(t, keyfunc.Shared, onSocket, ip)
	assertClass(t, keyfunc.Shared, onSocket, ip, keyfunc.Route)
	assertClass(t, keyfunc.Shared, onSocket, keyfunc.Fingerprint())
	assert.Equal(t, keyfunc.Shared, classOf(t, keyfunc.JoinPresent(keyfunc.User, keyfunc.Route), r), "what is missing is no client's own")

	assertClass(t, keyfunc.Own, r, ip)
	assertClass(t, keyfunc.Own, r, ip, keyfunc.Route)
	assertClass(t, keyfunc.Own, r, keyfunc.Global, key)
	assertClass(t, keyfunc.Own, r, keyfunc.Fingerprint())
	assert.Equal(t, keyfunc.Own, classOf(t, keyfunc.JoinPresent(key, keyfunc.Route), r))
}

func TestAClientThatItsProxyDoesNotNameIsInDoubt(t *testing.T) {
	proxies, hops := keyfunc.TrustProxies("10.0.0.0/8"), keyfunc.TrustHops(2)
	forwarded, header := keyfunc.TrustForwarded("10.0.0.0/8"), keyfunc.TrustHeader("X-Real-IP", "10.0.0.0/8")
	for _, tt := range []struct {
		name   string
		option keyfunc.IPOption
		r      *http.Request
		want   keyfunc.Class
	}{
		{"no header", proxies, from("10.0.0.1:1"), keyfunc.InDoubt},
		{"unknown", proxies, from("10.0.0.1:1", "X-Forwarded-For", "unknown"), keyfunc.InDoubt},
		{"past the CDN", hops, from("10.0.0.1:1", "X-Forwarded-For", "192.0.2.1"), keyfunc.InDoubt},
		{"hidden", forwarded, from("10.0.0.1:1", "Forwarded", "for=_hidden"), keyfunc.InDoubt},
		{"no address", header, from("10.0.0.1:1", "X-Real-IP", "example.com"), keyfunc.InDoubt},
		{"IPv6", keyfunc.TrustProxies("fd00::1"), from("[fd00::1]:1", "X-Forwarded-For", "-"), keyfunc.InDoubt},

		{"named", proxies, from("10.0.0.1:1", "X-Forwarded-For", "192.0.2.1"), keyfunc.Own},
		{"a machine behind the proxies", proxies, from("10.0.0.1:1", "X-Forwarded-For", "10.0.0.7"), keyfunc.Own},
		{"not a proxy", proxies, from("192.0.2.1:1", "X-Forwarded-For", "unknown"), keyfunc.Own},
		{"not a proxy, without a header", header, from("192.0.2.1:1"), keyfunc.Own},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.r.Pattern = "GET /"
			tt.r = tt.r.WithContext(keyfunc.WithUser(tt.r.Context(), ""))
			assertClass(t, tt.want, tt.r, keyfunc.IP(tt.option))
			assertClass(t, tt.want, tt.r, keyfunc.IP(tt.option), keyfunc.Route)
			assertClass(t, tt.want, tt.r, keyfunc.Fingerprint(tt.option))
			signedIn := tt.r.WithContext(keyfunc.WithUser(tt.r.Context(), "42"))
			assert.Equal(t, tt.want, classOf(t, keyfunc.Join(keyfunc.User, keyfunc.IP(tt.option)), signedIn))
		})
	}
}

func TestANetworkThatNeighborsShareIsNoClientsOwn(t *testing.T) {
	ipv4, ipv6 := from("203.0.113.9:1"), from("[2001:db8:1:2::7]:1")
	for _, r := range []*http.Request{ipv4, ipv6} {
		r.Pattern = "GET /"
		assertClass(t, keyfunc.Own, r, keyfunc.IP())
		assertClass(t, keyfunc.Own, r, keyfunc.IP(keyfunc.Prefixes(32, 128)))
		for _, option := range []keyfunc.IPOption{keyfunc.Prefixes(24, 48), keyfunc.Prefixes(31, 63)} {
			assertClass(t, keyfunc.Network, r, keyfunc.IP(option))
			assertClass(t, keyfunc.Network, r, keyfunc.IP(option), keyfunc.Route)
			assertClass(t, keyfunc.Network, r, keyfunc.Fingerprint(option))
			assertClass(t, keyfunc.Own, r, keyfunc.IP(option), keyfunc.IP())
		}
	}
	assertClass(t, keyfunc.Network, ipv6, keyfunc.IP(keyfunc.IPv6Prefix(56)))
	assertClass(t, keyfunc.Own, ipv4, keyfunc.IP(keyfunc.IPv6Prefix(56)))
	behind := keyfunc.IP(keyfunc.Prefixes(24, 48), keyfunc.TrustProxies("10.0.0.0/8"))
	assertClass(t, keyfunc.Network, from("10.0.0.1:1", "X-Forwarded-For", "203.0.113.9"), behind)
	assertClass(t, keyfunc.InDoubt, from("10.0.0.1:1"), behind)
}

func TestAKeyThatAnyClientCanSendIsClaimed(t *testing.T) {
	r := httptest.NewRequest("POST", "/docs/7?tenant=acme", strings.NewReader(`{"account":"jane"}`))
	r.Pattern = "POST /docs/{id}"
	r.Header = http.Header{"X-Tenant": {"acme"}, "Cookie": {"session=8f3a"}, "X-Key": {"s3cret"}, "Authorization": {"Bearer t"}}
	r = r.WithContext(keyfunc.WithUser(r.Context(), ""))
	for _, claimed := range []keyfunc.Func{
		keyfunc.Header("X-Tenant"), keyfunc.Cookie("session"), keyfunc.Query("tenant"), keyfunc.PathValue("id"), keyfunc.JSONField("account", 100),
	} {
		assertClass(t, keyfunc.Claimed, r, claimed)
		assertClass(t, keyfunc.Claimed, r, claimed, keyfunc.Route)
		assertClass(t, keyfunc.Claimed, r, claimed, keyfunc.IP(keyfunc.Prefixes(24, 48)))
		for _, own := range []keyfunc.Func{keyfunc.IP(), keyfunc.APIKey("X-Key"), keyfunc.Bearer} {
			assertClass(t, keyfunc.Own, r, claimed, own)
		}
	}
}

// A class is not what a client is counted under: the counter stays the same.
func TestTheClassIsNoPartOfTheText(t *testing.T) {
	plain := func(*http.Request) (string, error) { return "10.0.0.1", nil }
	r, ip := from("10.0.0.1:1"), keyfunc.IP(keyfunc.TrustHops(1))
	for how, f := range combined(ip) {
		assert.Equal(t, keyOf(t, combined(plain)[how], r), keyOf(t, f, r), how)
	}
}

func TestNoClientWritesAClass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		class := rapid.SampledFrom([]keyfunc.Class{keyfunc.Shared, keyfunc.InDoubt, keyfunc.Network, keyfunc.Claimed}).Draw(t, "class")
		text := class.Mark(rapid.String().Draw(t, "text"))
		r := from("192.0.2.1:1", "X-Key", text, "Authorization", "Bearer "+text)
		r = r.WithContext(keyfunc.WithUser(r.Context(), text))
		for name, f := range map[string]keyfunc.Func{
			"User": keyfunc.User, "APIKey": keyfunc.APIKey("X-Key"), "Header": keyfunc.Header("X-Key"), "Bearer": keyfunc.Bearer,
		} {
			key, err := f(r)
			if err != nil {
				continue // a space in a token
			}
			want := keyfunc.Own
			if name == "Header" {
				want = keyfunc.Claimed
			}
			if _, got := keyfunc.Classify(key); got != want {
				t.Fatalf("%s makes %q of it, which is %v", name, key, got)
			}
		}
	})
}

func TestAMarkIsTakenOffAndNothingElse(t *testing.T) {
	for _, class := range []keyfunc.Class{keyfunc.Own, keyfunc.Shared, keyfunc.InDoubt, keyfunc.Network, keyfunc.Claimed} {
		text, got := keyfunc.Classify(class.Mark("tenant:7"))
		assert.Equal(t, "tenant:7", text)
		assert.Equal(t, class, got)
		assert.NotEmpty(t, class.String())
	}
	for _, key := range []string{"", "\x00", "\x00shared", "\x00x:y", "shared:x", "global",
		"\x00shared:alice", "\x00in-doubt:alice", "\x00shared::alice"} {
		text, class := keyfunc.Classify(key)
		assert.Equal(t, key, text)
		assert.Equal(t, keyfunc.Own, class)
	}
	assert.False(t, strings.HasPrefix(keyfunc.Own.Mark("x"), "\x00"))
}
