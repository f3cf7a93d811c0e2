package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirgo/weir/cmd/weir/internal/gateway"
	"github.com/weirgo/weir/cmd/weir/internal/serving"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/middleware/shed"
)

// A started gateway, with the file of its rules.
type started struct {
	*gateway.Gateway
	t       *testing.T
	file    string
	watcher *rules.Watcher
	url     string
}

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "16") // parallel tests wait for clients on the real clock
	os.Exit(m.Run())
}

// start starts a gateway for an upstream, on a port of its own.
func start(t *testing.T, text, upstream string, change func(*gateway.Options)) *started {
	t.Helper()
	return startWith(t, text, upstream, change, nil)
}

func startWith(t *testing.T, text, upstream string, change func(*gateway.Options), memory *serving.Memory) *started {
	t.Helper()
	o := gateway.Options{Proxy: "127.0.0.1:0=" + upstream, Paths: serving.PathsStrict, Timeout: 10 * time.Second, ClientTimeout: 10 * time.Second}
	if change != nil {
		change(&o)
	}
	g, err := gateway.New(o)
	require.NoError(t, err)
	s := &started{Gateway: g, t: t, file: filepath.Join(t.TempDir(), "limits.yaml")}
	require.NoError(t, os.WriteFile(s.file, []byte(text), 0o600))
	config := middleware.Config{Logger: slog.New(slog.DiscardHandler)}
	if o.Log != nil {
		config.Observer = o.Log
	}
	s.watcher, err = rules.Watch(t.Context(), s.file, rules.Options{
		Config: config, Overload: shed.FromRules, OnReload: func(rules.Reload) {},
		Lacks: g.Lacks,
	})
	require.NoError(t, err)
	require.NoError(t, g.Start(serving.Limits{RateLimit: s.watcher.RateLimit, Watcher: s.watcher, Logger: config.Logger, Bodies: memory}, func(err error) { t.Error(err) }))
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		g.Drain(ended, 0)
		_ = s.watcher.Close()
	})
	s.url = "http://" + g.Addr().String()
	return s
}

// upstream answers with what handler does.
func upstream(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// echo answers with the request.
func echo(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, r.Method+" "+r.RequestURI)
}

// raw sends a request as it is spelled, and returns the answer.
func (s *started) raw(request string) *http.Response {
	s.t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, request)
	require.NoError(s.t, err)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(s.t, err)
	return answer
}

func (s *started) status(method, path string, fields ...string) int {
	s.t.Helper()
	answer := s.raw(method + " " + path + " HTTP/1.1\r\nHost: shop.example\r\n" + strings.Join(append(fields, ""), "\r\n") + "\r\n")
	return answer.StatusCode
}

// Whatever spelling of a path a service may read as another one, it does not leave the endpoint.
func TestNoSpellingOfAPathEvadesItsLimit(t *testing.T) {
	const text = "version: 1\nendpoints:\n  \"POST /login\": {limit: 1/h, key: global}\n  \"GET /users/{id}\": {limit: 1/h, key: \"path:id\"}\n"
	ambiguous := []string{"//login", "/./login", "/x/../login", "/login%2F", "/\\login", "/%2e/login", "/x/%2E%2e/login", "/%5clogin", "/;/login", "/x/..;/login", "/login/.", "/login%00", "/%c0%aelogin"}
	same := []string{"/login/", "/login;a=1", "/%6Cogin", "/login?x=1", "/login;a=1/"}
	strict := start(t, text, upstream(t, echo), nil)
	require.Equal(t, 200, strict.status("POST", "/login"))
	for _, path := range ambiguous {
		assert.Equal(t, 400, strict.status("POST", path), path)
	}
	for _, path := range same {
		assert.Equal(t, 429, strict.status("POST", path), path)
	}
	assert.Equal(t, 200, strict.status("POST", "/LOGIN"), "letter case is another path")
	assert.Equal(t, 200, strict.status("GET", "/login"), "another method is another endpoint")

	assert.Equal(t, 200, strict.status("GET", "/users/a"))
	for _, path := range []string{"/users/a", "/users/a/", "/users/a;x=1", "/users/a;x=2", "/users/%61"} {
		assert.Equal(t, 429, strict.status("GET", path), path)
	}
	assert.Equal(t, 200, strict.status("GET", "/users/A"))

	fold := start(t, text, upstream(t, echo), func(o *gateway.Options) { o.Paths = serving.PathsFold })
	require.Equal(t, 200, fold.status("POST", "/LogIn"))
	for _, path := range append(same, "/login", "/LOGIN", "/LOGIN/") {
		assert.Equal(t, 429, fold.status("POST", path), path)
	}
	assert.Equal(t, 400, fold.status("POST", "//login"))
	assert.Equal(t, 200, fold.status("GET", "/users/a"))
	assert.Equal(t, 429, fold.status("GET", "/Users/A"))

	asIs := start(t, text, upstream(t, echo), func(o *gateway.Options) { o.Paths = serving.PathsAsIs })
	answer := asIs.raw("POST //login HTTP/1.1\r\nHost: a\r\n\r\n")
	body, _ := io.ReadAll(answer.Body)
	require.Equal(t, "POST //login", string(body), "it is passed on as it is")
	for _, path := range append(same, "/login", "/login%2F", "/\\login", "//a/login", "///a:1/login", "/\\a/login", "//a//login;b") {
		assert.Equal(t, 429, asIs.status("POST", path), "what servers make of it is limited all the same: %s", path)
	}
	for _, path := range []string{"/./login", "/x/../login", "/login/%2e", `/x\..\login`, "/x%2f..%2flogin", "/login%00", "/login%0a"} {
		assert.Equal(t, 400, asIs.status("POST", path), path)
	}
	require.Equal(t, 200, asIs.status("GET", "/users/42"))
	for _, path := range []string{"/users%2f42", "/users/42%2f", "//users/42", "/users//42//"} {
		assert.Equal(t, 429, asIs.status("GET", path), path)
	}
}

