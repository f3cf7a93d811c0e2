package rules_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
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

// A lineClaim is what a line of testdata/sample.yaml does, as seen over HTTP. Each is shown
// on every router and store.
type lineClaim struct {
	line  string // how it begins
	claim string
	run   func(*testing.T, *lineService)

	// smaller is pairs of what is written and what is read instead: numbers that a test
	// reaches, and logs where it would not bear that a unit of a sliding window fades as one ends.
	smaller []string
	asIs    bool   // not even the test itself is a trusted proxy
	file    string // in place of the sample
	outage  bool   // ends Redis, and so needs one of its own
}

var lineClaims = []lineClaim{
	{line: "version:", claim: "another version changes nothing, and an edit takes effect", run: versionIsRead,
		smaller: []string{"sliding_window_counter", "sliding_window_log"}},
	{line: "proxies:", claim: "the client is who the proxies say", run: proxiesAreBelieved,
		smaller: []string{"sliding_window_counter", "sliding_window_log"}},
	{line: "proxies:", claim: "nobody else is believed", run: strangersAreNot, asIs: true,
		smaller: []string{"sliding_window_counter", "sliding_window_log"}},
	{line: "ban:", claim: "a network is refused before anything else", run: networkIsBanned},
	{line: "ban:", claim: "a key is refused wherever it comes from", run: keyIsBanned,
		smaller: []string{"keys: []", `keys: ["user:mallory"]`}},
	{line: "ban:", claim: "a file has more of them", run: fileIsBanned},
	{line: "allow:", claim: "a network is never limited", run: networkIsAllowed,
		smaller: []string{"10_000/s", "1/h sliding_log"}},
	{line: "allow:", claim: "a route is never limited", run: routeIsAllowed,
		smaller: []string{"10_000/s", "1/h sliding_log"}},
	{line: "default:", claim: "100 a minute for each address, wherever no endpoint is", run: defaultLimits},
	{line: "global:", claim: "one counter for everybody and everything", run: globalLimits,
		smaller: []string{"10_000/s", "5/h sliding_log"}},
	{line: "free:", claim: "each user on the plan has its limit", run: freeTierLimits,
		smaller: []string{"limit: 100/h", "limit: 3/h sliding_log"}},
	{line: "premium:", claim: "the better plan has the higher limit", run: premiumTierLimits,
		smaller: []string{"limit: 100/h", "limit: 3/h sliding_log", "limit: 10_000/h", "limit: 6/h sliding_log"}},
	{line: `"GET /api/v1/search":`, claim: "a burst of 10, for each user at each address", run: searchLimits},
	{line: `"POST /api/v1/upload":`, claim: "a unit for each MiB begun", run: uploadCosts},
	{line: `"POST /login":`, claim: "5 a minute for each device at each address", run: loginLimits},
	{line: `"POST /login":`, claim: "closed while Redis is down, and only that", run: loginIsClosed, outage: true},
	{line: "escalate:", claim: "the third refusal is a ban, everywhere", run: refusalsBan,
		smaller: []string{"limit: 5/1m", "limit: 5/1m sliding_log"}},
	{line: "escalate:", claim: "the next ban is longer, up to a maximum", run: bansGrow,
		smaller: []string{"ban: 1m, factor: 2, max: 24h", "ban: 50ms, factor: 1000, max: 20s"}},
	{line: `"/beta/*":`, claim: "refuses nothing, says nothing and is logged", run: betaIsInShadow},
	{line: "soft:", claim: "clients are warned from 80% on", run: softWarns,
		smaller: []string{"sliding_window_counter", "sliding_window_log", "limit: 5/1m", "limit: 5/1m sliding_log"}},
}

