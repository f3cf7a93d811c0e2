package operate_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/keyfunc"
)

func TestAnAddressIsTheKeyThatItIsCountedUnder(t *testing.T) {
	for text, want := range map[string]string{
		"203.0.113.7":        "203.0.113.7",
		" 203.0.113.7\n":     "203.0.113.7",
		"::ffff:203.0.113.7": "203.0.113.7",
		"2001:db8::7":        "2001:db8::/64",
		"2001:db8::/64":      "2001:db8::/64",
		"2001:db8::/56":      "2001:db8::/56",
		"198.51.100.0/24":    "198.51.100.0/24",
		"":                   "",
	} {
		key, err := operate.Key(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, key, text)
	}
	for _, network := range []string{"198.51.100.7/24", "203.0.113.7/32", "0.0.0.0/0", "2001:db8::7/64", "::/0", "2002:c000:201::/64", "64:ff9b::c000:200/120"} {
		_, err := operate.Key(network)
		assert.ErrorIs(t, err, operate.ErrNetwork, network)
	}
}

func TestABanOnANetworkHasANote(t *testing.T) {
	assert.Empty(t, operate.BanNote("user:42", "203.0.113.7", "2001:db8::/64"))
	assert.Contains(t, operate.BanNote("user:42", "203.0.113.0/24"), "ban.cidrs")
	assert.Contains(t, operate.BanNote("2001:db8::/48"), "ban.cidrs")
}

func TestABanOnAKeyThatAnyClientCanSendHasANote(t *testing.T) {
	for _, key := range []string{"header:X-Tenant:acme", "cookie:session:8f3a", "query:tenant:acme", "path:id:42", "body:account:jane", "form:account:jane"} {
		assert.Contains(t, operate.BanNote("user:42", key), "locks out its owner", key)
	}
	assert.Empty(t, operate.BanNote("user:42", "apikey:k", "bearer:t"))
}

func TestAKeyIsSpelledAsARequestHasIt(t *testing.T) {
	for text, want := range map[string]string{
		"user:42":                 "user:42",
		"user:a b:c":              "user:a b:c",
		"header:x-tenant:acme":    "header:X-Tenant:acme",
		"header:X-Tenant: acme":   "header:X-Tenant:acme",
		"host:Example.COM":        "host:example.com",
		"cookie:session:8f3a":     "cookie:session:8f3a",
		"apikey:k:1":              "apikey:k:1",
		"method:GET":              "method:GET",
		"method:other":            "method:other",
		"route:GET /users/{id}":   "route:GET /users/{id}",
		"join:1:a2:bc":            "join:1:a2:bc",
		"join:0:10:tenant:...":    "join:0:10:tenant:...",
		"tenant:acme":             "tenant:acme",
		`"foo"`:                   "foo",
		`" 198.51.100.0/24\x00 "`: " 198.51.100.0/24\x00 ",
		"global":                  "global",
		"no-ip":                   "no-ip",
	} {
		key, err := operate.Key(text, "tenant")
		require.NoError(t, err, text)
		assert.Equal(t, want, key, text)
	}
}

func TestWhatNoRequestCanHaveIsNoKeyAndIsNotQuoted(t *testing.T) {
	for _, text := range []string{
		"s3cr3t", "usr:s3cr3t", "203.0.113", "010.0.0.1s3cr3t", "user:", "apikey:", "apikey:s3cr3t\x00", "header:s3cr3t", "header:a b:s3cr3t",
		"header:Host:s3cr3t", "cookie:s3cr3t", "cookie:a:s3cr3t;b", "bearer:a s3cr3t", "method:s3cr3t", "host:s3cr3t:8080", "host:",
		"route:", "join:", "join:s3cr3t", "join:7:s3cr3t", "join:06:s3cr3t", "hash:s3cr3t", "fp:s3cr3t", `"s3cr3t`, "Global", "tenant", "tenant:s3cr3t", "handler:s3cr3t",
	} {
		key, err := operate.Key(text)
		require.Error(t, err, text)
		assert.Empty(t, key)
		assert.NotContains(t, err.Error(), "s3cr3t")
	}
	_, err := operate.Key("tenant", "tenant")
	assert.Error(t, err, "a key has more than its kind")
}

// Key accepts every key that package keyfunc returns, unchanged. A new kind of key fails here
// until package operate has it.
func TestTheKeyOfARequestIsTakenAsItIs(t *testing.T) {
	secret := []byte("0123456789abcdef")
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[!-~]([ -~]{0,20}[!-~])?`)
		token := rapid.StringMatching(`[!#-+\-./0-:<-\[\]-~]{1,20}`)
		r := &http.Request{Method: rapid.SampledFrom([]string{"GET", "POST", "get", "X"}).Draw(t, "method"), Header: http.Header{}}
		r.RemoteAddr = rapid.SampledFrom([]string{"203.0.113.7:1", "[2001:db8::1]:1", "@"}).Draw(t, "peer")
		r.Host = rapid.SampledFrom([]string{"example.com", "Example.com:80", "[::1]:80", "xn--bcher-kva.example."}).Draw(t, "host")
		r.Pattern = "GET /" + token.Draw(t, "pattern")
		r.Header.Set("X-Tenant", word.Draw(t, "tenant"))
		r.Header.Set("Authorization", "Bearer "+strings.ReplaceAll(token.Draw(t, "token"), " ", ""))
		r.Header.Set("Cookie", "session="+token.Draw(t, "cookie"))
		r = r.WithContext(keyfunc.WithUser(r.Context(), rapid.StringMatching(`[!-~é]([ -~é\x00]{0,20}[!-~])?`).Draw(t, "user")))

		fs := []keyfunc.Func{
			keyfunc.IP(), keyfunc.IP(keyfunc.Prefixes(20, 48)), keyfunc.User, keyfunc.Bearer, keyfunc.APIKey("X-Tenant"), keyfunc.Header("X-Tenant"),
			keyfunc.Cookie("session"), keyfunc.Host, keyfunc.Method, keyfunc.Route, keyfunc.Global, keyfunc.Fingerprint(),
		}
		f := rapid.SampledFrom(fs).Draw(t, "key")
		g := rapid.SampledFrom(fs).Draw(t, "other")
		f = rapid.SampledFrom([]keyfunc.Func{f, keyfunc.Join(f, g), keyfunc.JoinPresent(f, g), keyfunc.First(f, g), keyfunc.Hash(secret, f)}).Draw(t, "made")
		key, err := f(r)
		if err != nil {
			return // a request without it
		}
		taken, err := operate.Key(key)
		require.NoError(t, err, "%q", key)
		text, _ := keyfunc.Classify(key)
		require.Equal(t, text, taken)
	})
}