// A service that reads paths literally may serve anything at a spelling of an exempt path.
func TestNoSpellingTakesAnExemption(t *testing.T) {
	const text = "version: 1\nallow: {routes: [/healthz]}\nendpoints: {\"/graphql/*\": {limit: 1/h, key: global, name: graphql}}\ndefault: {limit: 1000/h, name: rest}\n"
	for _, paths := range []string{serving.PathsStrict, serving.PathsFold, serving.PathsAsIs} {
		g := start(t, text, upstream(t, echo), func(o *gateway.Options) { o.Paths = paths })
		for _, path := range []string{"/healthz/", "/healthz;a", "//healthz", "/healthz%2f", "/graphql/../healthz", "/graphql;/healthz", "/graphql%2f..%2fhealthz", "/%68ealthz;", `/\healthz`, "/graphql#/../healthz", "/HEALTHZ;"} {
			answer := g.raw("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n")
			assert.True(t, answer.StatusCode == 400 || answer.Header.Get("X-RateLimit-Limit") != "", "%s %s: %d", paths, path, answer.StatusCode)
		}
		assert.Empty(t, g.raw("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").Header.Get("X-RateLimit-Limit"))
	}
}

// Some service would read another request line or host than the rules do.
func TestWhatCannotBeJudgedIs400(t *testing.T) {
	const text = "version: 1\nendpoints:\n  \"POST /login\": {limit: 1/h, key: global}\n  \"shop.example/*\": {limit: 1/h, key: global}\n"
	for _, paths := range []string{serving.PathsStrict, serving.PathsFold, serving.PathsAsIs} {
		g := start(t, text, upstream(t, echo), func(o *gateway.Options) { o.Paths = paths })
		for _, line := range []string{
			"post /login", "Post /login", "POSt /login", "pOST /login", "P0ST /login", "POST' /login",
			"POST /login#1", "POST /login?a=1#1", "POST /#/login", "POST #", "POST x:login", "POST login", "POST *", "GET *", "POST http:login", "POST http://a", "POST http://a?x",
			"POST //a/../login", "POST http://a/./login", "POST http://shop.example:80:80/login", "POST http://sh%C3%B6p/login",
		} {
			assert.Equal(t, 400, g.raw(line+" HTTP/1.1\r\nHost: a\r\n\r\n").StatusCode, "%s %s", paths, line)
		}
		for _, host := range []string{
			"shop.example:80:80", "shop.example::", "shop.example::80", "::", "2001:db8::1", "shop.example:x", "shop.example:-1", "shop.example:0x50", "shop.example:800000", "shop.example..", ".shop.example",
			"shop.example,a", "a,shop.example", "shop.example;a", "shop%2eexample", "u@shop.example", "[shop.example]", "[::1", "[::1]a", "[fe80::1%25a]", "shop.example:80,", "127.1", "2130706433", "0x7f.0.0.1", ":80", ".",
		} {
			assert.Equal(t, 400, g.raw("GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n").StatusCode, "%s %s", paths, host)
		}
		for _, host := range []string{"shop.example", "SHOP.example.", "shop.example:80", "shop.example:", "Shop.Example.:8080"} {
			g.raw("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n")
			assert.Equal(t, 429, g.raw("GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n").StatusCode, "%s %s", paths, host)
		}
		assert.Equal(t, 200, g.raw("GET / HTTP/1.0\r\n\r\n").StatusCode, "a client of HTTP/1.0 may have no host")
		assert.Equal(t, 200, g.raw("M-SEARCH / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n").StatusCode)
	}
}

func TestARequestWithTwoMethodsIs400(t *testing.T) {
	const text = "version: 1\nendpoints:\n  \"DELETE /account\": {mode: deny}\n"
	for paths, want := range map[string]int{serving.PathsStrict: 400, serving.PathsFold: 400, serving.PathsAsIs: 200} {
		g := start(t, text, upstream(t, echo), func(o *gateway.Options) { o.Paths = paths })
		for _, field := range []string{"X-HTTP-Method-Override", "x-http-method", "X-Method-Override", "X_HTTP.Method-Override"} {
			assert.Equal(t, want, g.status("POST", "/account", field+": DELETE"), "%s %s", paths, field)
		}
		for _, query := range []string{"_method=DELETE", "a=1&_%6dethod=delete", "X-HTTP-Method-Override=DELETE"} {
			assert.Equal(t, want, g.status("POST", "/account?"+query), "%s %s", paths, query)
		}
		assert.Equal(t, 200, g.status("POST", "/account?_method=POST&method=DELETE", "X-HTTP-Method-Override: POST"))
		assert.Equal(t, want, g.status("POST", "/account", "X-HTTP-Method: POST", "X-HTTP-Method: DELETE"))
	}
}

