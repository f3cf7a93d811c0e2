package middleware_test

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// retryAfter returns the Retry-After of the answer to a request, or 0 if it passes.
func retryAfter(t testing.TB, h http.Handler, edits ...func(*http.Request)) time.Duration {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, edit := range edits {
		edit(r)
	}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code == http.StatusOK {
		return 0
	}
	seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
	require.NoError(t, err)
	return time.Duration(seconds) * time.Second
}

func shared(limit limiter.Allowance, refusal middleware.Refusal) middleware.Rule {
	return middleware.Rule{Name: "all", Key: keyfunc.Global, Limit: limit, Refusal: refusal}
}

// Clients as go-retryablehttp makes them wait for Retry-After, and give up after five attempts.
func TestPacedClientsReturnOneAfterAnother(t *testing.T) {
	const clients, attempts = 300, 5
	for name, limit := range map[string]limiter.Limit{
		"20 a second, burst 20":  limiter.PerSecond(20).WithBurst(20),
		"20 a second of a clock": limiter.PerSecond(20).With(limiter.FixedWindow),
		"100 in 5 seconds":       {Events: 100, Per: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(most time.Duration) (requests, gaveUp int64) {
				phase.Test(t, func(t *testing.T) {
					h := limited(t, middleware.Config{Rules: []middleware.Rule{shared(limit, middleware.Refusal{Paced: most})}}).
						Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
					var sent, lost atomic.Int64
					var all sync.WaitGroup
					for range clients {
						all.Go(func() {
							for range attempts {
								sent.Add(1)
								time.Sleep(rand.N(20 * time.Millisecond)) // the network
								wait := retryAfter(t, h)
								if wait == 0 {
									return
								}
								time.Sleep(wait)
							}
							lost.Add(1)
						})
					}
					all.Wait()
					requests, gaveUp = sent.Load(), lost.Load()
				})
				return requests, gaveUp
			}
			requests, gaveUp := run(0)
			t.Logf("together: %d requests, %d clients gave up", requests, gaveUp)
			assert.Greater(t, gaveUp, int64(clients/3))
			paced, lost := run(time.Minute)
			t.Logf("paced: %d requests, %d clients gave up", paced, lost)
			assert.Zero(t, lost)
			assert.Less(t, paced, requests*6/10)
		})
	}
}

func TestAPlaceIsTheNextOneAtThePaceOfTheLimit(t *testing.T) {
	const events, per = 10, 10 * time.Minute
	cost := middleware.CostOf(func(r *http.Request) int64 { return r.ContentLength })
	rapid.Check(t, func(rt *rapid.T) {
		most := time.Duration(rapid.IntRange(1, 900).Draw(rt, "paced")) * time.Second
		costs := rapid.SliceOfN(rapid.Int64Range(1, events), 1, 20).Draw(rt, "costs")
		pauses := rapid.SliceOfN(rapid.IntRange(0, 40), len(costs), len(costs)).Draw(rt, "pauses")
		synctest.Test(t, func(t *testing.T) {
			rule := shared(logOf(events, per), middleware.Refusal{Paced: most})
			rule.Cost = cost
			c := middleware.Config{Rules: []middleware.Rule{rule}}
			l := limited(t, c)
			h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			of := func(n int64) func(*http.Request) { return func(r *http.Request) { r.ContentLength = n } }
			require.Zero(t, retryAfter(t, h, of(events)))
			free, last := time.Now().Add(per), time.Time{}
			for i, n := range costs {
				time.Sleep(time.Duration(pauses[i]) * time.Second)
				if !time.Now().Before(free) {
					return
				}
				if last = last.Add(time.Duration(n) * per / events); last.Before(free) {
					last = free
				}
				if bound := free.Add(most); last.After(bound) {
					last = bound
				}
				require.Equal(t, time.Until(last), retryAfter(t, h, of(n)))
				require.NoError(t, l.Reconfigure(c)) // the line stays
			}
		})
	})
}