func TestEveryLineOfTheSampleWorksOnEveryRouterAndStore(t *testing.T) {
	t.Parallel()
	everyLineHasAClaim(t)
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

func everyLineHasAClaim(t *testing.T) {
	t.Helper()
	shown := map[string]bool{}
	for line := range strings.Lines(lineSample(t)) {
		line = strings.TrimSpace(line)
		if strings.HasSuffix(line, ":") {
			continue // what it says is in the lines below it
		}
		has := false
		for _, c := range lineClaims {
			if strings.HasPrefix(line, c.line) {
				has, shown[c.line] = true, true
			}
		}
		require.True(t, has, "nothing shows that this line works: %s", line)
	}
	for _, c := range lineClaims {
		require.True(t, shown[c.line], "the sample has no line that begins with %s", c.line)
	}
}

func lineSample(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "sample.yaml"))
	require.NoError(t, err)
	return string(text)
}

// The claims.

func versionIsRead(t *testing.T, s *lineService) {
	visitor := lineClient{ip: "203.0.113.1"}
	s.passes(t, "GET /news", visitor, 2)
	text := strings.Replace(s.text, "requests: 100", "requests: 50", 1)

	s.edit(t, strings.Replace(text, "version: 1", "version: 2", 1))
	require.ErrorContains(t, s.reloaded(t), "this program reads version 1")
	h := s.passes(t, "GET /news", visitor, 1)
	require.Equal(t, []string{"100", "97"}, []string{h.Get("X-RateLimit-Limit"), h.Get("X-RateLimit-Remaining")})

	s.edit(t, text)
	require.NoError(t, s.reloaded(t))
	h = s.passes(t, "GET /news", visitor, 1)
	require.Equal(t, []string{"50", "46"}, []string{h.Get("X-RateLimit-Limit"), h.Get("X-RateLimit-Remaining")},
		"what was used stays used")
}

func proxiesAreBelieved(t *testing.T, s *lineService) {
	left := func(forwarded string) string {
		return s.passes(t, "GET /news", lineClient{ip: forwarded}, 1).Get("X-RateLimit-Remaining")
	}
	require.Equal(t, "99", left("203.0.113.1"))
	require.Equal(t, "98", left("203.0.113.1, 10.0.0.9"), "through one more proxy")
	require.Equal(t, "97", left("192.0.2.5, 203.0.113.1, 10.0.0.9"), "whatever the client claims to be")
	require.Equal(t, "99", left("203.0.113.2, 10.0.0.9"), "another client")
	require.Equal(t, "98", left("198.51.100.7, 203.0.113.2"), "who is not banned for such a claim")
}

func strangersAreNot(t *testing.T, s *lineService) {
	for i, claimed := range []string{"203.0.113.1", "203.0.113.2", "198.51.100.7", "10.0.0.9"} {
		h := s.passes(t, "GET /news", lineClient{ip: claimed}, 1)
		require.Equal(t, strconv.Itoa(99-i), h.Get("X-RateLimit-Remaining"), "the client is the peer, not %s", claimed)
	}
}

func networkIsBanned(t *testing.T, s *lineService) {
	for _, ip := range []string{"198.51.100.0", "198.51.100.255", "198.51.100.7, 10.0.0.9", "203.0.113.1, 198.51.100.7", "::ffff:198.51.100.7"} {
		s.isBanned(t, "GET /news", lineClient{ip: ip})
	}
	for _, request := range []string{"GET /healthz", "POST /login", "GET /beta/search", "GET /nowhere"} {
		s.isBanned(t, request, lineClient{ip: "198.51.100.7"})
	}
	s.passes(t, "GET /news", lineClient{ip: "198.51.101.0"}, 1)
}

func keyIsBanned(t *testing.T, s *lineService) {
	for _, ip := range []string{"203.0.113.1", "203.0.113.2", "10.0.0.9"} {
		s.isBanned(t, "GET /news", lineClient{ip: ip, user: "mallory"})
		s.passes(t, "GET /news", lineClient{ip: ip, user: "carla"}, 1)
	}
	s.isBanned(t, "GET /healthz", lineClient{ip: "203.0.113.1", user: "mallory"})
}

