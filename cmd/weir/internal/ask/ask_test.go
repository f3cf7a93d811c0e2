package ask

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/serving"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

// asked is a server that is asked. It allows an address two requests to /limited, none to /members
// without an X-User, and none to closed.example, and bans X-User: mallory and the host denied.example.
func asked(t testing.TB) *httptest.Server {
	user := keyfunc.Header("X-User")
	limits, err := middleware.New(middleware.Config{
		Rules: []middleware.Rule{
			{Name: "limited", Match: middleware.Route("/limited"), Key: keyfunc.IP(keyfunc.TrustProxies("192.0.2.0/24")), Limit: limiter.PerHour(2)},
			{Name: "members", Match: middleware.Route("/members"), Key: user, NoKey: middleware.NoKeyUnauthorized, Limit: limiter.PerHour(1000)},
			{Name: "closed", Match: middleware.Route("closed.example/*"), Mode: middleware.Deny},
		},
		Bans: middleware.Bans{Deny: middleware.MatchFunc(func(r *http.Request) bool {
			return r.Header.Get("X-User") == "mallory" || r.Host == "denied.example"
		})},
	})
	require.NoError(t, err)
	server := httptest.NewServer(handler(func(next http.Handler) http.Handler {
		return serving.Limits{RateLimit: limits}.Gateway(next, serving.PathsStrict)
	}))
	t.Cleanup(server.Close)
	return server
}

// fields of a question, beside those of the request that it is about.
func question(method, uri, from string) http.Header {
	return http.Header{"X-Forwarded-Method": {method}, "X-Forwarded-Uri": {uri}, "X-Forwarded-For": {from}, "X-Forwarded-Host": {"shop.example"}}
}

func get(t testing.TB, at string, h http.Header) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil)
	require.NoError(t, err)
	r.Header = h
	if host := h.Get("Host"); host != "" {
		r.Host = host
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(body)
}

// A proxy that keeps its connections sends no question after an early answer.
func TestAnEarlyAnswerToAQuestionEndsItsConnection(t *testing.T) {
	limits := middleware.Must(middleware.New(middleware.Config{Rules: []middleware.Rule{{Name: "none", Match: middleware.Route("/closed"), Mode: middleware.Deny}}, Default: []middleware.Rule{
		{Name: "all", Key: keyfunc.Global, Limit: limiter.PerHour(1000)},
	}}))
	s := New("127.0.0.1:0", serving.PathsStrict)
	require.NoError(t, s.Start(serving.Limits{RateLimit: limits, Logger: slog.New(slog.DiscardHandler)}, func(err error) { t.Error(err) }))
	t.Cleanup(func() { s.Drain(t.Context(), 0) })
	for _, path := range []string{"/forward", "/nginx"} {
		for target, statuses := range map[string][2]int{"/open": {204, 204}, "/closed": {403, 403}, "//closed": {400, 403}, "none": {400, 403}} {
			c, err := net.Dial("tcp", s.Server.Addr().String())
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second))) // which only ends a broken test
			_, err = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: a\r\nX-Forwarded-Method: POST\r\nX-Forwarded-Uri: %s\r\nX-Forwarded-For: 192.0.2.1\r\nContent-Length: 9\r\n\r\n", path, target)
			require.NoError(t, err)
			read := bufio.NewReader(c)
			answer, err := http.ReadResponse(read, nil)
			require.NoError(t, err)
			want := statuses[0]
			if path == "/nginx" {
				want = statuses[1]
			}
			assert.Equal(t, want, answer.StatusCode, "%s %s", path, target)
			assert.True(t, answer.Close, "%s %s", path, target)
			assert.Equal(t, "no-store", answer.Header.Get("Cache-Control"), "%s %s", path, target)
			_, err = io.WriteString(c, "nine byteGET /forward HTTP/1.1\r\nHost: a\r\n\r\n")
			require.NoError(t, err)
			_, _ = io.Copy(io.Discard, answer.Body)
			rest, err := io.ReadAll(read)
			require.NoError(t, err)
			assert.Empty(t, rest)
		}
	}
}

func TestAnAnswerIsTheRefusalItself(t *testing.T) {
	at := asked(t).URL + "/forward"
	for range 2 {
		resp, body := get(t, at, question("GET", "/limited?q=1", "203.0.113.7"))
		assert.Equal(t, 204, resp.StatusCode)
		assert.Empty(t, body)
		assert.Equal(t, "2", resp.Header.Get("X-RateLimit-Limit"))
	}
	resp, body := get(t, at, question("POST", "/limited", "203.0.113.7"))
	assert.Equal(t, 429, resp.StatusCode)
	assert.NotEmpty(t, resp.Header.Get("Retry-After"))
	assert.Contains(t, body, "rate_limit_exceeded")
	resp, body = get(t, at, question("HEAD", "/limited", "203.0.113.7"))
	assert.Equal(t, 429, resp.StatusCode)
	assert.Empty(t, body)
	resp, _ = get(t, at, question("GET", "/limited", "203.0.113.8"))
	assert.Equal(t, 204, resp.StatusCode, "another client")
	resp, _ = get(t, at, question("GET", "/members", "203.0.113.7"))
	assert.Equal(t, 401, resp.StatusCode)
	assert.NotEmpty(t, resp.Header.Get("WWW-Authenticate"))
}