func TestWhatCannotBeJudgedInHTTP2Is400(t *testing.T) {
	g := start(t, "version: 1\nendpoints: {\"POST shop.example/login\": {limit: 1/h, key: global}}\n", upstream(t, echo), nil)
	plain := [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "shop.example"}, {":path", "/login"}}
	require.Equal(t, "200", g.inHTTP2(plain))
	require.Equal(t, "429", g.inHTTP2(plain))
	for _, change := range [][2]string{
		{":method", "post"}, {":method", "poſt"}, {":method", "POST "}, {":method", " POST"}, {":path", "/login#"}, {":path", "//login"}, {":path", "/login\\"}, {":path", "*"},
		{":authority", "shop.example:80:80"}, {":authority", "shop.example/x"}, {":authority", "shop.example "}, {":authority", "shop.example, a"}, {":authority", "ｓhop.example"}, {":authority", "shop。example"},
		{"host", "other.example"}, {"host", "SHOP.example:80"},
	} {
		fields := slices.Clone(plain)
		if i := slices.IndexFunc(plain, func(field [2]string) bool { return field[0] == change[0] }); i >= 0 {
			fields[i] = change
		} else {
			fields = append(fields, change)
		}
		assert.Contains(t, []string{"400", "reset"}, g.inHTTP2(fields), "%q", change)
	}
}

// inHTTP2 sends a request with these fields, and returns the status, or reset.
func (s *started) inHTTP2(fields [][2]string) string {
	s.t.Helper()
	_, framer := s.dial2(s.t, 1<<16)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	var list []string
	for _, field := range fields {
		list = append(list, field[0], field[1])
	}
	require.NoError(s.t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block2(s.t, list...), EndStream: true, EndHeaders: true}))
	for {
		frame, err := framer.ReadFrame()
		require.NoError(s.t, err)
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			return frame.PseudoValue("status")
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return "reset"
		}
	}
}

func TestTheFilesPatternsAreTheRouter(t *testing.T) {
	g := start(t, `version: 1
headers: {send: both}
proxies: {}
allow: {routes: [/healthz, "GET /assets/*"]}
endpoints:
  "GET /a/{x}": {limit: 1/h, name: one}
  "GET /a/b": {limit: 2/h, name: two}
  "/a/*": {limit: 3/h, name: many}
  "shop.example/*": {limit: 4/h, name: shop}
  "shop.example/cart": {limit: 1/h, name: cart}
default: {limit: 5/h, name: rest}
`, upstream(t, echo), nil)
	left := func(host, method, path string) string {
		return g.raw(method + " " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n").Header.Get("RateLimit-Policy")
	}
	for _, test := range []struct{ host, method, path, rule string }{
		{"other.example", "GET", "/a/c", "one"}, {"other.example", "GET", "/a/b", "two"}, {"other.example", "HEAD", "/a/b/", "two"},
		{"other.example", "POST", "/a/b", "many"}, {"other.example", "GET", "/a", "many"}, {"other.example", "GET", "/a/b/c", "many"},
		{"other.example", "GET", "/", "rest"}, {"other.example", "GET", "/{$}", "rest"},
		{"other.example", "GET", "/cart", "rest"}, {"shop.example", "GET", "/cart", "cart"}, {"Shop.Example:80", "GET", "/a/b", "shop"},
		{"other.example", "GET", "/healthz", ""}, {"shop.example", "GET", "/healthz", ""}, {"other.example", "GET", "/assets/x.js", ""},
		{"other.example", "GET", "/healthz/%7Bx%7D", "rest"}, {"other.example", "POST", "/assets/x.js", "rest"},
	} {
		assert.Equal(t, test.rule, strings.Trim(strings.Split(left(test.host, test.method, test.path), ";")[0], `"`), "%v", test)
	}
}

func TestARuleThatTheGatewayCannotServeIsRefusedWithItsLine(t *testing.T) {
	plain, err := gateway.New(gateway.Options{Proxy: ":0=http://127.0.0.1:1", Paths: serving.PathsStrict, Timeout: 1, ClientTimeout: 1})
	require.NoError(t, err)
	for text, want := range map[string]string{
		"default: {limit: 5/s, key: user}":                        "3:1: default: needs a user: say with --user-header which header field has it",
		"default: 5/s\ntiers: {gold: 9/s}":                        "4:9: tiers.gold: needs a ",
		"default: {limit: 5/s, cost: {units: 2, settle: true}}":   "3:1: default: has cost.settle",
		"default: 5/s\nendpoints: {\"/files/{name}.json\": 5/s}":  "4:13: endpoints.\"/files/{name}.json\": has a parameter or a *",
		"default: 5/s\nallow: {routes: [\"/files/{name}.json\"]}": "4:18: allow.routes.0: has a parameter or a *",
		"default: 5/s\nban: {keys: [\"user:42\"]}":                "4:14: ban.keys.0: needs a user",
	} {
		_, err := rules.Parse([]byte("version: 1\nproxies: {trusted: [192.0.2.0/24]}\n"+text+"\n"), rules.Options{Lacks: plain.Lacks})
		assert.ErrorContains(t, err, want, text)
	}
}

func TestOnlyNamedProxiesSayWhoAsks(t *testing.T) {
	seen := make(chan http.Header, 1)
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header.Clone() })
	const text = "version: 1\nproxies: {trusted: [%s]}\ndefault: {limit: 1/h, key: user|ip}\ntiers: {gold: {limit: 1/h, key: user}}\n"
	headers := func(o *gateway.Options) { o.UserHeader, o.TierHeader = "X-User", "x-tier" }
	given := []string{"X-User: ann", "X-Tier: gold", "X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: https", "Forwarded: for=203.0.113.9", "X_User: eve", "X.User: eve", "x-forwarded_for: 1.1.1.1",
		"Proxy: evil.example", "X-Original-URL: /admin", "X_Rewrite.URL: /admin"}

	stranger := start(t, fmt.Sprintf(text, "192.0.2.1"), up, headers)
	require.Equal(t, 200, stranger.status("GET", "/", given...))
	got := <-seen
	for _, name := range []string{"X-User", "X-Tier", "X_user", "X_User", "X.user", "Forwarded", "X-Forwarded_for", "X-Forwarded_For", "Proxy", "X-Original-Url", "X_rewrite.url"} {
		assert.NotContains(t, got, name)
	}
	assert.Equal(t, []string{"127.0.0.1"}, got["X-Forwarded-For"])
	assert.Equal(t, []string{"http"}, got["X-Forwarded-Proto"])
	assert.Equal(t, 429, stranger.status("GET", "/", "X-User: ben"), "another user is the same client")

	proxy := start(t, fmt.Sprintf(text, "127.0.0.1"), up, headers)
	require.Equal(t, 200, proxy.status("GET", "/", append(given, "Connection: X-User, X-Forwarded-For")...))
	got = <-seen
	assert.Equal(t, []string{"ann"}, got["X-User"])
	for _, name := range []string{"X_user", "X_User", "X.user", "Forwarded", "Proxy", "X-Original-Url", "X_rewrite.url"} {
		assert.NotContains(t, got, name, "a proxy passes a client's fields on")
	}
	assert.Equal(t, []string{"203.0.113.9, 127.0.0.1"}, got["X-Forwarded-For"])
	assert.Equal(t, []string{"https"}, got["X-Forwarded-Proto"])
	assert.Equal(t, 429, proxy.status("GET", "/", "X-User: ann", "X-Tier: gold"))
	assert.Equal(t, 400, proxy.status("GET", "/", "X-User: ann", "X-User: ben"))
	go func() { <-seen }()
	assert.Equal(t, 200, proxy.status("GET", "/", "X-User: ben"))
}

