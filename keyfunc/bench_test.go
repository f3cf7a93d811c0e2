package keyfunc_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/weirgo/weir/keyfunc"
)

func BenchmarkFunc(b *testing.B) {
	browser := from("192.0.2.1:1234", "X-Api-Key", "s3cret", "Authorization", "Bearer mF_9.B5f-4.1JqM",
		"User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
		"Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
		"Accept-Language", "en-US,en;q=0.5", "Accept-Encoding", "gzip, deflate, br, zstd",
		"Cookie", "a=b; session=8f3a")
	browser = browser.WithContext(keyfunc.WithUser(browser.Context(), "42"))
	browser.Pattern = "GET /users/{id}"
	ipv6 := from("[2001:db8::1]:1234")
	proxied := from("10.0.0.1:1234",
		"X-Forwarded-For", "198.51.100.7, 192.0.2.1, 10.0.0.2", "X-Real-IP", "192.0.2.1",
		"Forwarded", `for=198.51.100.7, for=192.0.2.1;host="example.com";proto=https, for="10.0.0.2:80"`)
	// The longest headers a server reads by default, sent through the proxy to waste its time.
	hostile := from("10.0.0.1:1234",
		"X-Forwarded-For", strings.Repeat("10.0.0.2,", 1<<20/9),
		"Forwarded", `for="`+strings.Repeat(`\"`, 1<<19)+`"`)

	for _, bench := range []struct {
		name string
		f    keyfunc.Func
		r    *http.Request
	}{
		{"IP/v4", keyfunc.IP(), browser},
		{"IP/v6", keyfunc.IP(), ipv6},
		{"IP/TrustProxies", keyfunc.IP(keyfunc.TrustProxies("10.0.0.0/8")), proxied},
		{"IP/TrustForwarded", keyfunc.IP(keyfunc.TrustForwarded("10.0.0.0/8")), proxied},
		{"IP/TrustHops", keyfunc.IP(keyfunc.TrustHops(2)), proxied},
		{"IP/TrustHeader", keyfunc.IP(keyfunc.TrustHeader("X-Real-IP", "10.0.0.0/8")), proxied},
		{"IP/TrustProxies/hostile", keyfunc.IP(keyfunc.TrustProxies("10.0.0.0/8")), hostile},
		{"IP/TrustForwarded/hostile", keyfunc.IP(keyfunc.TrustForwarded("10.0.0.0/8")), hostile},
		{"User", keyfunc.User, browser},
		{"APIKey", keyfunc.APIKey("X-Api-Key"), browser},
		{"Bearer", keyfunc.Bearer, browser},
		{"Cookie", keyfunc.Cookie("session"), browser},
		{"Route", keyfunc.Route, browser},
		{"Method", keyfunc.Method, browser},
		{"Host", keyfunc.Host, browser},
		{"First", keyfunc.First(keyfunc.User, keyfunc.IP()), browser},
		{"Join", keyfunc.Join(keyfunc.User, keyfunc.Route), browser},
		{"Hash", keyfunc.Hash(secret, keyfunc.User), browser},
		{"Fingerprint", keyfunc.Fingerprint(), browser},
	} {
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
