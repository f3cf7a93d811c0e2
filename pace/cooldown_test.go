package pace_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/pace"
)

// fleet are the transports of several processes.
func fleet(t *testing.T, n int, base http.RoundTripper, o pace.Options) []*pace.Transport {
	t.Helper()
	store := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
	o.Store, o.Cooldowns = store, bans.Must(bans.New(bans.Options{}))
	var all []*pace.Transport
	for range n {
		all = append(all, newTransport(t, base, o))
	}
	return all
}

// From one refusal on, no process sends anything, until the server wants requests again. Then
// all that wait leave evenly.
func TestARefusalIsACooldownForTheFleet(t *testing.T) {
	const gemini = `{"error": {"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "58s"}]}}`
	for name, c := range map[string]struct {
		status int
		fields []string
		body   string
		wait   time.Duration
	}{
		"Retry-After":            {429, []string{"Retry-After", "30"}, "body", 30 * time.Second},
		"milliseconds":           {429, []string{"Retry-After-Ms", "1500"}, "", 1500 * time.Millisecond},
		"an unavailable server":  {503, []string{"Retry-After", "5"}, "", 5 * time.Second},
		"an overloaded one":      {529, []string{"Retry-After", "7"}, "", 7 * time.Second},
		"a bot's ban":            {418, []string{"Retry-After", "120"}, "", 2 * time.Minute},
		"a quota used up":        {429, []string{"X-Ratelimit-Remaining-Requests", "0", "X-Ratelimit-Reset-Requests", "6m0s"}, "", 6 * time.Minute},
		"what the body tells":    {429, []string{"Content-Type", "application/json; charset=UTF-8"}, gemini, 58 * time.Second},
		"nothing":                {429, nil, "", time.Second},
		"a long wait is a day":   {429, []string{"Retry-After", "700000"}, "", 24 * time.Hour},
		"a served one, used up":  {200, []string{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "40"}, "", 40 * time.Second},
		"a 404 that is the last": {404, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "40"}, "", 40 * time.Second},
		"a far reset is a day":   {200, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "700000"}, "", 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(func(_ *http.Request, n int) *http.Response {
					if n > 1 {
						return respond(200)
					}
					resp := respond(c.status, c.fields...)
					resp.Body = io.NopCloser(strings.NewReader(c.body))
					return resp
				})
				all := fleet(t, 3, s, pace.Options{Rules: rules(limiter.PerSecond(10)), MaxWait: 24 * time.Hour})
				resp, err := all[0].RoundTrip(request(t, "GET", api))
				require.NoError(t, err)
				require.Equal(t, c.status, resp.StatusCode, "a refusal is a response")
				text, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, c.body, string(text), "and its body is whole")
				time.Sleep(min(c.wait, 10*time.Second) / 2)
				var group sync.WaitGroup
				for _, process := range all {
					group.Go(func() { require.NoError(t, errors.Join(together(t, 10, process, api)...)) })
				}
				group.Wait()
				for i, at := range s.times()[1:] {
					require.Equal(t, c.wait+time.Duration(i)*100*time.Millisecond, at)
				}
			})
		})
	}
}

func TestARefusalWithoutATimeIsWaitedOutLongerEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(func(_ *http.Request, n int) *http.Response {
			if n == 5 {
				return respond(200)
			}
			return respond(429)
		})
		s.took = 10 * time.Millisecond
		transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerSecond(1000)), MaxWait: time.Hour})
		for range 7 {
			mustGet(t, transport)
		}
		var gaps []time.Duration
		for i, at := range s.times()[1:] {
			gaps = append(gaps, at-s.times()[i]-s.took)
		}
		require.Equal(t, []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 0, 100 * time.Millisecond}, gaps,
			"a request that was served ends the row")
	})
}

// Of many requests that are refused together, one begins the cooldown.
func TestRefusalsThatComeTogetherAreOne(t *testing.T) {
	for name, fields := range map[string][]string{"it is not said for how long": nil, "seconds": {"Retry-After", "2"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(func(*http.Request, int) *http.Response { return respond(429, fields...) })
				s.took = time.Second
				var seen observed
				transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerSecond(100).WithBurst(51)), Observer: &seen})
				require.NoError(t, errors.Join(together(t, 50, transport, api)...))
				began := 0
				for _, o := range seen.all() {
					if o.Cooldown > 0 {
						began++
					}
				}
				require.Equal(t, 1, began)
			})
		})
	}
}

