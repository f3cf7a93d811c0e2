package keyfunc_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/keyfunc"
)

type cost struct {
	name string
	f    keyfunc.Func
	r    *http.Request
	most float64
}

// costs are key functions, requests, and the most that a key of theirs may allocate.
func costs() []cost {
	browser := from("192.0.2.1:1234", "X-Api-Key", "s3cret", "Authorization", "Bearer mF_9.B5f-4.1JqM",
		"User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
		"Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
		"Accept-Language", "en-US,en;q=0.5", "Accept-Encoding", "gzip, deflate, br, zstd",
		"Cookie", "a=b; session=8f3a")
	browser = browser.WithContext(keyfunc.WithUser(browser.Context(), "42"))
	browser.Pattern = "GET /users/{id}"
	ipv6 := from("[2001:db8::1]:1234")
	proxied := from("10.0.0.1:1234",
		"X-Forwarded-For", "198.51.100.7, 192.0.2.1, 10.0.0.3, [fd00::1]:80", "X-Forwarded-For", "10.0.0.2", "X-Real-IP", "192.0.2.1",
		"Forwarded", `for=198.51.100.7, for=192.0.2.1;host="a, b";proto=https, for="10.0.0.2:80"`, "Forwarded", `for="[fd00::1]:80";by=_x`)
	// The longest headers a server reads by default, sent through the proxy to waste its time.
	hostile := from("10.0.0.1:1234",
		"X-Forwarded-For", strings.Repeat("10.0.0.2,", 1<<20/9),
		"Forwarded", `for="`+strings.Repeat(`\"`, 1<<19)+`"`)

	return []cost{
		{"IP/v4", keyfunc.IP(), browser, 0},
		{"IP/v6", keyfunc.IP(), ipv6, 1},
		{"IP/TrustProxies", keyfunc.IP(keyfunc.TrustProxies("10.0.0.0/8", "fd00::/8")), proxied, 1},
		{"IP/TrustForwarded", keyfunc.IP(keyfunc.TrustForwarded("10.0.0.0/8", "fd00::/8")), proxied, 1},
		{"IP/TrustHops", keyfunc.IP(keyfunc.TrustHops(2)), proxied, 1},
		{"IP/TrustHeader", keyfunc.IP(keyfunc.TrustHeader("X-Real-IP", "10.0.0.0/8")), proxied, 1},
		{"IP/TrustProxies/hostile", keyfunc.IP(keyfunc.TrustProxies("10.0.0.0/8")), hostile, 2},
		{"IP/TrustForwarded/hostile", keyfunc.IP(keyfunc.TrustForwarded("10.0.0.0/8")), hostile, 20},
		{"User", keyfunc.User, browser, 0},
		{"APIKey", keyfunc.APIKey("X-Api-Key"), browser, 1},
		{"Bearer", keyfunc.Bearer, browser, 1},
		{"Cookie", keyfunc.Cookie("session"), browser, 3},
		{"Route", keyfunc.Route, browser, 1},
		{"Method", keyfunc.Method, browser, 1},
		{"Host", keyfunc.Host, browser, 1},
		{"First", keyfunc.First(keyfunc.User, keyfunc.IP()), browser, 1},
		{"Join", keyfunc.Join(keyfunc.User, keyfunc.Route), browser, 2},
		{"Hash", keyfunc.Hash(secret, keyfunc.User), browser, 8}, // from a pool
		{"Fingerprint", keyfunc.Fingerprint(), browser, 1},
		{"IP/stranger", keyfunc.IP(keyfunc.TrustProxies("10.0.0.0/8")), browser, 0},
		{"IP/in doubt", keyfunc.IP(keyfunc.TrustProxies("192.0.2.0/24")), browser, 1}, // which the key says
		{"IP/in doubt by hops", keyfunc.IP(keyfunc.TrustHops(1)), browser, 1},
		{"PathValue", keyfunc.PathValue("id"), at("GET /users/{id}/posts", "/users/42/posts"), 1},
		{"PathValue/colon", keyfunc.PathValue("id"), at("/users/:id/posts", "/users/42/posts"), 1},
	}
}

func TestAKeyFunctionAllocatesLittleButItsKey(t *testing.T) {
	for _, c := range costs() {
		assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _ = c.f(c.r) }), c.most, c.name)
	}
}

func BenchmarkFunc(b *testing.B) {
	for _, bench := range costs() {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := bench.f(bench.r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