// ReverseProxy removes a field that Connection lists, so the service would serve another client than the rules count.
func TestAFieldThatConnectionListsIsNotCounted(t *testing.T) {
	seen := make(chan http.Header, 1)
	g := start(t, `version: 1
proxies: {header: {name: X-Real-IP}}
endpoints:
  /key: {limit: 3/h, key: "apikey:X-Api-Key"}
  /token: {limit: 3/h, key: bearer}
  /cookie: {limit: 3/h, key: "cookie:session"}
  /cost: {limit: 3/h, cost: {header: X-Cost}}
  /when: {limit: 3/h, when: {header: {X-Plan: free}}}
  /distinct: {limit: 3/h, distinct: "header:X-Device"}
default: {limit: 1000/h, key: fingerprint}
ban: {keys: ["header:X-Tenant:acme"]}
`, upstream(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header.Clone() }), nil)
	for field, value := range map[string]string{
		"X-Api-Key": "k", "Authorization": "Bearer t", "Cookie": "session=s", "X-Cost": "1", "X-Plan": "free", "X-Device": "d", "User-Agent": "u", "Accept": "*/*", "X-Tenant": "b", "X-Real-IP": "192.0.2.1",
	} {
		for _, listing := range []string{
			"Connection: " + field, "Connection: " + strings.ToUpper(field), "connection: keep-alive, " + strings.ToLower(field) + " ,close", "Connection: close\r\nConnection:\t" + field + ",,",
			"Proxy-Connection: " + field, "Connection: Upgrade, " + field + "\r\nUpgrade: websocket",
		} {
			assert.Equal(t, 400, g.status("GET", "/", field+": "+value, listing), listing)
		}
	}
	for _, passes := range [][]string{
		{"Connection: X-Api-Key"}, {"Connection: keep-alive", "Keep-Alive: 5"}, {"Connection: TE, close", "TE: trailers"},
		{"Proxy-Connection: keep-alive", "X-Api-Key: k"}, {"Connection: HTTP2-Settings, Upgrade", "HTTP2-Settings: AA", "Upgrade: h2c"},
		{"Connection: X-Unread, X-Forwarded-Proto", "X-Unread: 1", "X-Forwarded-Proto: https"},
	} {
		require.Equal(t, 200, g.status("GET", "/", passes...), passes)
		got := <-seen
		for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Http2-Settings", "Upgrade", "X-Unread"} {
			assert.NotContains(t, got, name, passes)
		}
	}
}