// A proxy takes 200 for a yes, which is the status of a refusal in gRPC and in streams of Connect.
func TestAQuestionAboutAnRPCIsNotRefusedWithAYes(t *testing.T) {
	h := asked(t).Config.Handler
	for _, path := range []string{"/forward", "/nginx"} {
		for _, media := range []string{"application/grpc", "application/connect+json", "application/proto"} {
			for _, protocol := range []int{1, 2} {
				r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("x")) // with a body, as no proxy asks
				r.ProtoMajor = protocol
				r.Header = question("POST", "/limited", "203.0.113.7")
				r.Header.Set("Content-Type", media)
				r.Header.Set("X-User", "mallory")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				assert.Equal(t, 403, w.Code, "%s %s", path, media)
			}
		}
	}
}

func TestForNginxEachRefusalIs403(t *testing.T) {
	at := asked(t).URL + "/nginx"
	mallory := question("GET", "/", "203.0.113.7")
	mallory.Set("X-User", "mallory")
	for range 2 {
		resp, _ := get(t, at, question("GET", "/limited", "203.0.113.7"))
		assert.Equal(t, 204, resp.StatusCode)
		assert.Empty(t, resp.Header.Get("Weir-Status"))
	}
	for want, q := range map[string]http.Header{
		"429": question("HEAD", "/limited", "203.0.113.7"), "401": question("GET", "/members", "203.0.113.7"), "403": mallory,
		"400": {"X-Forwarded-Method": {"GET"}},
	} {
		resp, body := get(t, at, q)
		assert.Equal(t, 403, resp.StatusCode, want)
		assert.Equal(t, want, resp.Header.Get("Weir-Status"))
		assert.Empty(t, body)
		assert.Equal(t, want == "429", resp.Header.Get("Retry-After") != "", want)
	}
}

// What the client of the proxy's client claims counts only where the file trusts that one.
func TestTheLastForwardedAddressIsTheProxysClient(t *testing.T) {
	at := asked(t).URL + "/forward"
	status := func(from string) int {
		resp, _ := get(t, at, question("GET", "/limited", from))
		return resp.StatusCode
	}
	assert.Equal(t, []int{204, 204, 429}, []int{status("198.51.100.1, 203.0.113.7"), status("198.51.100.2,203.0.113.7"), status("203.0.113.7")})
	assert.Equal(t, []int{204, 204, 429}, []int{status("198.51.100.1, 192.0.2.1"), status("198.51.100.1,192.0.2.2"), status("198.51.100.1, 192.0.2.1")})
}

func TestAQuestionThatLacksSomethingIsNotAnsweredWithYes(t *testing.T) {
	at := asked(t).URL
	for _, path := range []string{"/forward", "/nginx"} {
		for says, change := range map[string]func(http.Header){
			"X-Forwarded-Method is missing":      func(h http.Header) { h.Del("X-Forwarded-Method") },
			"X-Forwarded-Uri is missing":         func(h http.Header) { h.Del("X-Forwarded-Uri") },
			"X-Forwarded-Uri is not":             func(h http.Header) { h.Set("X-Forwarded-Uri", "no target") },
			"X-Forwarded-Uri occurs 2":           func(h http.Header) { h.Add("X-Forwarded-Uri", "/free") },
			"X-Forwarded-Host occurs 2":          func(h http.Header) { h.Add("X-Forwarded-Host", "other.example") },
			"X-Forwarded-Host occurs 2 times: ":  func(h http.Header) { h["X-Forwarded-Host"] = []string{"", "shop.example"} },
			"X-Forwarded-For does not end":       func(h http.Header) { h.Set("X-Forwarded-For", "203.0.113.7, unknown") },
			"X-Forwarded-For does not end with ": func(h http.Header) { h.Del("X-Forwarded-For") },
		} {
			q := question("GET", "/", "203.0.113.7")
			change(q)
			resp, body := get(t, at+path, q)
			if path == "/forward" {
				assert.Equal(t, 400, resp.StatusCode, says)
				assert.True(t, strings.HasPrefix(body, "weir: "+says), body)
			} else {
				assert.Equal(t, "400", resp.Header.Get("Weir-Status"), says)
			}
		}
	}
	resp, _ := get(t, at+"/", question("GET", "/", "203.0.113.7"))
	assert.Equal(t, 404, resp.StatusCode)
}