func TestWhatIsExactStaysExactIfClientsArePaced(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		var result middleware.Result
		var seen recorder
		l := limited(t, middleware.Config{
			Rules: []middleware.Rule{shared(logOf(1, time.Minute), middleware.Refusal{
				Paced: time.Hour, StopAbove: time.Minute,
				Answer: func(_ http.ResponseWriter, _ *http.Request, r middleware.Result) { result = r },
			})},
			Observer: &seen,
		})
		h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for i := range 20 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			if i == 0 {
				continue
			}
			assert.Equal(t, strconv.Itoa(60*i), w.Header().Get("Retry-After"))
			assert.Equal(t, strconv.FormatInt(time.Now().Add(time.Minute+time.Second-1).Unix(), 10), w.Header().Get("X-RateLimit-Reset"))
			assert.Empty(t, w.Header().Get("X-Should-Retry"))
			assert.Equal(t, time.Minute, result.RetryAfter)
			assert.Equal(t, time.Minute, seen.last(t).Rules[0].RetryAfter)
		}
		left, err := l.Peek(t.Context(), "all", "")
		require.NoError(t, err)
		assert.Equal(t, time.Minute, left[0].RetryAfter)
	})
}

func TestPacedWaitsAreAtMost24Days(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		h := limited(t, middleware.Config{Rules: []middleware.Rule{
			shared(logOf(1, 20*day), middleware.Refusal{Paced: 366 * day, Jitter: 100}),
		}}).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		require.Zero(t, retryAfter(t, h))
		for range 30 {
			assert.LessOrEqual(t, retryAfter(t, h), 24*day)
		}
		assert.Equal(t, 24*day, retryAfter(t, h))
	})
}

// One client sends without waiting.
func TestALimiterByClientInFrontKeepsAFloodOutOfTheLine(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		var answers http.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		paced := middleware.Config{Rules: []middleware.Rule{shared(limiter.PerSecond(10).WithBurst(10), middleware.Refusal{Paced: time.Minute})}}
		own := middleware.Config{Rules: []middleware.Rule{{Name: "own", Key: keyfunc.IP(), Limit: logOf(15, time.Hour)}}}
		from := func(host string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = host + ":1" } }
		for name, c := range map[string]struct {
			h    http.Handler
			want time.Duration
		}{
			"alone":    {limited(t, paced).Handler(answers), time.Minute},
			"in front": {limited(t, own).Handler(limited(t, paced).Handler(answers)), time.Second},
		} {
			for range 1000 {
				retryAfter(t, c.h, from("192.0.2.1"))
			}
			assert.InDelta(t, c.want.Seconds(), retryAfter(t, c.h, from("198.51.100.1")).Seconds(), 1, name)
		}
	})
}

func TestPacedNeedsACounterThatAllClientsShare(t *testing.T) {
	rule := func(edit func(*middleware.Rule)) middleware.Config {
		r := shared(limiter.PerSecond(1), middleware.Refusal{Paced: time.Minute})
		edit(&r)
		return middleware.Config{Rules: []middleware.Rule{r}}
	}
	general := rule(func(r *middleware.Rule) { r.Key = keyfunc.IP() })
	general.Rules[0].Refusal, general.Refusal = middleware.Refusal{}, middleware.Refusal{Paced: time.Minute}
	for name, c := range map[string]struct {
		config middleware.Config
		want   string
	}{
		"an address": {rule(func(r *middleware.Rule) { r.Key = keyfunc.IP() }), `Rules[0] "all": Refusal.Paced is 1m0s: it needs`},
		"slots":      {rule(func(r *middleware.Rule) { r.Limit = limiter.AtOnce(1) }), `Refusal.Paced is 1m0s: it needs`},
		"denies":     {rule(func(r *middleware.Rule) { r.Mode = middleware.Deny }), `Refusal.Paced is 1m0s: it needs`},
		"negative":   {rule(func(r *middleware.Rule) { r.Refusal.Paced = -1 }), `Refusal.Paced is -1ns: it must be from 0 to 366 days`},
		"too long":   {rule(func(r *middleware.Rule) { r.Refusal.Paced = 367 * 24 * time.Hour }), `Refusal.Paced is 8808h0m0s: it must be from 0 to 366 days`},
		"of no rule": {general, `Config.Refusal.Paced is 1m0s: no rule has a rate and the key global`},
	} {
		_, err := middleware.New(c.config)
		assert.ErrorContains(t, err, c.want, name)
	}
}

func TestPacedOfAllRulesIsForThoseThatCanHaveIt(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		rules := []middleware.Rule{shared(logOf(1, time.Minute), middleware.Refusal{}), {Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerHour(1000)}}
		h := limited(t, middleware.Config{Rules: rules, Refusal: middleware.Refusal{Paced: time.Hour}}).
			Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for i := range 3 {
			assert.Equal(t, time.Duration(i)*time.Minute, retryAfter(t, h))
		}
	})
}