// CGI and its kin have one name for both, and services read the one or the other.
func TestAFieldThatServicesReadAsAnotherIsRemoved(t *testing.T) {
	seen := make(chan http.Header, 1)
	g := start(t, `version: 1
proxies: {header: {name: CF-Connecting-IP}}
endpoints:
  /key: {limit: 3/h, key: "apikey:X-Api-Key"}
  /cost: {limit: 3/h, cost: {header: X-Cost}, key: "header:x_tenant|ip"}
default: {limit: 1000/h, key: fingerprint}
`, upstream(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header.Clone() }), nil)
	require.Equal(t, 200, g.status("GET", "/", "X-Api-Key: a", "X_Api_Key: b", "x_api-key: c", "X.Api.Key: d", "X_Cost: 1", "User_Agent: e", "Cf_Connecting_Ip: 192.0.2.1", "X_Tenant: f", "X-Tenant: g", "X_Unread: h"))
	got := <-seen
	assert.Equal(t, []string{"a"}, got["X-Api-Key"])
	assert.Equal(t, []string{"f"}, got["X_tenant"], "as the rules spell it")
	assert.Equal(t, []string{"h"}, got["X_unread"])
	for _, name := range []string{"X_api_key", "X_api-Key", "X.api.key", "X_cost", "User_agent", "Cf_connecting_ip", "X-Tenant"} {
		assert.NotContains(t, got, name)
	}
}

func TestAnUpgradeThatConnectionDoesNotListIsNone(t *testing.T) {
	g := start(t, "version: 1\nendpoints: {/: {limit: 1/h, when: {header: {Upgrade: websocket}}, key: global}}\ndefault: 1/h\n", upstream(t, echo), nil)
	assert.Equal(t, 200, g.status("GET", "/", "Upgrade: websocket"))
	assert.Equal(t, 200, g.status("GET", "/", "Upgrade: websocket", "Connection: close"), "no rule counts it as a WebSocket")
	assert.Equal(t, 200, g.status("GET", "/", "Upgrade: websocket", "Connection: keep-alive, UPGRADE"))
	assert.Equal(t, 429, g.status("GET", "/", "Upgrade: websocket", "Connection: upgrade"))
}

// Whatever way the file takes to name the client, its rules see what the proxy sent.
func TestEachWayToNameTheClientWorksBehindTheGateway(t *testing.T) {
	for proxies, client := range map[string]func(ip string) string{
		"trusted: [127.0.0.1]":                          func(ip string) string { return "X-Forwarded-For: 198.51.100.1, " + ip },
		"forwarded: [127.0.0.1]":                        func(ip string) string { return "Forwarded: for=198.51.100.1, for=" + ip },
		"header: {name: X-Real-IP, cidrs: [127.0.0.1]}": func(ip string) string { return "X-Real-IP: " + ip },
		"header: {name: X-Real-IP}":                     func(ip string) string { return "X-Real-IP: " + ip },
		"hops: 1":                                       func(ip string) string { return "X-Forwarded-For: 198.51.100.1, " + ip },
		"hops: 2":                                       func(ip string) string { return "X-Forwarded-For: " + ip + "\r\nX-Forwarded-For: 10.0.0.1" },
	} {
		seen := make(chan http.Header, 10)
		g := start(t, "version: 1\nproxies: {"+proxies+"}\ndefault: 1/h\n",
			upstream(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header.Clone() }), func(o *gateway.Options) { o.UserHeader = "X-User" })
		for _, ip := range []string{"203.0.113.8", "203.0.113.9"} {
			assert.Equal(t, 200, g.status("GET", "/", client(ip), "X-Forwarded-Proto: https", "X-Forwarded_For: 1.1.1.1", "Connection: X-Forwarded-For"), proxies)
			assert.Equal(t, 429, g.status("GET", "/", client(ip)), proxies)
		}
		got := <-seen
		assert.NotContains(t, got, "X-Forwarded_for")
		assert.Equal(t, strings.HasPrefix(proxies, "forwarded"), got["Forwarded"] != nil, proxies)
		if strings.HasPrefix(proxies, "hops") || strings.HasPrefix(proxies, "trusted") {
			assert.Contains(t, got.Get("X-Forwarded-For"), "203.0.113.8")
			assert.Equal(t, "https", got.Get("X-Forwarded-Proto"))
		}
		assert.Equal(t, 200, g.status("GET", "/", "X-User: ann"), "the peer itself")
		<-seen
		got = <-seen
		assert.Equal(t, strings.HasSuffix(proxies, "[127.0.0.1]") || strings.Contains(proxies, "cidrs"), got["X-User"] != nil, "hops and a header name no proxy: %s", proxies)
		assert.Equal(t, []string{"127.0.0.1"}, got["X-Forwarded-For"])
	}
}