func TestACooldownThatDoesNotFitFailsAtOnce(t *testing.T) {
	for name, status := range map[string]int{"refused": 429, "served, and used up": 200} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(func(*http.Request, int) *http.Response {
					return respond(status, "Retry-After", "60", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "60")
				})
				transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerSecond(10))})
				mustGet(t, transport)
				time.Sleep(10 * time.Second)
				_, err := get(t, transport, api)
				var tooLong *pace.WaitError
				require.ErrorAs(t, err, &tooLong)
				require.Equal(t, pace.WaitError{Rule: "api.example.org", Wait: 50 * time.Second, Cooldown: true}, *tooLong)
				require.NotContains(t, err.Error(), "refused", "it may have been served")
				require.Equal(t, 1, s.count())
			})
		})
	}
}

// Each has a turn after the cooldown: so those that come last know at once that it is too long.
func TestThoseThatWaitForACooldownKnowTheirTurnAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(func(_ *http.Request, n int) *http.Response {
			if n == 1 {
				return respond(429, "Retry-After", "20")
			}
			return respond(200)
		})
		transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerSecond(1))})
		mustGet(t, transport)
		var group sync.WaitGroup
		var mu sync.Mutex
		failed := 0
		for range 20 {
			group.Go(func() {
				began := time.Now()
				if _, err := get(t, transport, api); err != nil {
					require.Zero(t, time.Since(began))
					mu.Lock()
					failed++
					mu.Unlock()
				}
			})
		}
		group.Wait()
		require.Equal(t, 9, failed, "20s to 30s are eleven turns")
	})
}

func TestAKeyIsCooledDownAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(func(r *http.Request, _ int) *http.Response {
			if r.Header.Get("Authorization") == "Bearer a" {
				return respond(429, "Retry-After", "60")
			}
			return respond(200)
		})
		transport := newTransport(t, s, pace.Options{Rules: []pace.Rule{{Host: "api.example.org", Key: pace.Token, Limit: limiter.PerSecond(10)}}})
		for _, c := range []struct {
			token string
			fits  bool
		}{{"Bearer a", true}, {"Bearer a", false}, {"Bearer b", true}, {"", true}, {"", true}, {"Bearer a", false}} {
			r := request(t, "GET", api)
			if c.token != "" {
				r.Header.Set("Authorization", c.token)
			}
			_, err := do(transport, r)
			require.Equal(t, c.fits, err == nil, "%s: %v", c.token, err)
		}
		require.Equal(t, 4, s.count())
	})
}

func TestACooldownOrABanByHandHoldsRequestsBackUntilItIsLifted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(func(*http.Request, int) *http.Response { return respond(429, "Retry-After", "3600") })
		list := bans.Must(bans.New(bans.Options{}))
		transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerSecond(10)), Cooldowns: list})
		require.NoError(t, list.Ban(t.Context(), "pace:api.example.org:", 0))
		_, err := get(t, transport, api)
		var tooLong *pace.WaitError
		require.ErrorAs(t, err, &tooLong)
		require.Equal(t, limiter.Never, tooLong.RetryAfter())
		for sent := range 2 {
			_, err = list.Unban(t.Context(), "pace:api.example.org:")
			require.NoError(t, err)
			mustGet(t, transport)
			require.Equal(t, sent+1, s.count(), "the last response began a cooldown")
		}
	})
}

// An operator lifts the cooldown: requests that wait are sent within a fiftieth of the rest, and the figures know.
func TestACooldownThatIsLiftedHoldsNoRequestBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(refuseFirst("Retry-After", "3600"))
		list := newBans(t)
		transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerSecond(10)), Cooldowns: list, MaxWait: 2 * time.Hour})
		mustGet(t, transport)
		time.AfterFunc(10*time.Minute, func() { _, _ = list.Unban(t.Context(), "pace:api.example.org:") })
		mustGet(t, transport)
		require.LessOrEqual(t, s.times()[1], 11*time.Minute)
		require.False(t, transport.Stats()[0].Until.After(time.Now()))
	})
}

// press has callers of a fleet of three send as much as they may for so long.
func press(t *testing.T, w *weir, callers int, length time.Duration, o pace.Options) {
	all := fleet(t, 3, w, o)
	stop := time.Now().Add(length)
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			for time.Now().Before(stop) {
				if _, err := get(t, all[i%3], api); err != nil {
					time.Sleep(time.Second)
				}
			}
		})
	}
	group.Wait()
	t.Logf("%d served, %d refused", w.served, w.refused)
}

