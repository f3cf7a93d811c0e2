package rules_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/leak"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

func TestMain(m *testing.M) {
	leak.VerifyMain(m)
}

// parse is the rules of a text without mistakes.
func parse(t testing.TB, text string, o rules.Options) *rules.Rules {
	t.Helper()
	r, err := rules.Parse([]byte(text), o)
	require.NoError(t, err)
	requireSchema(t, text)
	return r
}

// load is the rules of a directory's limits.yaml, without mistakes.
func load(t testing.TB, files map[string]string, o rules.Options) *rules.Rules {
	t.Helper()
	r, err := rules.Load(filepath.Join(write(t, files), "limits.yaml"), o)
	require.NoError(t, err)
	requireSchema(t, files["limits.yaml"])
	return r
}

// write puts files into a new directory.
func write(t testing.TB, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

// A call is a request. The zero call is GET / from 192.0.2.1.
type call struct {
	route  string // "POST /login", which is registered; empty: GET of the path
	path   string // asked for; empty: that of the route
	host   string
	from   string // peer, with its port
	user   string
	tier   string
	header map[string]string
	body   io.Reader
	length int64 // of the body, where body does not tell; -1: unknown
}

// A site is a server that is limited.
type site struct {
	t      testing.TB
	limits *middleware.RateLimit
}

// open is the site of some rules.
func open(t testing.TB, r *rules.Rules) *site {
	t.Helper()
	limits, err := middleware.New(r.Config())
	require.NoError(t, err)
	return &site{t, limits}
}

func openText(t testing.TB, text string) *site {
	t.Helper()
	return open(t, parse(t, text, rules.Options{}))
}

// ask is the answer to a request, behind a router that chose its route.
func (s *site) ask(c call) *http.Response {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.limits.Handler(okay).ServeHTTP(w, c.request())
	return w.Result()
}

var okay = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

func (c call) request() *http.Request {
	method, path := http.MethodGet, c.path
	if c.route != "" {
		var route string
		if _, err := fmt.Sscanf(c.route, "%s %s", &method, &route); err != nil {
			method, route = http.MethodGet, c.route
		}
		if path == "" {
			path = route
		}
		c.route = route
	}
	if path == "" {
		path = "/"
	}
	r := httptest.NewRequest(method, "http://example.com/", c.body)
	r.URL.Path = path
	r.Pattern = c.route
	if r.Pattern == "" {
		r.Pattern = path
	}
	if c.host != "" {
		r.Host = c.host
		r.Pattern = c.host + r.Pattern
	}
	r.RemoteAddr = "192.0.2.1:1024"
	if c.from != "" {
		r.RemoteAddr = c.from
	}
	for name, value := range c.header {
		r.Header.Set(name, value)
	}
	if c.length != 0 {
		r.ContentLength = c.length
	}
	ctx := r.Context()
	if c.user != "" {
		ctx = keyfunc.WithUser(ctx, c.user)
	}
	if c.tier != "" {
		ctx = middleware.WithTier(ctx, c.tier)
	}
	return r.WithContext(ctx)
}

// status is what a request is answered.
func (s *site) status(c call) int {
	s.t.Helper()
	return s.ask(c).StatusCode
}

// passes asks until a request is refused, and requires that so many passed.
func (s *site) passes(n int, c call) *http.Response {
	s.t.Helper()
	for i := range n {
		require.Equal(s.t, http.StatusOK, s.status(c), "request %d of %+v", i+1, c)
	}
	answer := s.ask(c)
	require.Equal(s.t, http.StatusTooManyRequests, answer.StatusCode, "request %d of %+v", n+1, c)
	return answer
}

// A lockedBuffer is written and read by different goroutines.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