// A rule by a field that never reaches it would count all clients as one, or none.
func TestARuleByAFieldThatTheGatewayRemovesIsRefused(t *testing.T) {
	plain, err := gateway.New(gateway.Options{Proxy: ":0=http://127.0.0.1:1", Paths: serving.PathsStrict, Timeout: 1, ClientTimeout: 1, UserHeader: "X-User"})
	require.NoError(t, err)
	const removed = "which a gateway removes"
	for _, test := range []struct{ proxies, rest, want string }{
		{"", "default: {limit: 5/s, key: \"header:X-Forwarded-For\"}", "default: needs X-Forwarded-For, " + removed},
		{"", "default: {limit: 5/s, key: \"ip|header:Forwarded\"}", removed},
		{"", "default: {limit: 5/s, when: {header: {x-forwarded-proto: http}}}", "needs X-Forwarded-Proto, " + removed},
		{"", "default: {limit: 5/s, cost: {header: X-Forwarded-Host}}", removed},
		{"", "default: {limit: 5/s, distinct: \"header:X-Forwarded-For\"}", removed},
		{"", "default: {limit: 5/s, key: \"header:X-User\"}", removed},
		{"", "default: 5/s\nban: {keys: [\"header:X-Forwarded-For:203.0.113.7\"]}", "ban.keys.0: needs X-Forwarded-For, " + removed},
		{"header: {name: X-Real-IP}", "default: {limit: 5/s, key: \"header:X-Forwarded-Host\"}", removed},
		{"trusted: [192.0.2.1]", "default: {limit: 5/s, key: \"header:X_Forwarded_For\"}", "services may read it as X-Forwarded-For"},
		{"trusted: [192.0.2.1]", "default: {limit: 5/s, key: \"header:X_User\"}", "services may read it as X-User"},
		{"hops: 1", "default: {limit: 5/s, key: \"header:X-User\"}", removed},
		{"trusted: [192.0.2.1]", "default: {limit: 5/s, key: \"header:X-Forwarded-For\"}", ""},
		{"hops: 1", "default: {limit: 5/s, key: \"header:X-Forwarded-For\"}", ""},
		{"trusted: [192.0.2.1]", "default: {limit: 5/s, key: \"header:Forwarded\"}", removed + ", as proxies pass a client's on"},
		{"forwarded: [192.0.2.1]", "default: {limit: 5/s, key: \"header:X-Forwarded-For\"}", removed + ", as proxies.forwarded says"},
		{"forwarded: [192.0.2.1]", "default: {limit: 5/s, key: \"header:Forwarded\"}", ""},
		{"trusted: [192.0.2.1]", "default: {limit: 5/s, key: \"header:X-Original-URL\"}", removed + ", as services may take it"},
		{"trusted: [192.0.2.1]", "default: {limit: 5/s, key: \"header:X.User\"}", "services may read it as X-User"},
		{"", "default: {limit: 5/s, key: \"header:Keep-Alive\"}", removed + ", as it is of one connection"},
		{"trusted: [192.0.2.1]", "default: {limit: 5/s, key: \"apikey:Proxy-Authorization\"}", removed + ", as it is of one connection"},
		{"", "default: {limit: 5/s, when: {header: {Upgrade: websocket}}}", ""},
		{"", "default: {limit: 5/s, key: \"header:X-Tenant\"}", ""},
	} {
		_, err := rules.Parse([]byte("version: 1\nproxies: {"+test.proxies+"}\n"+test.rest+"\n"), rules.Options{Lacks: plain.Lacks})
		if test.want == "" {
			assert.NoError(t, err, test.rest)
		} else {
			assert.ErrorContains(t, err, test.want, test.rest)
		}
	}
}

func TestOnlyWebSocketsAreUpgraded(t *testing.T) {
	g := start(t, "version: 1\ndefault: 100/h\n", upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			_, _ = io.WriteString(w, "plain")
			return
		}
		c, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
		line, _ := buffered.ReadString('\n')
		_, _ = io.WriteString(c, "echo "+line)
	}), nil)
	for _, other := range []string{"h2c", "websocket, h2c", "TLS/1.0", "websocket\r\nUpgrade: h2c"} {
		answer := g.raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: " + other + "\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n")
		body, _ := io.ReadAll(answer.Body)
		assert.Equal(t, "plain", string(body), other)
	}
	c, err := net.Dial("tcp", g.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n")
	require.NoError(t, err)
	reader := bufio.NewReader(c)
	answer, err := http.ReadResponse(reader, nil)
	require.NoError(t, err)
	require.Equal(t, 101, answer.StatusCode)
	_, err = io.WriteString(c, "hello\n")
	require.NoError(t, err)
	line, err := reader.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "echo hello\n", line)
	assert.Equal(t, 405, g.status("CONNECT", "example.org:443"))
}

func TestAnUpstreamThatSwitchesUnaskedIsBad(t *testing.T) {
	g := start(t, "version: 1\ndefault: 100/h\n", upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		c, _, _ := http.NewResponseController(w).Hijack()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
		_ = c.Close()
	}), nil)
	require.Equal(t, 502, g.status("GET", "/"))
}

func TestStreamsTrailersAndEarlyHintsPass(t *testing.T) {
	next := make(chan bool)
	g := start(t, "version: 1\nheaders: {send: both}\ndefault: 100/h\n", upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Trailer", "Checksum")
		w.Header().Set("X-RateLimit-Limit", "7")
		for i := range 3 {
			fmt.Fprintf(w, "part %d\n", i)
			_ = http.NewResponseController(w).Flush()
			<-next
		}
		w.Header().Set("Checksum", "abc")
		w.Header().Set(http.TrailerPrefix+"Late", "yes")
	}), nil)
	hints := 0
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
		hints++
		assert.Equal(t, 103, code)
		assert.Equal(t, "</style.css>; rel=preload", header.Get("Link"))
		return nil
	}})
	request, err := http.NewRequestWithContext(ctx, "GET", g.url, nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	assert.Equal(t, 1, hints)
	assert.Equal(t, []string{"100"}, answer.Header["X-Ratelimit-Limit"], "the limiter's own fields, and once")
	assert.NotEmpty(t, answer.Header["Ratelimit-Policy"])
	body := bufio.NewReader(answer.Body)
	for i := range 3 {
		line, err := body.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("part %d\n", i), line, "a part comes before the next one is made")
		next <- true
	}
	_, err = io.Copy(io.Discard, body)
	require.NoError(t, err)
	assert.Equal(t, "abc", answer.Trailer.Get("Checksum"))
	assert.Equal(t, "yes", answer.Trailer.Get("Late"))
}

