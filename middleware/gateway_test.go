package middleware_test

import (
	"bytes"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

func TestAGatewayIsRoutedByAllPatternsOfItsRules(t *testing.T) {
	config := middleware.Config{
		Allow:   middleware.Route("/healthz"),
		Rules:   []middleware.Rule{{Name: "reports", Match: middleware.Route("GET /reports/{id}"), Limit: limiter.PerHour(1), Key: keyfunc.PathValue("id")}},
		ByRoute: map[string][]middleware.Rule{"POST /login": {{Name: "login", Key: keyfunc.Global, Limit: limiter.PerHour(1)}}},
		Default: []middleware.Rule{{Name: "rest", Key: keyfunc.Global, Limit: limiter.PerHour(100)}},
	}
	limits := middleware.Must(middleware.New(config))
	var passed string
	gateway := limits.Gateway(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { passed = r.Pattern }), false)
	do := func(method, path string) (int, string) {
		w, r := httptest.NewRecorder(), httptest.NewRequest(method, "/", nil)
		r.URL.Path, passed = path, ""
		gateway.ServeHTTP(w, r)
		return w.Code, passed
	}
	for _, step := range []struct {
		method, path string
		status       int
		pattern      string
	}{
		{"GET", "/reports/7", 200, "/reports/{id}"}, {"GET", "/reports/7;v=2", 429, ""}, {"GET", "/reports/8/", 200, "/reports/{id}"},
		{"POST", "/login", 200, "/login"}, {"POST", "//login", 429, ""}, {"GET", "/login", 200, "/*"},
		{"GET", "/healthz", 200, "/healthz"}, {"GET", "/{id}", 200, "/*"},
	} {
		status, pattern := do(step.method, step.path)
		require.Equal(t, step.status, status, step.path)
		require.Equal(t, step.pattern, pattern, step.path)
	}

	config.ByRoute = map[string][]middleware.Rule{"POST /{any}": {{Name: "login", Key: keyfunc.Global, Limit: limiter.PerHour(1)}}}
	require.NoError(t, limits.Reconfigure(config))
	status, _ := do("POST", "/signin")
	require.Equal(t, 429, status, "routes change with the rules, and counters stay")
	require.Panics(t, func() { limits.Gateway(nil, false) })
}

// A proxy removes what Connection lists: the service would see another client than the rules.
func TestAGatewayCountsNoFieldThatConnectionLists(t *testing.T) {
	limits := middleware.Must(middleware.New(middleware.Config{Rules: []middleware.Rule{
		{Name: "key", Key: keyfunc.First(keyfunc.APIKey("X-Api-Key"), keyfunc.Global), Limit: limiter.PerHour(30)},
	}}))
	gateway := limits.Gateway(noop, false)
	for connection, want := range map[string]int{"x-api-KEY": 400, "close, X-Api-Key ": 400, "keep-alive": 200, "X-Other": 200, "Upgrade, TE": 200} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header = http.Header{"Connection": {"close", connection}, "X-Api-Key": {"k"}, "Te": {"trailers"}, "Upgrade": {"websocket"}}
		w := httptest.NewRecorder()
		gateway.ServeHTTP(w, r)
		require.Equal(t, want, w.Code, connection)
	}
}

// A reverse proxy has no routes of its own: those of the rules are its routes.
func ExampleRateLimit_Gateway() {
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer service.Close()
	upstream, _ := url.Parse(service.URL)

	limits := middleware.Must(middleware.New(middleware.Config{
		ByRoute: map[string][]middleware.Rule{"POST /login": {{Name: "login", Key: keyfunc.IP(), Limit: limiter.PerMinute(1)}}},
	}))
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(upstream)
		r.SetXForwarded()
		if r.Out.Header.Get("Upgrade") != "websocket" {
			r.Out.Header.Del("Upgrade") // h2c would tunnel requests past the limits
		}
	}}
	gateway := httptest.NewServer(limits.Gateway(proxy, false))
	defer gateway.Close()

	for _, path := range []string{"/login", "/login/", "/about"} {
		answer, err := http.Post(gateway.URL+path, "text/plain", nil)
		if err != nil {
			panic(err)
		}
		answer.Body.Close()
		fmt.Println(path, answer.StatusCode)
	}
	// Output:
	// /login 200
	// /login/ 429
	// /about 200
}

// Whatever stands in front of the limiter, and whoever parses the form.
func TestNoFileOfAFormStays(t *testing.T) {
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	file, err := parts.CreateFormFile("f", "f")
	require.NoError(t, err)
	_, _ = file.Write(make([]byte, 1000))
	require.NoError(t, parts.Close())
	parse := func(r *http.Request) error { return r.ParseMultipartForm(0) }
	parsing := func(r *http.Request) (string, error) { return "k", parse(r) }
	panics := observer(func(*middleware.Observation) { panic("on purpose") })
	for name, test := range map[string]struct {
		config  middleware.Config
		handler http.HandlerFunc
	}{
		"a key":                   {middleware.Config{Rules: []middleware.Rule{{Name: "x", Key: parsing, Limit: perHour(1)}}}, noop},
		"a handler":               {middleware.Config{Rules: one}, func(_ http.ResponseWriter, r *http.Request) { assert.NoError(t, parse(r)) }},
		"a handler with a copy":   {middleware.Config{Results: true, Rules: one}, func(_ http.ResponseWriter, r *http.Request) { assert.NoError(t, parse(r)) }},
		"a handler that panics":   {middleware.Config{Rules: one}, func(_ http.ResponseWriter, r *http.Request) { _ = parse(r); panic("on purpose") }},
		"an observer that panics": {middleware.Config{Observer: panics, Rules: []middleware.Rule{{Name: "x", Key: parsing, Limit: perHour(1)}}}, noop},
	} {
		l := limited(t, test.config)
		for _, h := range []http.Handler{l.Handler(test.handler), l.Gateway(test.handler, false)} {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			for range 2 { // the second is refused
				r := httptest.NewRequest("POST", "/", bytes.NewReader(form.Bytes()))
				r.Header.Set("Content-Type", parts.FormDataContentType())
				func() {
					defer func() { _ = recover() }()
					h.ServeHTTP(httptest.NewRecorder(), r.WithContext(t.Context()))
				}()
				left, err := os.ReadDir(dir)
				require.NoError(t, err)
				require.Empty(t, left, name)
			}
		}
	}
}

func TestAGatewayRefusesRoutesThatAreDenied(t *testing.T) {
	limits := middleware.Must(middleware.New(middleware.Config{Bans: middleware.Bans{Deny: middleware.Route("/internal/*")}}))
	gateway := limits.Gateway(ok, false)
	for path, status := range map[string]int{"/internal": 403, "/internal/users": 403, "//internal;v=1/users": 403, "/": 200, "/internals": 200} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		r.URL.Path = path
		gateway.ServeHTTP(w, r)
		require.Equal(t, status, w.Code, path)
	}
}
