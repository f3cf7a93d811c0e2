package rules_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	echov4 "github.com/labstack/echo/v4"
	echov5 "github.com/labstack/echo/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/adapters/chilimit"
	"github.com/weirgo/weir/adapters/echo5limit"
	"github.com/weirgo/weir/adapters/echolimit"
	"github.com/weirgo/weir/adapters/ginlimit"
	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/middleware/shed"
	"github.com/weirgo/weir/redis/redisbans"
	"github.com/weirgo/weir/redis/redisstore"
)

// A lineClaim is what a line of a file does, as seen over HTTP. Each is shown on every router and
// store.
type lineClaim struct {
	line  string // how it begins
	claim string
	run   func(*testing.T, *lineService)

	// smaller is pairs of what is written and what is read instead: numbers that a test
	// reaches, and logs where it would not bear that a unit of a sliding window fades as one ends.
	smaller []string
	file    string // in place of the sample
	outage  bool   // ends Redis, and so needs one of its own
}

// What each line means is shown in memory by the other tests of this package; these are the
// lines that meet the router, HTTP or the store.
var lineClaims = []lineClaim{
	{line: `"GET /api/v1/search":`, claim: "a burst of 10, for each user at each address", run: searchLimits},
	{line: `"POST /api/v1/upload":`, claim: "a unit for each MiB begun", run: uploadCosts},
	{line: `"POST /login":`, claim: "closed while Redis is down, and only that", run: loginIsClosed, outage: true},
	{line: "escalate:", claim: "the third refusal is a ban, everywhere", run: refusalsBan,
		smaller: []string{"limit: 5/1m", "limit: 5/1m sliding_log"}},
	{line: `"/beta/*":`, claim: "refuses nothing, says nothing and is logged", run: betaIsInShadow},
}

func TestTheSampleWorksOnEveryRouterAndStore(t *testing.T) {
	t.Parallel()
	holdOnEveryRouterAndStore(t, lineClaims)
}

func holdOnEveryRouterAndStore(t *testing.T, claims []lineClaim) {
	for store, start := range lineStores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			back := start(t)
			for name, router := range lineRouters {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					for _, c := range claims {
						if c.outage && store == "Memory" {
							continue
						}
						t.Run(c.line+" "+c.claim, func(t *testing.T) {
							t.Parallel()
							back := back
							if c.outage {
								back = start(t)
							}
							c.run(t, c.serve(t, router, back(t)))
						})
					}
				})
			}
		})
	}
}

func lineSample(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "sample.yaml"))
	require.NoError(t, err)
	return string(text)
}

// The claims.

func searchLimits(t *testing.T, s *lineService) {
	const request = "GET /api/v1/search"
	carla := lineClient{ip: "203.0.113.1", user: "carla"}
	h := s.exhausts(t, request, carla, lineLimit{10, 30, time.Minute})
	require.Equal(t, "10", h.Get("X-RateLimit-Limit"))
	retryAfter(t, h, 2*time.Second) // 30 a minute is one in two seconds
	require.Contains(t, h.Get("RateLimit-Policy"), `"GET /api/v1/search";q=10;w=20`)
	for _, other := range []lineClient{
		{ip: "203.0.113.2", user: "carla"}, {ip: "203.0.113.1", user: "finn"}, {ip: "203.0.113.1"}, {ip: "203.0.113.2"},
	} {
		h := s.passes(t, request, other, 1)
		require.Equal(t, "9", h.Get("X-RateLimit-Remaining"), "%+v is somebody else", other)
	}
	s.passes(t, "GET /news", carla, 1)
}

func uploadCosts(t *testing.T, s *lineService) {
	const request, mib = "POST /api/v1/upload", 1 << 20
	visitor := func(size int64) lineClient { return lineClient{ip: "203.0.113.1", size: size} }
	left := func(size int64) string {
		return s.passes(t, request, visitor(size), 1).Get("X-RateLimit-Remaining")
	}
	require.Equal(t, "9", left(1))
	require.Equal(t, "6", left(2*mib+1), "a part of one counts as one")
	require.Equal(t, "5", left(chunked), "what has no length costs one")
	retryAfter(t, s.refuses(t, request, visitor(6*mib)), time.Hour)
	h := s.refuses(t, request, visitor(11*mib))
	require.Empty(t, h.Get("Retry-After"), "it never fits")
	require.Equal(t, "0", left(5*mib), "what was refused took nothing")
	retryAfter(t, s.refuses(t, request, visitor(1)), time.Hour)
	s.passes(t, "GET /news", visitor(0), 1)
}

