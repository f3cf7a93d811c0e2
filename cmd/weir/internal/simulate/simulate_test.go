package simulate

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/internal/phase"
	madeup "github.com/weirgo/weir/internal/traffic"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// files are rules with fields that madeUp does not write. They meet made up traffic.
var files = map[string]string{
	"order": `
global: {limit: 40/10s, key: global}
allow: {cidrs: [203.0.113.1], routes: ["GET /static/*"]}
ban: {cidrs: [203.0.113.2, "2001:db8:0:7::/64"], keys: ["user:3"]}
endpoints:
  "GET /articles/{id}": {limit: 6/1m, key: ip}
  "POST /login": {limit: 10/1m, key: [ip, "query:none"], no_key: skip}
  "/static/*": 4/1s
default: 5/1m`,
	"path": `
endpoints:
  "GET /articles/{id}": {limit: 4/1h, key: "path:id"}
default: {limit: 50/1h, key: route}`,
	"costs": `
global: {limit: 3000/1m, cost: {header: Content-Length, per: 10, max: 400}, key: global}
endpoints:
  "POST /login": {limit: 100/1m, cost: 5}
  "GET /articles/{id}": {limit: 50/1m burst 60, cost: {header: X-Cost, missing: 2}}
default: 60/1m`,
	"proxies": `
proxies: {trusted: [203.0.113.0/24]}
default: {limit: 5/1m, escalate: {after: 5, within: 10m, ban: 5m}}`,
	"keys": `
endpoints:
  "GET /articles/{id}": {limit: 5/1m, key: fingerprint}
  "POST /login": {limit: 30/1m, key: [ip, "cookie:session", tenant]}
  "POST /search": {limit: 3/1m, key: "apikey:X-Key|host"}
default: {limit: 60/1m, key: [method, "host", ip]}`,
	"places in shadow": `
global: {concurrency: 1, mode: shadow, name: all, key: global}
default: {concurrency: 1, escalate: {after: 3, within: 10m, ban: 1m}}`,
	"the calendar": `
endpoints:
  "POST /login": {limit: 25 monthly}
  "/static/*": {limits: [5/1m, 40 daily Europe/Berlin], counts: "!5xx"}
default: {limit: 12 weekly America/New_York}`,
	"overload": `
overload: {priority: [premium], max_wait: 10ms}
default: 9/1m`,
	"hosts": `
endpoints:
  "example.org/*": 10/1m
  "*.example.org/*": {limit: 20/1m, key: host}
  "POST b.example.org/login": 3/1m
default: 2/1s`,
}

// routes are those of the service, beside what a file names.
var routes = []string{"GET /articles/{id}", "/static/{file...}", "POST /search", "POST /login"}

var headers = []string{"X-Device", "X-Cost", "X-Key", "Content-Length", "cookie:session", "key:tenant", "X-Forwarded-For", "User-Agent"}

// generate makes up what a log says about n requests to a website.
func generate(seed uint64, n int) (entries []accesslog.Entry) {
	for _, r := range madeup.Generate(seed, n) {
		entries = append(entries, accesslog.Entry{
			At: r.At, Client: r.Client, Method: r.Method, Target: r.Target, Status: http.StatusOK,
			Headers: []string{"", "", "", "", "", "", "", r.UserAgent},
		})
	}
	return entries
}

// traffic is made up, with what else a log may say.
func traffic(n int) []accesslog.Entry {
	entries := generate(3, n)
	for i := range entries {
		e := &entries[i]
		if i > 0 { // what happens in the same moment, a service may do in any order
			e.At = max(e.At, entries[i-1].At+1)
		}
		h := fnv.New32a()
		_, _ = h.Write([]byte(e.Client + e.Target))
		say := h.Sum32()
		value := func(bits uint32, format string) string {
			if say>>bits%3 == 0 {
				return ""
			}
			return fmt.Sprintf(format, say>>bits%7)
		}
		e.User = value(1, "%d")
		e.Status = []int{200, 200, 204, 401, 403, 500}[(i*7+i/5)%6]
		if e.Took = time.Duration(say>>2%3) * time.Duration(i%800) * time.Millisecond; e.Took > 0 {
			e.Took += time.Microsecond // so that none ends when another begins
		}
		e.Tier = []string{"", "free", "premium", "other"}[say>>4%4]
		e.Host = []string{"example.org", "a.example.org", "b.example.org:8080", "other.example"}[say>>6%4]
		e.Headers = []string{value(8, "d%d"), value(9, "%d"), value(10, "k%d"), value(11, "%d00"), value(12, "s%d"), value(13, "t%d"), "", e.Headers[7]}
		if strings.HasPrefix(e.Client, "203.0.113.") {
			e.Headers[6] = value(14, "198.51.100.%d")
		}
	}
	return entries
}

