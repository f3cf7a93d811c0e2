package dashboard_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirgo/weir/internal/leak"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/observe/dashboard"
)

// A service is one with limits, and a page that shows them.
type service struct {
	t    *testing.T
	page *dashboard.Dashboard
	bans *bans.Memory
	mux  http.Handler
	log  *syncedBuffer
}

// syncedBuffer is what was logged.
type syncedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncedBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncedBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestMain(m *testing.M) { leak.VerifyMain(m) }

func anybody(*http.Request) bool { return true }

func start(t *testing.T, o dashboard.Options) *service {
	t.Helper()
	s := &service{t: t, log: &syncedBuffer{}}
	s.bans = bans.Must(bans.New(bans.Options{}))
	if o.Authorize == nil {
		o.Authorize = anybody
	}
	if o.Store == nil {
		o.Store = limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
	}
	o.Title, o.Bans, o.Logger = "checkout", s.bans, slog.New(slog.NewTextHandler(s.log, nil))
	s.page = dashboard.Must(dashboard.New(o))
	limits := middleware.Must(middleware.New(middleware.Config{
		Store: o.Store, Observer: s.page,
		Bans:   middleware.Bans{List: s.bans, Keys: []keyfunc.Func{keyfunc.IP()}},
		Logger: slog.New(slog.DiscardHandler),
		Rules: []middleware.Rule{
			{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerMinute(600)},
			{Name: "tenant", Key: keyfunc.Header("X-Tenant"), NoKey: middleware.NoKeySkip, Limit: limiter.PerMinute(60).WithBurst(10),
				Tiers: middleware.Tiers{"premium": limiter.PerMinute(6000)}},
			{Name: "strict", Key: keyfunc.IP(), Limit: limiter.PerMinute(5).With(limiter.SlidingLog), Mode: middleware.Shadow},
		},
		ByRoute: map[string][]middleware.Rule{
			"/internal": {{Name: "internal", Key: keyfunc.APIKey("X-Api-Key"), NoKey: middleware.NoKeyUnauthorized, Limit: limiter.PerMinute(100),
				Overrides: map[string]middleware.Override{"apikey:import": {
					Limit: limiter.PerMinute(500), Until: time.Date(2999, 12, 24, 0, 0, 0, 0, time.UTC), Because: "ticket 815",
				}}}},
			"POST /login": {{Name: "login", Key: keyfunc.Global, Limit: limiter.PerSecond(5), OnOutage: limiter.FailClosed}},
		},
		Default: []middleware.Rule{{Name: "rest", Key: keyfunc.Global, Limit: limiter.PerSecond(5_000)}},
	}))
	s.page.Add(limits)

	mux := http.NewServeMux()
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/internal", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /login", func(http.ResponseWriter, *http.Request) {})
	outside := http.NewServeMux()
	outside.Handle("/ops/limits", s.page)
	outside.Handle("/", limits.Handler(mux))
	s.mux = outside
	return s
}

// send has a client ask, and returns the status.
func (s *service) send(method, path, address, tenant string) int {
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr = address + ":4711"
	if tenant != "" {
		r.Header.Set("X-Tenant", tenant)
	}
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(w, r)
	return w.Code
}

// good clients, some of them with a premium of patience.
func (s *service) good(i int) {
	s.send("GET", "/products", fmt.Sprintf("198.51.100.%d", i%40), fmt.Sprintf("tenant-%d", i%40))
}

// noisy is one tenant that does not stop.
func (s *service) noisy() { s.send("GET", "/export", "203.0.113.9", "acme") }

// attack tries passwords, each time from another address.
func (s *service) attack() {
	s.send("POST", "/login", fmt.Sprintf("192.0.%d.%d", rand.IntN(256), rand.IntN(256)), "")
}

// do has the page's own script do something, and returns status and answer.
func (s *service) do(action string, edits ...func(*http.Request)) (int, string) {
	r := httptest.NewRequest("POST", "/ops/limits", strings.NewReader(action))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for _, edit := range edits {
		edit(r)
	}
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}