func loginIsClosed(t *testing.T, s *lineService) {
	visitor := lineClient{ip: "203.0.113.1"}
	s.passes(t, "POST /login", visitor, 1)
	s.kill()
	for range 3 {
		require.Equal(t, http.StatusServiceUnavailable, s.ask(t, "POST /login", visitor).StatusCode)
	}
	for _, request := range []string{"GET /news", "GET /api/v1/search", "POST /api/v1/upload", "GET /beta/search", "GET /login"} {
		s.passes(t, request, visitor, 2)
	}
	s.isBanned(t, "GET /news", lineClient{ip: "198.51.100.7"})
}

func refusalsBan(t *testing.T, s *lineService) {
	phone, laptop := lineClient{ip: "203.0.113.1", device: "phone"}, lineClient{ip: "203.0.113.1", device: "laptop"}
	s.passes(t, "POST /login", phone, 5)
	s.refuses(t, "POST /login", phone)
	s.refuses(t, "POST /login", phone)
	told := retryAfter(t, s.refuses(t, "POST /login", phone), 2*time.Minute)
	banned := s.ask(t, "POST /login", phone)
	require.Equal(t, http.StatusForbidden, banned.StatusCode)
	left := retryAfter(t, banned.Header, time.Minute)
	require.GreaterOrEqual(t, told, left, "the refusal that banned says when to come back")
	require.Greater(t, left, 30*time.Second, "a minute, less what this test took")
	require.Empty(t, rateFields(banned.Header))

	require.Equal(t, http.StatusForbidden, s.ask(t, "GET /news", phone).StatusCode, "who is banned is so everywhere")
	s.passes(t, "POST /login", laptop, 1)
	s.passes(t, "POST /login", lineClient{ip: "203.0.113.2", device: "phone"}, 1)
}

func betaIsInShadow(t *testing.T, s *lineService) {
	h := s.passes(t, "GET /beta/search", lineClient{ip: "203.0.113.1"}, 110) // more than the default's 100
	require.NotContains(t, strings.Join(rateFields(h), "\n"), "beta")
	require.Equal(t, "10000", h.Get("X-RateLimit-Limit"), "of the global rule, the only one that means it")
	require.Contains(t, s.log.String(), `"code":"weir-shadow"`)
	require.Contains(t, s.log.String(), `"rule":"/beta/*"`)
}

// What they ask, and of whom.

// A lineClient is who sends a request.
type lineClient struct {
	ip     string // in X-Forwarded-For, as proxies write it
	user   string // that authentication says it is, and next its tier
	tier   string
	device string
	accept string
	size   int64 // of the body
}

// chunked is the size of a body that does not say its own.
const chunked = -1

// A lineService is a router with limits that serves on a port of its own.
type lineService struct {
	url     string
	client  *http.Client
	path    string // of the file
	text    string // that is in it
	reloads chan error
	log     *lockedBuffer
	watcher *rules.Watcher
	kill    func() // ends Redis
}

// serve is the router behind the sample file, until the test ends.
func (c *lineClaim) serve(t *testing.T, router lineRouter, b lineBacking) *lineService {
	t.Helper()
	s := &lineService{log: &lockedBuffer{}, kill: b.kill, reloads: make(chan error, 8)}
	s.text = cmp.Or(c.file, lineSample(t))
	replace := c.smaller
	if c.file == "" {
		replace = append([]string{"trusted: [10.0.0.0/8]", "trusted: [10.0.0.0/8, 127.0.0.1]"}, replace...)
	}
	for i := 0; i < len(replace); i += 2 {
		require.Equal(t, 1, strings.Count(s.text, replace[i]), "the sample has it once: %s", replace[i])
		s.text = strings.Replace(s.text, replace[i], replace[i+1], 1)
	}
	folder := t.TempDir()
	for _, name := range []string{"banned.txt", "partners.txt"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), text, 0o600))
	}
	s.path = filepath.Join(folder, "limits.yaml")
	s.edit(t, s.text)

	watcher, err := rules.Watch(t.Context(), s.path, rules.Options{
		Config:   middleware.Config{Store: b.store, Bans: middleware.Bans{List: b.bans}, Logger: slog.New(slog.NewJSONHandler(s.log, nil))},
		OnReload: func(r rules.Reload) { s.reloads <- r.Err },
		Poll:     100 * time.Millisecond,
		Overload: shed.FromRules,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, watcher.Close()) })
	s.watcher = watcher
	require.NoError(t, s.reloaded(t), "the first time counts as one")

	server := httptest.NewServer(router(watcher.RateLimit))
	t.Cleanup(server.Close)
	s.url, s.client = server.URL, server.Client()
	s.client.Transport.(*http.Transport).ExpectContinueTimeout = 30 * time.Second // a body that is refused is not sent
	return s
}