func tenant(r *http.Request) (string, error) {
	if value := r.Header.Get("X-Tenant"); value != "" {
		return "tenant:" + value, nil
	}
	return "", keyfunc.ErrNoKey
}

func TestASimulationIsWhatAServiceDecidesRequestByRequest(t *testing.T) {
	entries := traffic(600)
	for name, text := range files {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			phase.Test(t, func(t *testing.T) {
				refused := compare(t, "version: 1\n"+text, fromNow(entries))
				require.Positive(t, refused, "some are refused, or this says nothing")
			})
		})
	}
}

func TestConcurrencyIsNamedAndRefusesNothingWithoutDurations(t *testing.T) {
	tiered := middleware.Rule{Name: "tiered", Limit: limiter.PerMinute(3), Key: keyfunc.IP()}
	tiered.Tiers = middleware.Tiers{"free": limiter.All(tiered.Limit, limiter.AtOnce(1).Queue(1, time.Second))}
	alone := middleware.Rule{Name: "alone", Limit: limiter.AtOnce(1), Key: keyfunc.IP()}
	config := middleware.Config{
		Bans:  middleware.Bans{List: NewBans(), Keys: []keyfunc.Func{keyfunc.IP()}},
		Rules: []middleware.Rule{alone, tiered},
	}
	s, err := New(config, Options{})
	require.NoError(t, err)
	require.Equal(t, []string{"alone", "tiered"}, s.Bounded())
	require.Equal(t, []string{"tiered"}, s.Unqueued())
	_, slots, err := limiter.Split(tiered.Tiers["free"])
	require.NoError(t, err)
	require.Equal(t, 1, slots.Waiting, "the caller's rules stay as they are")
	for i, want := range []bool{true, true, true, false} {
		d := s.Do(&accesslog.Entry{Client: "192.0.2.1", Method: "GET", Target: "/", Tier: "free"}, 1e15+int64(i))
		require.Equal(t, want, d.Passed(), i)
	}
}

// A seen is what the client of a gateway sees.
type seen struct {
	status                int
	retryAfter, remaining string
}

func seenIn(status int, h http.Header) seen {
	return seen{status, h.Get("Retry-After"), h.Get("X-RateLimit-Remaining")}
}

func TestServeAnswersAsAGatewayDoes(t *testing.T) {
	all := maps.Clone(files)
	all["settled"] = `default: {limits: [5/1m, 40/1h], key: ip, cost: {header: X-Cost, settle: true}, concurrency: 1}`
	entries := traffic(400)
	for name, text := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			phase.Test(t, func(t *testing.T) {
				entries := fromNow(entries)
				load := func(o rules.Options) *rules.Rules {
					o.Keys, o.Overload = map[string]keyfunc.Func{"tenant": tenant}, roomy
					loaded, err := rules.Parse([]byte("version: 1\n"+text), o)
					require.NoError(t, err)
					return loaded
				}
				handler := func(e *accesslog.Entry, takes time.Duration) http.HandlerFunc {
					return func(w http.ResponseWriter, r *http.Request) {
						_ = middleware.Settle(r.Context(), "default", 2) // of other rules it is an error
						time.Sleep(takes)
						w.WriteHeader(e.Status)
					}
				}
				limits := middleware.Must(middleware.New(load(rules.Options{}).Config()))
				want, answered := make([]seen, len(entries)), sync.WaitGroup{}
				for i := range entries {
					e := &entries[i]
					time.Sleep(time.Until(e.Time()))
					answered.Go(func() {
						w := httptest.NewRecorder()
						limits.Gateway(handler(e, e.Took), false).ServeHTTP(w, request(t, e))
						want[i] = seenIn(w.Code, w.Header())
					})
					synctest.Wait()
				}
				answered.Wait()

				of := load(rules.Options{Config: middleware.Config{Bans: middleware.Bans{List: NewBans()}}})
				s, err := New(of.Config(), Options{Answers: true})
				require.NoError(t, err)
				defer s.Close()
				refused := 0
				for i := range entries {
					e := &entries[i]
					d, h := s.Serve(request(t, e), e.At, e.Took, handler(e, 0))
					got := seenIn(e.Status, h)
					if !d.Passed() {
						got.status = d.Refusal.Status
						refused++
					}
					require.Equal(t, want[i], got, "request %d, %+v", i, e)
				}
				require.Positive(t, refused)
			})
		})
	}
}