// A server that serves a request and says that nothing remains is not asked before more does, whatever the
// names of its fields are.
func TestAUsedUpQuotaIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		fields []string
		want   time.Duration
	}{
		"its own reset":              {[]string{"X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "30"}, 30 * time.Second},
		"a reset without a name":     {[]string{"X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset", "30"}, 30 * time.Second},
		"a period in its name":       {[]string{"X-RateLimit-Remaining-Tokens-Minute", "0"}, time.Minute},
		"a period of one second":     {[]string{"X-RateLimit-Remaining-Second", "0"}, time.Second},
		"a policy of one second":     {[]string{"RateLimit", `"a";r=0`, "RateLimit-Policy", `"a";q=5;w=1`}, time.Second},
		"a reset in one second":      {[]string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1"}, time.Second},
		"a smaller quota":            {[]string{"X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1"}, time.Second},
		"a quota that we keep to":    {[]string{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1"}, 0},
		"an exact reset":             {[]string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "0.7"}, 700 * time.Millisecond},
		"a policy":                   {[]string{"RateLimit", `"a";r=0`, "RateLimit-Policy", `"a";q=5;w=20`}, 20 * time.Second},
		"a policy with another name": {[]string{"RateLimit", `"a";r=0`, "RateLimit-Policy", `"b";q=5;w=20`}, 20 * time.Second},
		"an older dialect":           {[]string{"RateLimit", `"a";r=0`, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30"}, 30 * time.Second},
		"an instant without seconds": {[]string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "2000-01-01T00:15Z"}, 15 * time.Minute},
		"a reset that has passed":    {[]string{"X-RateLimit-Remaining-Minute", "0", "X-RateLimit-Reset-Minute", "0"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(func(*http.Request, int) *http.Response { return respond(200, c.fields...) })
				transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerSecond(10)), MaxWait: time.Hour})
				mustGet(t, transport)
				mustGet(t, transport)
				require.InDelta(t, c.want.Seconds(), s.times()[1].Seconds(), 0.2)
			})
		})
	}
}

func TestARuleOfSlotsAloneWaitsForAUsedUpSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(func(*http.Request, int) *http.Response {
			return respond(200, "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1")
		})
		transport := newTransport(t, s, pace.Options{Rules: []pace.Rule{{Host: "api.example.org", Limit: limiter.AtOnce(5)}}, MaxWait: time.Hour})
		mustGet(t, transport)
		mustGet(t, transport)
		require.Equal(t, time.Second, s.times()[1])
	})
}

// A rate that the server's own bucket just allows is not slowed down by what it says of itself. Of a sliding window only
// RateLimit says when the next unit comes: X-RateLimit-Reset is the time when all have come.
func TestWeirItselfIsUsedUpAndDoesNotRefuse(t *testing.T) {
	for name, limit := range map[string]limiter.Limit{
		"bucket":         limiter.PerSecond(10).WithBurst(3),
		"sliding window": limiter.PerMinute(600),
		"fixed window":   limiter.PerMinute(600).With(limiter.FixedWindow),
		"sliding log":    limiter.PerSecond(10).With(limiter.SlidingLog),
	} {
		t.Run(name, func(t *testing.T) {
			phase.Test(t, func(t *testing.T) {
				for _, headers := range []middleware.Dialect{middleware.HeadersBoth, middleware.HeadersLegacy} {
					w := newWeir(t, limit, headers)
					press(t, w, 60, 2*time.Minute, pace.Options{Rules: rules(limiter.Limit{Events: limit.Events, Per: limit.Per})})
					require.LessOrEqual(t, w.refused, 1)
					if headers == middleware.HeadersBoth || !strings.HasPrefix(name, "sliding") {
						require.GreaterOrEqual(t, w.served, 1200*98/100)
					}
				}
			})
		})
	}
}

// Others use half of the quota, which only what the server says tells.
func TestWhatOthersUseOfAQuotaIsNotAskedFor(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		w := newWeir(t, limiter.PerMinute(600).With(limiter.FixedWindow), middleware.HeadersLegacy)
		var others sync.WaitGroup
		others.Go(func() {
			for range 5 * 300 {
				w.take()
				time.Sleep(200 * time.Millisecond)
			}
		})
		press(t, w, 30, 5*time.Minute, pace.Options{Rules: rules(limiter.PerMinute(600)), MaxWait: 5 * time.Second})
		others.Wait()
		require.LessOrEqual(t, w.refused, 12)
		require.GreaterOrEqual(t, w.served, 5*300*95/100)
	})
}

func TestALimitThatTheServerLowersIsKeptTo(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		w := newWeir(t, limiter.PerMinute(300), middleware.HeadersBoth)
		press(t, w, 30, 5*time.Minute, pace.Options{Rules: rules(limiter.PerMinute(600)), MaxWait: 5 * time.Second})
		require.LessOrEqual(t, w.refused, 10)
		require.GreaterOrEqual(t, w.served, 5*300*90/100)
	})
}

// A weir is a third party that limits as Weir does.
type weir struct {
	handler         http.Handler
	mu              sync.Mutex
	served, refused int
}

