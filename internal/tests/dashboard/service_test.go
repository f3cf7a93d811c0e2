package dashboard_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

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
}

func anybody(*http.Request) bool { return true }

func start(t *testing.T, o dashboard.Options) *service {
	t.Helper()
	s := &service{t: t}
	var err error
	s.bans, err = bans.New(bans.Options{})
	require.NoError(t, err)
	if o.Authorize == nil {
		o.Authorize = anybody
	}
	if o.Store == nil {
		o.Store, err = limiter.NewMemory(limiter.MemoryOptions{})
		require.NoError(t, err)
	}
	o.Title, o.Bans, o.Logger = "checkout", s.bans, slog.New(slog.DiscardHandler)
	s.page, err = dashboard.New(o)
	require.NoError(t, err)
	limits, err := middleware.New(middleware.Config{
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
			"/internal":   {{Name: "internal", Key: keyfunc.APIKey("X-Api-Key"), NoKey: middleware.NoKeyUnauthorized, Limit: limiter.PerMinute(100)}},
			"POST /login": {{Name: "login", Key: keyfunc.Global, Limit: limiter.PerSecond(5), OnOutage: limiter.FailClosed}},
		},
	})
	require.NoError(t, err)
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

// mixed sends all kinds at once, until the test is over: twenty requests a second of forty
// good clients, forty of a noisy tenant, sixty of an attacker.
func (s *service) mixed() {
	every(s.t, func(i int) {
		s.good(i)
		s.noisy()
		s.noisy()
		s.attack()
		s.attack()
		s.attack()
	})
}

// serve is the service on a port, and the address of its page.
func (s *service) serve() (page string) {
	server := httptest.NewServer(s.mux)
	s.t.Cleanup(server.Close)
	return server.URL + "/ops/limits"
}

const things = 110 // more rules than the page counts keys of

func manyRules(t *testing.T) (*dashboard.Dashboard, *middleware.RateLimit) {
	routes := map[string][]middleware.Rule{}
	for i := range things {
		pattern := fmt.Sprintf("GET /things/%d", i)
		routes[pattern] = []middleware.Rule{{Name: fmt.Sprint("thing ", i), Key: keyfunc.IP(), Limit: limiter.PerHour(2).With(limiter.SlidingLog)}}
	}
	page, err := dashboard.New(dashboard.Options{Authorize: anybody, ShowKeys: true})
	require.NoError(t, err)
	limits, err := middleware.New(middleware.Config{Observer: page, ByRoute: routes})
	require.NoError(t, err)
	page.Add(limits)
	return page, limits
}

// ask sends requests to one of manyRules.
func ask(limits *middleware.RateLimit, thing, times int) {
	for range times {
		r := httptest.NewRequest("GET", fmt.Sprint("/things/", thing), nil)
		r.Pattern = fmt.Sprint("GET /things/", thing)
		limits.Enter(httptest.NewRecorder(), r, nil)
	}
}