func fileIsBanned(t *testing.T, s *lineService) {
	s.isBanned(t, "GET /news", lineClient{ip: "203.0.113.66"})
	s.isBanned(t, "GET /news", lineClient{ip: "192.0.2.200"})
	s.isBanned(t, "GET /news", lineClient{ip: "2001:db8:bad::1"})
	s.isBanned(t, "GET /news", lineClient{ip: "203.0.113.1", user: "eve"})
	s.passes(t, "GET /news", lineClient{ip: "203.0.113.67"}, 1)
	s.passes(t, "GET /news", lineClient{ip: "192.0.2.127"}, 1)
	s.passes(t, "GET /news", lineClient{ip: "2001:db8:bae::1"}, 1)
}

func networkIsAllowed(t *testing.T, s *lineService) {
	for _, request := range []string{"GET /news", "POST /login", "GET /api/v1/search"} {
		for _, ip := range []string{"10.0.0.0", "10.255.255.255"} {
			require.Empty(t, rateFields(s.passes(t, request, lineClient{ip: ip, user: "finn", tier: "free"}, 4)))
		}
	}
	neighbour := lineClient{ip: "11.0.0.0"}
	s.passes(t, "GET /news", neighbour, 1)
	s.refuses(t, "GET /news", neighbour)
}

func routeIsAllowed(t *testing.T, s *lineService) {
	visitor := lineClient{ip: "203.0.113.1"}
	require.Empty(t, rateFields(s.passes(t, "GET /healthz", visitor, 4)))
	s.passes(t, "GET /news", visitor, 1)
	s.refuses(t, "GET /news", visitor)
	require.Empty(t, rateFields(s.passes(t, "GET /healthz", visitor, 4)))
}

func defaultLimits(t *testing.T, s *lineService) {
	visitor := lineClient{ip: "203.0.113.1"}
	s.passes(t, "GET /news", visitor, 50)
	require.Equal(t, http.StatusNotFound, s.ask(t, "GET /nowhere", visitor).StatusCode)
	h := s.exhausts(t, "GET /nowhere", visitor, lineLimit{49, 100, time.Minute})
	require.Equal(t, "100", h.Get("X-RateLimit-Limit"))
	require.Contains(t, h.Get("RateLimit-Policy"), `"default";q=100;w=60`)
	retryAfter(t, h, 2*time.Minute)
	s.passes(t, "GET /news", lineClient{ip: "203.0.113.2"}, 1)
	s.passes(t, "GET /api/v1/search", visitor, 1)
}

func globalLimits(t *testing.T, s *lineService) {
	for i, request := range []string{"GET /news", "POST /login", "GET /api/v1/search", "GET /beta/search", "GET /news"} {
		h := s.passes(t, request, lineClient{ip: fmt.Sprintf("203.0.113.%d", i)}, 1)
		require.Contains(t, h.Get("RateLimit"), fmt.Sprintf(`"global";r=%d`, 4-i))
	}
	h := s.refuses(t, "GET /beta/search", lineClient{ip: "203.0.113.9", user: "carla", tier: "premium"})
	require.Equal(t, "5", h.Get("X-RateLimit-Limit"))
	retryAfter(t, h, 2*time.Hour)
}

func freeTierLimits(t *testing.T, s *lineService) {
	s.tierLimits(t, "free", lineLimit{3, 3, time.Hour})
}

func premiumTierLimits(t *testing.T, s *lineService) {
	s.tierLimits(t, "premium", lineLimit{6, 6, time.Hour})
}

func (s *lineService) tierLimits(t *testing.T, tier string, l lineLimit) {
	home := lineClient{ip: "203.0.113.1", user: "finn", tier: tier}
	away := lineClient{ip: "203.0.113.2", user: "finn", tier: tier}
	s.exhausts(t, "GET /news", home, l)
	h := s.refuses(t, "GET /api/v1/search", away)
	require.Equal(t, strconv.Itoa(l.now), h.Get("X-RateLimit-Limit"))
	require.Contains(t, h.Get("RateLimit-Policy"), fmt.Sprintf(`"tier:%s";q=%d;w=3600`, tier, l.now))
	s.passes(t, "GET /news", lineClient{ip: "203.0.113.1", user: "fay", tier: tier}, 1)
	s.passes(t, "GET /news", lineClient{ip: "203.0.113.1", user: "finn"}, l.now+2) // in no tier
	s.passes(t, "GET /news", lineClient{ip: "203.0.113.1", user: "finn", tier: "unheard of"}, 1)
}

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