func TestHTTP2WithoutTLSOnBothSides(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	g := start(t, "version: 1\ndefault: 2/h\n", "h2c"+strings.TrimPrefix(server.URL, "http"), nil)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for _, want := range []int{200, 200, 429} {
		answer, err := client.Get(g.url)
		require.NoError(t, err)
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		require.Equal(t, want, answer.StatusCode, "requests of one connection are counted each")
		require.Equal(t, "HTTP/2.0", answer.Proto)
		if want == 200 {
			require.Equal(t, "HTTP/2.0", string(body))
		}
	}
}

func TestAnUpstreamThatDoesNotAnswerIs502Or504WithoutItsAddress(t *testing.T) {
	hanging, err := net.Listen("tcp", "127.0.0.1:0") // connections are made, and nobody reads
	require.NoError(t, err)
	t.Cleanup(func() { _ = hanging.Close() })
	broken := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		c, _, _ := http.NewResponseController(w).Hijack()
		_ = c.Close()
	})
	for _, test := range []struct {
		upstream string
		timeout  time.Duration
		status   int
	}{{"http://" + nobody, time.Minute, 502}, {"http://" + hanging.Addr().String(), 50 * time.Millisecond, 504}, {broken, time.Minute, 502}} {
		g := start(t, "version: 1\ndefault: 100/h\n", test.upstream, func(o *gateway.Options) { o.Timeout = test.timeout })
		answer := g.raw("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")
		body, _ := io.ReadAll(answer.Body)
		assert.Equal(t, test.status, answer.StatusCode, test.upstream)
		assert.Equal(t, http.StatusText(test.status)+"\n", string(body))
		assert.NotEmpty(t, answer.Header.Get("X-RateLimit-Limit"), "the request counts")
	}
}

// A request that a service answers counts as counts says, and holds its slot until then.
func TestTheEndOfARequestIsKnown(t *testing.T) {
	hold, held := make(chan bool), make(chan bool, 1)
	g := start(t, "version: 1\nendpoints:\n  \"POST /login\": {limit: 1/h, key: global, counts: [401]}\n  \"/slow\": {concurrency: 1, key: global}\n", upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			held <- true
			<-hold
		}
		if r.Header.Get("Authorization") == "" {
			w.WriteHeader(401)
		}
	}), nil)
	for range 3 {
		require.Equal(t, 200, g.status("POST", "/login", "Authorization: ok"))
	}
	require.Equal(t, 401, g.status("POST", "/login"))
	require.Equal(t, 429, g.status("POST", "/login", "Authorization: ok"))
	var first sync.WaitGroup
	first.Go(func() { g.status("GET", "/slow", "Authorization: ok") })
	<-held
	require.Equal(t, 503, g.status("GET", "/slow", "Authorization: ok"))
	hold <- true
	first.Wait()
	close(hold)
	require.Eventually(t, func() bool { return g.status("GET", "/slow", "Authorization: ok") == 200 }, 10*time.Second, time.Millisecond)
}

func TestWhatIsNoRequestReachesNoService(t *testing.T) {
	var reached atomic.Int64
	g := start(t, "version: 1\ndefault: 100/h\n", upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		reached.Add(1)
		_, _ = w.Write(body)
	}), nil)
	assert.Equal(t, 431, g.raw("GET / HTTP/1.1\r\nHost: a\r\nX: "+strings.Repeat("x", 80<<10)+"\r\n\r\n").StatusCode)
	assert.Equal(t, 400, g.raw("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi!").StatusCode)
	assert.Equal(t, 400, g.raw("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").StatusCode)
	require.Zero(t, reached.Load())
	answer := g.raw("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: a\r\n\r\n")
	body, _ := io.ReadAll(answer.Body)
	assert.Equal(t, "hi", string(body), "of both length fields the chunks count")
	assert.EqualValues(t, 1, reached.Load(), "what follows is not passed on as a part of it")
}

// Requests under load meet the rules before a reload or those behind it, and no others.
func TestReloadsUnderLoadLoseNoRequestAndNoRule(t *testing.T) {
	texts := []string{
		"version: 1\nendpoints:\n  \"/{a}/{b}\": {limit: 1000000/h, name: two}\n",
		"version: 1\nendpoints:\n  \"/users/{id}\": {limit: 1000000/h, name: user}\n  \"/users/me\": {limit: 1000000/h, name: me}\n",
	}
	g := start(t, texts[0], upstream(t, echo), nil)
	var requests, wrong atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for ctx.Err() == nil {
				answer, err := client.Get(g.url + "/users/me")
				if err != nil || answer.StatusCode != 200 || answer.Header.Get("X-RateLimit-Limit") == "" {
					wrong.Add(1)
				}
				if err == nil {
					_, _ = io.Copy(io.Discard, answer.Body)
					_ = answer.Body.Close()
				}
				requests.Add(1)
			}
		})
	}
	for i := range 20 {
		before := requests.Load()
		require.NoError(t, os.WriteFile(g.file, []byte(texts[(i+1)%2]), 0o600))
		g.watcher.Reread()
		require.Eventually(t, func() bool {
			s := g.watcher.Status()
			return s.Version == rules.VersionOf([]byte(texts[(i+1)%2])) && requests.Load() > before
		}, 30*time.Second, time.Millisecond)
	}
	stop()
	load.Wait()
	require.Zero(t, wrong.Load(), "of %d", requests.Load())
}