// fromNow is the same traffic, which begins now.
func fromNow(entries []accesslog.Entry) []accesslog.Entry {
	entries = slices.Clone(entries)
	later := time.Now().UnixMicro() - entries[0].At
	for i := range entries {
		entries[i].At += later
	}
	return entries
}

// An answer is what a client, and an observer, see of a decision.
type answer struct {
	Outcome    middleware.Outcome
	Status     int
	Rule, Tier string
	RetryAfter time.Duration
	Delay      time.Duration
	Soft       bool
	Rules      []middleware.RuleResult
}

// compare holds a simulation to what a service answers, and tells how many that refused.
func compare(t *testing.T, text string, entries []accesslog.Entry) (refused int) {
	service := serve(t, text)
	want := make([]answer, len(entries))
	var answered sync.WaitGroup
	for i := range entries {
		e := &entries[i]
		time.Sleep(time.Until(e.Time()))
		want[i].Outcome = middleware.OutcomeAllowed
		answered.Go(func() { service(e, &want[i]) })
		synctest.Wait()
	}
	answered.Wait()

	simulation := simulate(t, text)
	for i := range entries {
		d := simulation.Do(&entries[i], entries[i].At)
		got := answer{d.Outcome, d.Refusal.Status, d.Refusal.Rule, d.Refusal.Tier, d.Refusal.RetryAfter, d.Delay, d.Soft, nil}
		for _, r := range d.Rules {
			got.Rules = append(got.Rules, told(r))
		}
		require.Equal(t, want[i], got, "request %d, %+v", i, entries[i])
		if got.Status != 0 {
			refused++
		}
	}
	return refused
}

// told is a result without what is no promise between stores.
func told(r middleware.RuleResult) middleware.RuleResult {
	rule := *r.Rule
	r.Rule = &rule
	r.Receipt.At, r.Concurrent.Receipt.At = 0, 0
	r.Limits = slices.Clone(r.Limits)
	for i := range r.Limits {
		r.Limits[i].Receipt.At = 0
	}
	return r
}

// roomy makes an overload limit that has room for all, as it is for a service that is not loaded.
func roomy(middleware.OverloadOptions) (middleware.Overload, error) { return room{}, nil }

type room struct{}

func (room) Admit(*http.Request) (middleware.Slot, time.Duration) { return room{}, 0 }
func (room) Waits(bool)                                           {}
func (room) Streams(bool)                                         {}
func (room) Leave()                                               {}

// simulate is the simulation of a file.
func simulate(t testing.TB, text string) *Simulation {
	loaded, err := rules.Parse([]byte(text), rules.Options{
		Keys:     map[string]keyfunc.Func{"tenant": Key("tenant")},
		Config:   middleware.Config{Bans: middleware.Bans{List: NewBans()}},
		Overload: roomy,
	})
	require.NoError(t, err)
	s, err := New(loaded.Config(), Options{Routes: append(loaded.Routes(), routes...), ServeMux: strings.Contains(text, "key: route"), Headers: headers})
	require.NoError(t, err)
	return s
}