func (s *lineService) edit(t *testing.T, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(s.path, []byte(text), 0o600))
}

// reloaded waits for an edit to be heard of.
func (s *lineService) reloaded(t *testing.T) error {
	t.Helper()
	select {
	case err := <-s.reloads:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("the file was not reloaded")
		return nil
	}
}

// ask sends a request and returns the response, whose body was read.
func (s *lineService) ask(t *testing.T, request string, c lineClient) *http.Response {
	t.Helper()
	method, path, _ := strings.Cut(request, " ")
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, nil)
	require.NoError(t, err)
	if c.size != 0 {
		r.Body = io.NopCloser(io.LimitReader(zeros{}, max(c.size, 1)))
		r.ContentLength = c.size
		r.Header.Set("Expect", "100-continue")
	}
	for name, value := range map[string]string{
		"X-Forwarded-For": c.ip, "X-User": c.user, "X-Tier": c.tier, "X-Device": c.device, "Accept": c.accept,
	} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	response, err := s.client.Do(r)
	require.NoError(t, err, request)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// passes asks n times and returns the header of the last response.
func (s *lineService) passes(t *testing.T, request string, c lineClient, n int) (h http.Header) {
	t.Helper()
	for i := range n {
		response := s.ask(t, request, c)
		require.Equal(t, http.StatusOK, response.StatusCode, "%s by %+v, the %d. time", request, c, i+1)
		h = response.Header
	}
	return h
}

// refuses asks once.
func (s *lineService) refuses(t *testing.T, request string, c lineClient) http.Header {
	t.Helper()
	response := s.ask(t, request, c)
	require.Equal(t, http.StatusTooManyRequests, response.StatusCode, "%s by %+v", request, c)
	require.NotEmpty(t, response.Header.Get("X-RateLimit-Limit"))
	return response.Header
}

func (s *lineService) isBanned(t *testing.T, request string, c lineClient) {
	t.Helper()
	response := s.ask(t, request, c)
	require.Equal(t, http.StatusForbidden, response.StatusCode, "%s by %+v", request, c)
	require.Empty(t, rateFields(response.Header), "no limit was asked")
	require.Empty(t, response.Header.Get("Retry-After"), "it has no end")
}

// A lineLimit is how many pass at once, and how many more per window.
type lineLimit struct {
	now, more int
	window    time.Duration
}

// exhausts asks until it is refused, which has to be when it should, and returns the header
// of the refusal.
func (s *lineService) exhausts(t *testing.T, request string, c lineClient, l lineLimit) http.Header {
	t.Helper()
	began, passed := time.Now(), 0
	response := s.ask(t, request, c)
	for ; response.StatusCode != http.StatusTooManyRequests; response = s.ask(t, request, c) {
		passed++
		require.Less(t, passed, 10*l.now, "nothing is refused")
	}
	most := l.now + int(int64(l.more)*int64(time.Since(began))/int64(l.window))
	if !began.Truncate(l.window).Equal(time.Now().Truncate(l.window)) {
		most++ // one fades at once when a window ends
	}
	require.GreaterOrEqual(t, passed, l.now, request)
	require.LessOrEqual(t, passed, most, request)
	return response.Header
}

// retryAfter is what a refusal says, which is at most that.
func retryAfter(t *testing.T, h http.Header, most time.Duration) time.Duration {
	t.Helper()
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	require.NoError(t, err, "Retry-After is a number of seconds")
	require.Positive(t, seconds)
	told := time.Duration(seconds) * time.Second
	require.LessOrEqual(t, told, most)
	return told
}