func TestTheLogHasWhatRecommendReads(t *testing.T) {
	var out bytes.Buffer
	written := serving.NewLines(&out)
	log := serving.NewLog(written, nil)
	g := start(t, "version: 1\nproxies: {trusted: [127.0.0.1]}\nendpoints: {\"/a/{x}\": {limit: 1/h, key: user|ip, name: a}}\n", upstream(t, echo), func(o *gateway.Options) { o.Log, o.UserHeader = log, "X-User" })
	g.status("GET", "/a/1?q=2", "X-User: ann", "User-Agent: curl", "X-Forwarded-For: 198.51.100.1", "X-Forwarded-For: 203.0.113.9")
	g.status("GET", "/a/2", "X-User: ann")
	g.status("GET", "//a", "X-User: ann")
	ended, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	g.Drain(ended, 0)
	require.NoError(t, written.Close())
	var lines []map[string]any
	for text := range strings.Lines(out.String()) {
		of := map[string]any{}
		require.NoError(t, json.Unmarshal([]byte(text), &of))
		assert.NotEmpty(t, of["time_iso8601"])
		delete(of, "time_iso8601")
		delete(of, "request_time")
		lines = append(lines, of)
	}
	require.Len(t, lines, 3)
	digest := lines[0]["weir_user"]
	assert.Len(t, digest, 22)
	assert.Equal(t, map[string]any{"remote_addr": "127.0.0.1", "http_x_forwarded_for": "198.51.100.1, 203.0.113.9", "request_method": "GET", "request_uri": "/a/1?q=2", "host": "shop.example", "http_user_agent": "curl",
		"status": 200.0, "body_bytes_sent": 12.0, "weir_user": digest, "weir_route": "/a/{x}", "weir_outcome": "allowed"}, lines[0])
	assert.Equal(t, "refused", lines[1]["weir_outcome"])
	assert.Equal(t, "a", lines[1]["weir_rule"])
	assert.Equal(t, digest, lines[1]["weir_user"])
	assert.Equal(t, digest, lines[1]["weir_key"], "so that a refusal in the log of errors leads to its address here")
	assert.Equal(t, 400.0, lines[2]["status"])
}

func TestTheLogSaysThatAStreamWasRefused(t *testing.T) {
	var out bytes.Buffer
	written := serving.NewLines(&out)
	g := start(t, "version: 1\nproxies: {}\nendpoints: {\"GET /events\": {limit: 1/m sliding-log, refusal: {stream: true}}}\n", upstream(t, echo),
		func(o *gateway.Options) { o.Log = serving.NewLog(written, nil) })
	const asks = "GET /events HTTP/1.1\r\nHost: shop.example\r\nAccept: text/event-stream\r\n"
	for i, fields := range []string{"", "", "X-Original-URI: /other\r\n"} {
		answer := g.raw(asks + fields + "\r\n")
		assert.Equal(t, []int{200, 200, 429}[i], answer.StatusCode)
		assert.Equal(t, i == 1, answer.Header.Get("Content-Type") == "text/event-stream")
	}
	ended, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	g.Drain(ended, 0)
	require.NoError(t, written.Close())
	assert.Equal(t, 2, strings.Count(out.String(), `"status":429`), out.String())
}

func TestBadOptionsAreNamed(t *testing.T) {
	good := gateway.Options{Proxy: ":8080=http://127.0.0.1:3000", Paths: serving.PathsStrict, Timeout: time.Second, ClientTimeout: time.Second}
	for want, change := range map[string]func(*gateway.Options){
		`--proxy "8080": want ADDRESS=URL`:                   func(o *gateway.Options) { o.Proxy = "8080" },
		`--proxy: "8080" is not an address`:                  func(o *gateway.Options) { o.Proxy = "8080=http://127.0.0.1:3000" },
		"--proxy: the service behind :1 is not a URL":        func(o *gateway.Options) { o.Proxy = ":1=127.0.0.1:3000" },
		"--proxy: the service behind :2 is not a URL":        func(o *gateway.Options) { o.Proxy = ":2=http://" },
		"--proxy: the service behind :3 is not a URL":        func(o *gateway.Options) { o.Proxy = ":3=http://u:secret@a" },
		"--upstream-timeout is 0s: want more than 0":         func(o *gateway.Options) { o.Timeout = 0 },
		"--client-timeout is 0s: want more than 0":           func(o *gateway.Options) { o.ClientTimeout = 0 },
		`--user-header is "X User": want the name`:           func(o *gateway.Options) { o.UserHeader = "X User" },
		`--tier-header is "X_Tier": want the name of a head`: func(o *gateway.Options) { o.TierHeader = "X_Tier" },
	} {
		o := good
		change(&o)
		_, err := gateway.New(o)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
}