// serve is a service with the file, as people write it, which notes what it answers.
func serve(t *testing.T, text string) func(*accesslog.Entry, *answer) {
	loaded, err := rules.Parse([]byte(text), rules.Options{Keys: map[string]keyfunc.Func{"tenant": tenant}, Overload: roomy})
	require.NoError(t, err)
	config := loaded.Config()
	config.Logger = slog.New(slog.DiscardHandler)
	config.Observer = observer{}
	config.Refusal.Answer = func(w http.ResponseWriter, r *http.Request, result middleware.Result) {
		got := answerTo(r)
		got.Status, got.Rule, got.Tier, got.RetryAfter = result.Status, result.Rule, result.Tier, result.RetryAfter
		warned(w, got)
		w.WriteHeader(result.Status)
	}
	limits, err := middleware.New(config)
	require.NoError(t, err)
	mux := http.NewServeMux()
	for _, route := range routes {
		mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
			e := r.Context().Value(entryKey{}).(*accesslog.Entry)
			warned(w, answerTo(r))
			time.Sleep(e.Took)
			w.WriteHeader(e.Status)
		})
	}
	handler := limits.Handler(mux)
	return func(e *accesslog.Entry, got *answer) {
		r := request(t, e)
		ctx := context.WithValue(context.WithValue(r.Context(), entryKey{}, e), answerKey{}, got)
		handler.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
	}
}

// request is an entry as a server receives it.
func request(t *testing.T, e *accesslog.Entry) *http.Request {
	r := httptest.NewRequest(e.Method, e.Target, nil)
	r.Host, r.RemoteAddr, r.ContentLength = e.Host, net.JoinHostPort(e.Client, "4711"), -1
	for name, value := range map[string]string{
		"User-Agent": e.Headers[7], "X-Forwarded-For": e.Headers[6], "X-Device": e.Headers[0], "X-Cost": e.Headers[1], "X-Key": e.Headers[2], "X-Tenant": e.Headers[5],
	} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	if length := e.Headers[3]; length != "" {
		_, err := fmt.Sscan(length, &r.ContentLength)
		require.NoError(t, err)
	}
	if session := e.Headers[4]; session != "" {
		r.AddCookie(&http.Cookie{Name: "session", Value: session})
	}
	ctx := r.Context()
	if e.Tier != "" {
		ctx = middleware.WithTier(ctx, e.Tier)
	}
	if e.User != "" {
		ctx = keyfunc.WithUser(ctx, e.User)
	}
	return r.WithContext(ctx)
}

// warned notes whether a response warns that a limit is near.
func warned(w http.ResponseWriter, got *answer) {
	if w.Header().Get("X-RateLimit-Warning") != "" {
		got.Soft = true
	}
}

type (
	entryKey  struct{}
	answerKey struct{}
)

func answerTo(r *http.Request) *answer { return r.Context().Value(answerKey{}).(*answer) }

type observer struct{}

func (observer) Observe(seen *middleware.Observation) {
	got := answerTo(seen.Request)
	got.Outcome = seen.Outcome
	for _, r := range seen.Rules {
		for _, d := range append(r.Limits[:len(r.Limits):len(r.Limits)], r.Decision) {
			if r.Rule.Mode != middleware.Shadow {
				got.Delay = max(got.Delay, d.Delay)
			}
		}
		got.Rules = append(got.Rules, told(r))
	}
}

func TestARuleThatATallyDoesNotKnowIsCountedByItself(t *testing.T) {
	known := middleware.RuleInfo{Name: "known", Limit: limiter.PerHour(1)}
	further := middleware.RuleInfo{Name: "further", Limit: limiter.PerHour(2)}
	tally := NewTally([]middleware.RuleInfo{known})
	tally.Add(&accesslog.Entry{}, 0, &Decision{Outcome: middleware.OutcomeAllowed, Rules: []middleware.RuleResult{{Rule: &further}}})
	rows := tally.Summary(1, func(client string) string { return client }).Rules
	require.Len(t, rows, 2)
	require.Zero(t, rows[0].Asked, "known")
	require.Equal(t, "further", rows[1].Rule)
	require.EqualValues(t, 1, rows[1].Asked)
}