func loginLimits(t *testing.T, s *lineService) {
	phone := lineClient{ip: "203.0.113.1", device: "phone"}
	h := s.exhausts(t, "POST /login", phone, lineLimit{5, 5, time.Minute})
	require.Equal(t, "5", h.Get("X-RateLimit-Limit"))
	require.Contains(t, h.Get("RateLimit-Policy"), `"POST /login";q=5;w=60`)
	retryAfter(t, h, 2*time.Minute)
	for _, other := range []lineClient{{ip: "203.0.113.2", device: "phone"}, {ip: "203.0.113.1", device: "laptop"}, {ip: "203.0.113.1"}} {
		h := s.passes(t, "POST /login", other, 1)
		require.Equal(t, "4", h.Get("X-RateLimit-Remaining"), "%+v is somebody else", other)
	}
	s.passes(t, "GET /login", phone, 6) // a form to fill in is not the attempt
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

func bansGrow(t *testing.T, s *lineService) {
	phone := lineClient{ip: "203.0.113.1", device: "phone"}
	refused, left := 0, time.Duration(0)
	for began := time.Now(); left <= time.Second; {
		require.Less(t, time.Since(began), 30*time.Second, "there was no longer ban")
		switch response := s.ask(t, "POST /login", phone); response.StatusCode {
		case http.StatusTooManyRequests:
			refused++
		case http.StatusForbidden:
			left = retryAfter(t, response.Header, 20*time.Second)
		}
	}
	require.GreaterOrEqual(t, refused, 6, "three for each ban")
	require.Greater(t, left, 10*time.Second, "20 seconds, less what this test took")
}

func betaIsInShadow(t *testing.T, s *lineService) {
	h := s.passes(t, "GET /beta/search", lineClient{ip: "203.0.113.1"}, 110) // more than the default's 100
	require.NotContains(t, strings.Join(rateFields(h), "\n"), "beta")
	require.Equal(t, "10000", h.Get("X-RateLimit-Limit"), "of the global rule, the only one that means it")
	require.Contains(t, s.log.String(), `"code":"weir-shadow"`)
	require.Contains(t, s.log.String(), `"rule":"/beta/*"`)
}

func softWarns(t *testing.T, s *lineService) {
	visitor := lineClient{ip: "203.0.113.1"}
	var warnings []string
	for range 5 {
		warnings = append(warnings, s.passes(t, "POST /login", visitor, 1).Get("X-RateLimit-Warning"))
	}
	require.Equal(t, []string{"", "", "", `"POST /login";r=1;q=5`, `"POST /login";r=0;q=5`}, warnings)
	require.Empty(t, s.passes(t, "GET /news", visitor, 79).Get("X-RateLimit-Warning"))
	require.Equal(t, `"default";r=20;q=100`, s.passes(t, "GET /news", visitor, 1).Get("X-RateLimit-Warning"))
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
	if !c.asIs && c.file == "" {
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
		Config:   middleware.Config{Store: b.store, Bans: b.bans, Logger: slog.New(slog.NewJSONHandler(s.log, nil))},
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

// lineHandler answers the status that it is asked for, settles what it is told, and waits
// for what it is to be held by.
func lineHandler(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if held, ok := lineHeld.Load(query.Get("held")); ok {
		held.(func())()
	}
	if text := query.Get("settle"); text != "" {
		units, err := strconv.ParseInt(text, 10, 64)
		if err = errors.Join(err, middleware.Settle(r.Context(), "tokens", units)); err != nil {
			http.Error(w, err.Error(), http.StatusTeapot)
			return
		}
	}
	if status, err := strconv.Atoi(query.Get("status")); err == nil {
		w.WriteHeader(status)
	}
	_, _ = io.WriteString(w, "hello\n")
}

// lineHeld are what handlers wait for, by name.
var lineHeld sync.Map

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
