package rules_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware/rules"
)

func TestNeedsAreWhatRulesReadOfRequests(t *testing.T) {
	own := func(*http.Request) (string, error) { return "", keyfunc.ErrNoKey }
	r, err := rules.Parse([]byte(`version: 1
ban: {keys: ["user:42", 192.0.2.1]}
allow: {keys: ["header:X-Device:7", "acme"], cidrs: [198.51.100.0/24]}
global: {limit: 9/s, cost: {header: content-length, per: 1MiB}, key: global}
tiers:
  free: {limit: 100/h, key: ip}
  premium: 200/h
endpoints:
  "GET /users/{id}": {limit: 5/s, key: ["path:id", "apikey:x-key"]}
  "GET /*": {limit: 5/s, key: "path:id"}
  "POST /login": {limit: 5/m, name: login, key: [ip, "cookie:session", tenant, "header:tenant"]}
  "example.org/*": {limit: 5/m, tiers: {free: 1/m}}
  "/a": {limit: 5/m, key: "bearer|user|ip"}
  "/b": {limit: 5/m, key: [method, route], distinct: "json:name"}
  "/c": {limit: 5/m, distinct: user|tenant, key: "form:name"}
default: {limit: 100/m, key: fingerprint}
`), rules.Options{Keys: map[string]keyfunc.Func{"tenant": own}})
	require.NoError(t, err)
	require.Equal(t, []rules.Need{
		{"login", "cookie:session"},
		{"/c", "form:name"},
		{"default", "header:Accept"},
		{"default", "header:Accept-Encoding"},
		{"default", "header:Accept-Language"},
		{"/a", "header:Authorization"},
		{"global", "header:Content-Length"},
		{"login", "header:Tenant"},
		{"default", "header:User-Agent"},
		{"allow", "header:X-Device"},
		{"GET /users/{id}", "header:X-Key"},
		{"example.org/*", "host"},
		{"/b", "json:name"},
		{"/c", "key:tenant"},
		{"allow", "key:tenant"},
		{"login", "key:tenant"},
		{"/b", "route"},
		{"GET /*", "route"},
		{"example.org/*", "tier"},
		{"tier:free", "tier"},
		{"tier:premium", "tier"},
		{"/a", "user"},
		{"/c", "user"},
		{"ban", "user"},
		{"tier:premium", "user"},
	}, r.Needs())
	require.Equal(t, []string{"/a", "/b", "/c", "GET /*", "GET /users/{id}", "POST /login", "example.org/*"}, r.Routes())

	r, err = rules.Parse([]byte("version: 1\ndefault: 5/s\n"), rules.Options{})
	require.NoError(t, err)
	require.Empty(t, r.Needs(), "the address is in every request")
	key, err := r.IP()(&http.Request{RemoteAddr: "[2001:db8::7]:1024"})
	require.NoError(t, err)
	require.Equal(t, "2001:db8::/64", key)
}