// rateFields are the fields that tell of limits.
func rateFields(h http.Header) (fields []string) {
	for name, values := range h {
		if strings.Contains(strings.ToLower(name), "ratelimit") {
			fields = append(fields, name+": "+strings.Join(values, ", "))
		}
	}
	return fields
}

// Where counters are.

// A lineBacking is a store and a list of bans that one service has for itself.
type lineBacking struct {
	store limiter.Store
	bans  bans.List
	kill  func()
}

// lineStores start what a store needs, and return how a service opens its own.
var lineStores = map[string]func(*testing.T) func(*testing.T) lineBacking{
	"Memory": func(*testing.T) func(*testing.T) lineBacking {
		return func(*testing.T) lineBacking { return lineBacking{} }
	},
	"Redis": func(t *testing.T) func(*testing.T) lineBacking {
		server := redistest.Start(t)
		return func(t *testing.T) lineBacking {
			client := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1})
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(func() {
				cancel()
				require.NoError(t, client.Close())
			})
			prefix := fmt.Sprint("line", lineServices.Add(1))
			quiet := slog.New(slog.DiscardHandler)
			list, err := redisbans.New(ctx, client, redisbans.Options{Prefix: prefix, Logger: quiet})
			require.NoError(t, err)
			return lineBacking{kill: server.Kill, bans: list, store: redisstore.New(client, redisstore.Options{
				Prefix: prefix,
				// A busy machine is no outage, and a dead server refuses connections at once.
				Failover: failover.Options{Deadline: 10 * time.Second, OnDegraded: func(failover.Event) {}},
			})}
		}
	},
}

var lineServices atomic.Int64

// The routers.

// A lineRouter is an application on some router, limited as a whole.
type lineRouter func(*middleware.RateLimit) http.Handler

// lineRoutes are what the application serves.
var lineRoutes = []struct{ method, path string }{
	{"GET", "/news"}, {"GET", "/healthz"}, {"GET", "/api/v1/search"}, {"POST", "/api/v1/upload"},
	{"GET", "/login"}, {"POST", "/login"}, {"GET", "/beta/{feature}"},
}

// authenticated is the context of a request that was authenticated, in front of limits.
func authenticated(r *http.Request) context.Context {
	ctx := keyfunc.WithUser(r.Context(), r.Header.Get("X-User"))
	return middleware.WithTier(ctx, r.Header.Get("X-Tier"))
}

func authenticating(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(authenticated(r)))
	})
}

func lineHandler(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\n") }

var lineRouters = map[string]lineRouter{
	"net http": func(limits *middleware.RateLimit) http.Handler {
		mux := http.NewServeMux()
		for _, route := range lineRoutes {
			mux.HandleFunc(route.method+" "+route.path, lineHandler)
		}
		return authenticating(limits.Handler(mux))
	},
	"chi": func(limits *middleware.RateLimit) http.Handler {
		r := chi.NewRouter()
		r.Use(authenticating, chilimit.New(limits))
		for _, route := range lineRoutes {
			r.MethodFunc(route.method, route.path, lineHandler)
		}
		return r
	},
	"gin": func(limits *middleware.RateLimit) http.Handler {
		quietGin()
		r := gin.New()
		r.Use(func(c *gin.Context) { c.Request = c.Request.WithContext(authenticated(c.Request)) }, ginlimit.New(limits))
		for _, route := range lineRoutes {
			r.Handle(route.method, colonParams(route.path), gin.WrapF(lineHandler))
		}
		return r
	},
	"echo v4": func(limits *middleware.RateLimit) http.Handler {
		e := echov4.New()
		e.Use(echov4.WrapMiddleware(authenticating), echolimit.New(limits))
		for _, route := range lineRoutes {
			e.Add(route.method, colonParams(route.path), echov4.WrapHandler(http.HandlerFunc(lineHandler)))
		}
		return e
	},
	"echo v5": func(limits *middleware.RateLimit) http.Handler {
		e := echov5.New()
		e.Use(echov5.WrapMiddleware(authenticating), echo5limit.New(limits))
		for _, route := range lineRoutes {
			e.Add(route.method, colonParams(route.path), echov5.WrapHandler(http.HandlerFunc(lineHandler)))
		}
		return e
	},
}

var quietGin = sync.OnceFunc(func() { gin.SetMode(gin.TestMode) })

// colonParams spells {id} as :id.
func colonParams(path string) string { return strings.NewReplacer("{", ":", "}", "").Replace(path) }