// Proxies pass on what a client wrote, and services read it in their own ways.
func TestWhatCannotBeJudgedIsAnswered400(t *testing.T) {
	at := asked(t).URL + "/forward"
	for _, change := range [][2]string{
		{"Method", "get"}, {"Method", "Get"}, {"Uri", "/limited#1"}, {"Uri", "/?a=1#"}, {"Uri", "//limited"}, {"Uri", "/x/../limited"}, {"Uri", "/limited%0a"}, {"Uri", "*"}, {"Uri", "x:limited"},
		{"Uri", "http://other.example/limited"}, {"Uri", "http://"}, {"Host", "closed.example:80:80"}, {"Host", "closed.example::"}, {"Host", "closed.example,a"}, {"Host", "a, closed.example"}, {"Host", "u@closed.example"}, {"Host", "ｃlosed.example"},
	} {
		q := question("GET", "/limited", "203.0.113.7")
		q.Set("X-Forwarded-"+change[0], change[1])
		resp, body := get(t, at, q)
		assert.Equal(t, 400, resp.StatusCode, "%v: %s", change, body)
	}
	for _, change := range [][2]string{{"Uri", "/?_method=DELETE"}, {"Uri", "/?a=1&X-HTTP-Method-Override=put"}} {
		q := question("POST", "/", "203.0.113.7")
		q.Set("X-Forwarded-"+change[0], change[1])
		resp, body := get(t, at, q)
		assert.Equal(t, 400, resp.StatusCode, "%v: %s", change, body)
	}
	for _, connection := range []string{"X-User", "keep-alive, x-user", "Cookie"} {
		q := question("GET", "/members", "203.0.113.7")
		q["Connection"], q["X-User"], q["Cookie"] = []string{connection}, []string{"ann"}, []string{"a=b"}
		resp, body := get(t, at, q)
		assert.Equal(t, 400, resp.StatusCode, "%v: %s", connection, body)
	}
	for _, uri := range []string{"/limited?a=%23", "http://SHOP.example:80/limited"} {
		resp, body := get(t, at, question("GET", uri, "203.0.113.7"))
		assert.Equal(t, 204, resp.StatusCode, body)
	}
}

// A proxy passes a field on in each spelling, and a service may read another one than the rules.
func TestAQuestionWithAFieldThatServicesReadAsAnotherIs400(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.yaml")
	require.NoError(t, os.WriteFile(file, []byte("version: 1\ndefault: {limit: 1000/h, key: \"apikey:X-Api-Key|cookie:session\"}\n"), 0o600))
	watcher, err := rules.Watch(t.Context(), file, rules.Options{Config: middleware.Config{Logger: slog.New(slog.DiscardHandler)}})
	require.NoError(t, err)
	defer watcher.Close()
	server := httptest.NewServer(handler(func(next http.Handler) http.Handler {
		return serving.Limits{RateLimit: watcher.RateLimit, Watcher: watcher}.Gateway(next, serving.PathsStrict)
	}))
	defer server.Close()
	for field, want := range map[string]int{"X_Api_Key": 400, "x_api-key": 400, "X-Api.Key": 400, "x-api-key": 204, "X_Other": 204, "Cookie": 204} {
		q := question("GET", "/", "203.0.113.7")
		q.Set(field, "a")
		resp, body := get(t, server.URL+"/forward", q)
		assert.Equal(t, want, resp.StatusCode, "%s: %s", field, body)
	}
}

// A rule that needs what a proxy does not say is refused when it is loaded, and would not hold.
func TestTheServiceLacksWhatAProxyDoesNotSay(t *testing.T) {
	s := New("127.0.0.1:0", serving.PathsStrict)
	for of, lacks := range map[string]bool{
		"user": true, "tier": true, "status": true, "settled": true, "concurrency": true, "overload": true, "stream": true, "json:user": true, "form:user": true, "header:Content-Length": true,
		"header:Upgrade": true, "header:Te": true, "header:X-Forwarded-For": true, "header:X-Forwarded-Host": true,
		"host": false, "header:X-Api-Key": false, "cookie:session": false, "query:q": false, "queue": false,
	} {
		assert.Equal(t, lacks, s.Lacks(&rules.Proxies{}, rules.Need{Rule: "rule", Of: of}) != "", of)
	}
	behind, err := rules.Parse([]byte("version: 1\nproxies: {hops: 1}\ndefault: {limit: 5/s, key: \"header:X-Forwarded-For\"}\n"), rules.Options{Lacks: s.Lacks})
	require.NoError(t, err)
	require.Empty(t, s.Lacks(behind.Proxies(), rules.Need{Rule: "rule", Of: "header:X-Forwarded-For"}))
}