func newWeir(t *testing.T, limit limiter.Limit, send middleware.Dialect) *weir {
	limits := middleware.Must(middleware.New(middleware.Config{
		Headers: middleware.Headers{Send: send}, Rules: []middleware.Rule{{Name: "api", Key: keyfunc.Global, Limit: limit}},
	}))
	return &weir{handler: limits.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))}
}

func (s *weir) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(10 * time.Millisecond)
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequest(r.Method, r.URL.String(), nil))
	resp := w.Result()
	resp.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat)) // as net/http does
	s.mu.Lock()
	defer s.mu.Unlock()
	if resp.StatusCode == 200 {
		s.served++
	} else {
		s.refused++
	}
	return resp, nil
}

// take uses the quota up, as another client.
func (s *weir) take() {
	s.handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", api, nil))
}

// What is in doubt, or about something else, does not slow requests down.
func TestOtherQuotasDoNotSlowRequestsDown(t *testing.T) {
	reset := strconv.FormatInt(time.Date(2000, 1, 1, 0, 0, 50, 0, time.UTC).Unix(), 10)
	for name, c := range map[string]struct {
		fields []string
		slow   bool
	}{
		"the quota itself":                   {[]string{"RateLimit-Policy", `"a";q=60;w=60`, "RateLimit", `"a";r=10;t=50`}, true},
		"the quota itself, of the same size": {[]string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "10", "X-RateLimit-Reset", reset}, true},
		"the tightest, in front":             {[]string{"RateLimit-Policy", `"a";q=60;w=60, "b";q=60;w=60`, "RateLimit", `"a";r=10;t=50, "b";r=55;t=50`}, true},
		"the tightest, behind":               {[]string{"RateLimit-Policy", `"a";q=60;w=60, "b";q=60;w=60`, "RateLimit", `"b";r=55;t=50, "a";r=10;t=50`}, true},
		"more than enough":                   {[]string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "55", "X-RateLimit-Reset", reset}, false},
		"a longer period":                    {[]string{"RateLimit-Policy", `"day";q=100;w=86400`, "RateLimit", `"day";r=10;t=50`}, false},
		"tokens":                             {[]string{"X-Ratelimit-Limit-Tokens", "1000", "X-Ratelimit-Remaining-Tokens", "10", "X-Ratelimit-Reset-Tokens", "50s"}, false},
		"slots":                              {[]string{"RateLimit-Policy", `"a";q=60;w=60;qu="concurrent-requests"`, "RateLimit", `"a";r=0;t=50`}, false},
		"a smaller one, maybe of searches":   {[]string{"X-RateLimit-Limit", "30", "X-RateLimit-Remaining", "5", "X-RateLimit-Reset", reset}, false},
		"far in the future":                  {[]string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "10", "X-RateLimit-Reset", "90000"}, false},
		"in the past":                        {[]string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "10", "X-RateLimit-Reset", "Fri, 31 Dec 1999 23:00:00 GMT"}, false},
		"negative":                           {[]string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "-10", "X-RateLimit-Reset", "50"}, false},
		"NaN":                                {[]string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "NaN", "X-RateLimit-Reset", "50"}, false},
		"used up for a moment":               {[]string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1"}, false},
		"a cache's":                          {[]string{"Age", "50", "X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "50"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(func(_ *http.Request, n int) *http.Response {
					if n == 1 {
						return respond(200, c.fields...)
					}
					return respond(200)
				})
				transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerMinute(60))})
				for range 6 {
					mustGet(t, transport)
				}
				want := 5 * time.Second
				if c.slow {
					want = time.Second + 4*5*time.Second
				}
				got := slices.Max(s.times())
				require.True(t, c.slow && got >= want-5*time.Second || got == want, fmt.Sprint(s.times()))
			})
		})
	}
}

func newBans(t *testing.T) *bans.Memory {
	t.Helper()
	list := bans.Must(bans.New(bans.Options{}))
	return list
}

// refusing is a list that takes no bans.
type refusing struct{ *bans.Memory }

func (*refusing) Ban(context.Context, string, time.Duration, ...bans.Note) error { return bans.ErrFull }

// A slow list is one whose server does not answer.
type slow struct{ *bans.Memory }

func (slow) Ban(ctx context.Context, _ string, _ time.Duration, _ ...bans.Note) error {
	<-ctx.Done()
	return ctx.Err()
}

// A list that does not answer delays a refusal by little, and the cooldown holds meanwhile.
func TestARefusalDoesNotWaitForTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(refuseFirst("Retry-After", "10"))
		transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerSecond(10)), Cooldowns: slow{newBans(t)}})
		mustGet(t, transport)
		require.LessOrEqual(t, time.Since(s.zero), 200*time.Millisecond)
		mustGet(t, transport)
		require.Equal(t, []time.Duration{0, 10 * time.Second}, s.times())
	})
}
