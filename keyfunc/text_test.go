package keyfunc_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
)

func TestParseReadsEveryKey(t *testing.T) {
	r := from("[2001:db8::1]:80")
	r.Host = "example.com"
	r.Pattern = "GET /x"
	r.Header = http.Header{
		"X-Api-Key":     {"k"},
		"X-Tenant":      {"acme"},
		"Cookie":        {"session=8f3a"},
		"Authorization": {"Bearer t"},
	}
	r = r.WithContext(keyfunc.WithUser(r.Context(), "42"))
	named := map[string]keyfunc.Func{
		"tenant_1": is("tenant:7"),
		"ip":       keyfunc.IP(keyfunc.IPv6Prefix(48)),
		"a:b":      is("no name"),
		"nil":      nil,
	}
	for text, want := range map[string]string{
		"ip":                     "2001:db8::/48",
		"ip/24/48":               "2001:db8::/48",
		"user|ip/24/32":          "user:42",
		"user":                   "user:42",
		"bearer":                 "bearer:t",
		"route":                  "route:GET /x",
		"method":                 "method:GET",
		"host":                   "host:example.com",
		"global":                 "global",
		"apikey:X-Api-Key":       "apikey:k",
		"header:x-tenant":        "header:X-Tenant:acme",
		"header: X-Tenant":       "header:X-Tenant:acme",
		"cookie:session":         "cookie:session:8f3a",
		"tenant_1":               "tenant:7",
		"user|ip":                "user:42",
		"header:X-None | ip":     "2001:db8::/48",
		"cookie:none|user | ip ": "user:42",
	} {
		f, err := keyfunc.Parse(text, named)
		require.NoError(t, err, text)
		assert.Equal(t, want, keyOf(t, f, r), text)
	}
	f, err := keyfunc.Parse("fingerprint", nil)
	require.NoError(t, err)
	assert.Equal(t, keyOf(t, keyfunc.Fingerprint(), r), keyOf(t, f, r))
	for text, want := range map[string]string{"ip": "198.51.100.7", "ip/24/48": "198.51.100.0/24"} {
		f, err = keyfunc.Parse(text, nil, keyfunc.TrustHeader("X-Real-IP"))
		require.NoError(t, err)
		assert.Equal(t, want, keyOf(t, f, from("192.0.2.1:1", "X-Real-IP", "198.51.100.7")))
	}
}

func TestParseSaysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":            `keyfunc: the key is not one of apikey:NAME, bearer, cookie:NAME, fingerprint, form:NAME, global, header:NAME, host, ip, ip/24/48, json:NAME, method, param:NAME, path:NAME, query:NAME, route, tenant, tool, user`,
		"IP":          "is not one of",
		"user|":       "keyfunc: choice 2 of the key is not one of",
		"user||ip":    "choice 2 of the key is not one of",
		"header":      "keyfunc: the key is of kind header and has no name: want something like header:X-Name",
		"header:":     "is of kind header and has no name",
		"header:a b":  `it is not the name of a header`,
		"header:Host": `has a wrong name: net/http takes it out of the headers; use Host`,
		"cookie:a=b":  `the key is of kind cookie and has a wrong name: it is not the name of a cookie`,
		"apikey:\x00": "it is not the name of a header",
		"nil":         "is not one of",
		"a:b":         "is not one of",
		"ip:48":       "is not one of",
		"ip/24":       "the key is a network without its two lengths: want something like ip/24/48",
		"ip/+24/48":   "without its two lengths",
		"ip/24/48/1":  "without its two lengths",
		"user|ip/7/8": "choice 2 of the key is a network with a wrong length: want from 8 to 32 bits for IPv4",
	} {
		f, err := keyfunc.Parse(text, map[string]keyfunc.Func{"tenant": is("x"), "a:b": is("x"), "nil": nil})
		require.ErrorContains(t, err, want, text)
		assert.Nil(t, f)
	}
}

func TestAKeyIsOfTheKindThatMadeIt(t *testing.T) {
	r := httptest.NewRequest("GET", "http://example.com/users/42?q=1", nil)
	r.Pattern = "/users/{id}"
	r.Header.Set("X-Tenant", "acme:1")
	r.Header.Set("Mcp-Method", "tools/call")
	r.Header.Set("Mcp-Name", "search:1")
	r.Header.Set("X-Api-Key", "k")
	r.Header.Set("Authorization", "Bearer token")
	r.AddCookie(&http.Cookie{Name: "session", Value: "8f3a"})
	r = r.WithContext(keyfunc.WithUser(r.Context(), "ann:1"))
	for source, want := range map[string]struct{ kind, source, value string }{
		"header:X-Tenant":  {"header", "header:X-Tenant", "acme:1"},
		"cookie:session":   {"cookie", "cookie:session", "8f3a"},
		"path:id":          {"path", "path:id", "42"},
		"user":             {"user", "user", "ann:1"},
		"bearer":           {"bearer", "bearer", "token"},
		"route":            {"route", "route", "/users/{id}"},
		"method":           {"method", "method", "GET"},
		"host":             {"host", "host", "example.com"},
		"tool":             {"tool", "tool", "search:1"},
		"apikey:X-Api-Key": {"apikey", "", "k"},
		"global":           {"", "", "global"},
		"ip":               {"", "", "192.0.2.1"},
	} {
		f, err := keyfunc.Parse(source, nil)
		require.NoError(t, err)
		key, err := f(r)
		require.NoError(t, err, source)
		text, _ := keyfunc.Classify(key)
		kind, from, value := keyfunc.KindOf(text)
		assert.Equal(t, want, struct{ kind, source, value string }{kind, from, value}, source)
	}
	// Every function of this package whose key begins with a word and a colon.
	r.Body = io.NopCloser(strings.NewReader(`{"account":"jane:1"}`))
	for kind, f := range map[string]keyfunc.Func{
		"user": keyfunc.User, "bearer": keyfunc.Bearer, "route": keyfunc.Route, "method": keyfunc.Method, "host": keyfunc.Host, "tool": keyfunc.Tool,
		"apikey": keyfunc.APIKey("X-Api-Key"), "header": keyfunc.Header("X-Tenant"), "cookie": keyfunc.Cookie("session"),
		"path": keyfunc.PathValue("id"), "query": keyfunc.Query("q"), "body": keyfunc.JSONField("account", 4096),
		"join": keyfunc.JoinPresent(keyfunc.User, keyfunc.Method), "hash": keyfunc.Hash(make([]byte, 16), keyfunc.User), "fp": keyfunc.Fingerprint(),
	} {
		key, err := f(r)
		require.NoError(t, err, kind)
		text, _ := keyfunc.Classify(key)
		found, _, value := keyfunc.KindOf(text)
		assert.Equal(t, kind, found)
		if kind == "body" {
			assert.Equal(t, "jane:1", value)
		}
	}
	for _, f := range []keyfunc.Func{keyfunc.Join(keyfunc.User, keyfunc.Method), keyfunc.Hash(make([]byte, 16), keyfunc.User), keyfunc.Fingerprint()} {
		key, err := f(r)
		require.NoError(t, err)
		text, _ := keyfunc.Classify(key)
		kind, from, _ := keyfunc.KindOf(text)
		assert.Contains(t, []string{"join", "hash", "fp"}, kind)
		assert.Empty(t, from)
	}
}
