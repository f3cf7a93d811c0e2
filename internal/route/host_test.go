package route_test

import (
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/keyfunc"
)

func TestAHostHasOneSpelling(t *testing.T) {
	for field, want := range map[string]string{
		"":                              "",
		"example.org":                   "example.org",
		"EXAMPLE.org":                   "example.org",
		"example.org.":                  "example.org",
		"Example.Org.:8080":             "example.org",
		"example.org:":                  "example.org",
		"example.org..":                 "",
		"example..org":                  "",
		"shop.example.org:80:80":        "",
		"shop.example.org::":            "",
		"example.org:http":              "",
		"example.org:+80":               "",
		"example.org:080000":            "",
		"example.org, a.example":        "",
		"example.org ":                  "",
		"example.org\t":                 "",
		"example.org/":                  "",
		"example.org%2e":                "",
		"127.1":                         "",
		"0x7f.0.0.0x1":                  "",
		"example.0x":                    "",
		"example.01":                    "",
		"*.example.org":                 "",
		"example.org:80:90":             "",
		"xn--Mnchen-3ya.example":        "xn--mnchen-3ya.example",
		"münchen.example":               "",
		"\u212aelvin.example":           "", // a letter that Unicode has a k for
		"K\u212a.example":               "",
		"192.0.2.1:80":                  "192.0.2.1",
		"[::1]":                         "::1",
		"[::1]:8080":                    "::1",
		"[2001:DB8:0:0::1]:8080":        "2001:db8::1",
		"2001:db8:0::1":                 "2001:db8::1",
		"[fe80::1%25eth0]:80":           "",
		"[fe80::1%eth0]:80":             "",
		"[192.0.2.1]":                   "",
		"[::1":                          "",
		"[::1]x":                        "",
		"[]":                            "",
		":80":                           "",
		".":                             "",
		".example.org":                  "",
		"user@example.org":              "",
		"[::1]:":                        "::1",
		"my_host-1":                     "my_host-1",
		strings.Repeat("a.", 126) + "a": strings.Repeat("a.", 126) + "a",
		strings.Repeat("a", 64):         "",
		strings.Repeat("A", 254):        "",
		strings.Repeat("A", 1<<20):      "",
	} {
		assert.Equal(t, want, route.Host(field), "%.40q", field)
	}
}

// Whatever a client writes, a host that a pattern can have is one and the same for rules
// and for keys, and costs nothing to spell a second time.
func FuzzAHostIsSpelledOnce(f *testing.F) {
	for _, field := range []string{"example.org", "A.b.:80", "[::1]:8", "::ffff:1.2.3.4", "[fe80::1%eth0]", "..", "a:b:c", "[", "\xff"} {
		f.Add(field)
	}
	f.Fuzz(func(t *testing.T, field string) {
		host := route.Host(field)
		if host == "" {
			return
		}
		require.Equal(t, host, strings.ToLower(host))
		require.Equal(t, host, route.Host(host))
		require.Zero(t, testing.AllocsPerRun(10, func() { route.Host(host) }))
		if !strings.Contains(host, ":") { // of which keys keep the client's spelling
			key, err := keyfunc.Host(&http.Request{Host: field})
			require.NoError(t, err)
			text, _ := keyfunc.Classify(key)
			require.Equal(t, "host:"+host, text)
		}
	})
}

// hostParsers find a host in a request's Host as programs do.
var hostParsers = map[string]func(field string) string{
	"Express": func(field string) string { host, _, _ := strings.Cut(field, ":"); return host },
	"Rails":   func(field string) string { return regexp.MustCompile(`:\d+$`).ReplaceAllString(field, "") },
	"Go": func(field string) string {
		if host, _, err := net.SplitHostPort(field); err == nil {
			return host
		}
		return field
	},
	"a URL": func(field string) string {
		if u, err := url.Parse("http://" + field); err == nil {
			return u.Hostname()
		}
		return ""
	},
	"the first of a list": func(field string) string { host, _, _ := strings.Cut(field, ","); return strings.TrimSpace(host) },
	"the last of a list":  func(field string) string { return strings.TrimSpace(field[strings.LastIndexByte(field, ',')+1:]) },
	"trimmed":             func(field string) string { return strings.Trim(field, ". \t") },
	"unescaped":           func(field string) string { host, _ := url.PathUnescape(field); return host },
}

// Whichever program finds a host, it is that of the rules, or the request is refused.
func FuzzAHostIsThatOfEachProgram(f *testing.F) {
	for _, field := range []string{
		"shop.example", "SHOP.example.:80", "shop.example:80:80", "shop.example::", "shop.example:x", "u@shop.example", "shop.example,a", "a, shop.example", "shop.example..", ".shop.example", " shop.example",
		"shop%2eexample", "[shop.example]", "shop.example/x", "shop.example?x", "shop.example#", "\u017fhop.example", "shop.example:1a", "shop.example\\a",
	} {
		f.Add(field)
	}
	f.Fuzz(func(t *testing.T, field string) {
		if !route.IsHost(field) {
			return
		}
		for name, find := range hostParsers {
			if host := strings.TrimSuffix(strings.ToLower(find(field)), "."); host == "shop.example" {
				require.Equal(t, host, route.Host(field), "%s: %q", name, field)
			}
		}
	})
}
