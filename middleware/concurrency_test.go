package middleware_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

// exports is a rule of which so many requests of a client are in progress at once.
func exports(most int64) middleware.Rule {
	return middleware.Rule{Name: "exports", Key: keyfunc.IP(), Limit: limiter.AtOnce(most)}
}

// queued is exports, where as many wait for so long.
func queued(most int64, queue int, wait time.Duration) middleware.Rule {
	rule := exports(most)
	rule.Limit = limiter.AtOnce(most).Queue(queue, wait)
	return rule
}

// A desk serves requests one by one, as a test says.
type desk struct {
	l       *middleware.RateLimit
	handler http.Handler
	now     atomic.Int64 // in progress
	peak    atomic.Int64
	leave   chan struct{} // a value for each that is to end
}

func deskOf(t require.TestingT, c middleware.Config) *desk {
	d := &desk{l: limited(t, c), leave: make(chan struct{})}
	d.handler = d.l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := d.now.Add(1)
		for peak := d.peak.Load(); n > peak && !d.peak.CompareAndSwap(peak, n); peak = d.peak.Load() {
		}
		defer d.now.Add(-1)
		<-d.leave
	}))
	return d
}

// begin has a request come, and returns its answer to be.
func (d *desk) begin(edits ...func(*http.Request)) chan *httptest.ResponseRecorder {
	answer := make(chan *httptest.ResponseRecorder, 1)
	r := request(edits...)
	go func() { answer <- serve(d.handler, r) }()
	synctest.Wait()
	return answer
}

// inProgress is how many requests of a key a rule takes to be in progress.
func inProgress(t require.TestingT, l *middleware.RateLimit, rule, key string) int64 {
	found, err := l.Peek(context.Background(), rule, key)
	require.NoError(t, err)
	return found[0].Concurrent.Limit - found[0].Concurrent.Remaining
}

const client = "192.0.2.1"

func TestNoMoreRequestsOfAKeyAreInProgressThanItsRuleSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := outcomesSeen{}
		d := deskOf(t, middleware.Config{Headers: bothHeaders, Rules: []middleware.Rule{exports(2)}, Observer: seen})
		first := d.begin()
		time.Sleep(3 * time.Second)
		second := d.begin()
		assert.EqualValues(t, 2, inProgress(t, d.l, "exports", client))

		w := <-d.begin(header("Accept", "application/problem+json"))
		assert.Equal(t, 429, w.Code)
		assert.Equal(t, `"exports";q=2;qu="concurrent-requests"`, w.Header().Get("RateLimit-Policy"))
		assert.Equal(t, `"exports";r=0`, w.Header().Get("RateLimit"), "when a slot is free is not known")
		assert.Equal(t, "1", w.Header().Get("Retry-After"))
		assert.Empty(t, w.Header().Get("X-RateLimit-Limit"))
		assert.JSONEq(t, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,
			"detail":"2 requests are in progress, and no more are allowed at once. Try again in 1 second.","violated-policies":["exports"]}`, w.Body.String())
		assert.Len(t, d.begin(from("198.51.100.7:1")), 0, "another client's count apart")

		d.leave <- struct{}{} // one of the three
		d.leave <- struct{}{}
		d.leave <- struct{}{}
		for _, answer := range []chan *httptest.ResponseRecorder{first, second} {
			w := <-answer
			assert.Equal(t, 200, w.Code)
			assert.Contains(t, w.Header().Get("RateLimit"), `"exports";r=`)
		}
		synctest.Wait()
		assert.Zero(t, inProgress(t, d.l, "exports", client))
		assert.Equal(t, outcomesSeen{middleware.OutcomeAllowed: 3, middleware.OutcomeRefused: 1}, seen)
	})
}

// A rule that counts all clients together says that the service is busy, and not the client.
func TestConcurrencyOfAllClientsTogetherAnswers503(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deskOf(t, middleware.Config{Rules: []middleware.Rule{{Name: "pool", Key: keyfunc.Global, Limit: limiter.AtOnce(1)}}})
		d.begin()
		w := <-d.begin(from("198.51.100.7:1"), header("Accept", "application/problem+json"))
		assert.Equal(t, 503, w.Code)
		assert.Equal(t, "1", w.Header().Get("Retry-After"))
		assert.Contains(t, w.Body.String(), `"status":503,"detail":"The service is temporarily unable to take this request. Try again in 1 second."`)
		d.leave <- struct{}{}
	})
}

func TestALimitAndConcurrencyAreTakenTogetherOrNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := exports(1)
		rule.Limit, rule.Cost = limiter.All(limiter.PerHour(10), rule.Limit), middleware.Units(2)
		d := deskOf(t, middleware.Config{Headers: bothHeaders, Rules: []middleware.Rule{rule}})
		d.begin()
		w := <-d.begin()
		assert.Equal(t, 429, w.Code)
		assert.Contains(t, w.Body.String(), "A request is in progress, and no more than one is allowed at once.")
		assert.Equal(t, `"exports.concurrent";q=1;qu="concurrent-requests", "exports";q=10;w=3600`, w.Header().Get("RateLimit-Policy"), "that which refused first")
		assert.Equal(t, "8", w.Header().Get("X-RateLimit-Remaining"), "the legacy fields speak of the limit")
		found, err := d.l.Peek(t.Context(), "exports", client)
		require.NoError(t, err)
		assert.True(t, found[0].IsConcurrency(), "it is the tighter one")
		assert.Zero(t, found[0].Binding())
		assert.EqualValues(t, 8, found[0].Limits[0].Remaining)
		d.leave <- struct{}{}
		synctest.Wait()
		for range 4 {
			d.begin()
			d.leave <- struct{}{}
			synctest.Wait()
		}
		w = <-d.begin()
		assert.Equal(t, 429, w.Code)
		assert.Contains(t, w.Body.String(), "Too many requests.")
		assert.Zero(t, inProgress(t, d.l, "exports", client), "the slot of one that the limit refuses is returned")
	})
}

// However a request ends, its slot is returned once, and until then it is held.
func TestASlotIsReturnedOnceHoweverTheRequestEnds(t *testing.T) {
	for name, config := range map[string]middleware.Config{
		"alone":         {},
		"results":       {Results: true},
		"nothing shown": {Headers: middleware.Headers{Send: middleware.HeadersNone}},
		"counts":        {Rules: []middleware.Rule{{Name: "counts", Key: keyfunc.Global, Limit: limiter.PerHour(1000), Counts: middleware.StatusClass(2)}}},
		"overload":      {Overload: roomFor(1000)},
	} {
		t.Run(name, func(t *testing.T) {
			config.Rules = append(slices.Clone(config.Rules), exports(1))
			l := plainly(t, config)
			held := func(do func(http.ResponseWriter, *http.Request)) http.Handler {
				return l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					assert.EqualValues(t, 1, inProgress(t, l, "exports", client), "it is held while the handler runs")
					do(w, r)
				}))
			}
			free := func(how string) {
				t.Helper()
				assert.Zero(t, inProgress(t, l, "exports", client), how)
				assert.Zero(t, l.InProgress()[0].Requests, how)
			}
			serve(held(func(http.ResponseWriter, *http.Request) {}), request())
			free("it returns")
			for _, with := range []any{"a panic", http.ErrAbortHandler} {
				assert.PanicsWithValue(t, with, func() {
					serve(held(func(http.ResponseWriter, *http.Request) { panic(with) }), request())
				})
				free("it panics")
			}
			if config.Headers.Send != middleware.HeadersNone {
				assert.Panics(t, func() { held(nil).ServeHTTP(nil, request()) }, "there is no ResponseWriter")
				free("nothing can be told")
			}

			var wg sync.WaitGroup
			wg.Go(func() {
				serve(held(func(http.ResponseWriter, *http.Request) { runtime.Goexit() }), request())
			})
			wg.Wait()
			free("its goroutine ends")

			r := request()
			ctx, leave := context.WithCancel(r.Context())
			serve(held(func(http.ResponseWriter, *http.Request) {
				leave()
				assert.EqualValues(t, 1, inProgress(t, l, "exports", client), "the handler still works for a client that is gone")
			}), r.WithContext(ctx))
			free("the client leaves")

			refuses := limited(t, middleware.Config{Bans: middleware.Bans{Deny: always}})
			assert.Equal(t, 403, serve(l.Handler(refuses.Handler(noop)), request()).Code)
			free("another limiter refuses it")
			tight := limited(t, middleware.Config{Rules: one})
			serve(tight.Handler(noop), request())
			assert.Equal(t, 429, serve(l.Handler(tight.Handler(noop)), request()).Code)
			free("another limit refuses it")
		})
	}
}

// What comes back of a request's cost is of its limits alone: the slot is one, and returned once.
func TestARequestWhoseCostComesBackReturnsOneSlot(t *testing.T) {
	for name, rule := range map[string]middleware.Rule{
		"settled":                       {Cost: middleware.Reserve(func(*http.Request) int64 { return 10 })},
		"an answer that does not count": {Counts: middleware.Not(middleware.StatusClass(5))},
	} {
		rule.Name, rule.Key, rule.Limit = "tokens", keyfunc.Global, limiter.All(perHour(100), limiter.AtOnce(2))
		l := limited(t, middleware.Config{Logger: quiet, Rules: []middleware.Rule{rule}})
		through(l, func(http.ResponseWriter, *http.Request) { // which holds a slot meanwhile
			for range 3 {
				assert.Equal(t, 500, through(l, func(w http.ResponseWriter, r *http.Request) {
					_ = middleware.Settle(r.Context(), "tokens", 3) // an error of the rule that does not settle
					w.WriteHeader(http.StatusInternalServerError)
				}), name)
				assert.EqualValues(t, 1, inProgress(t, l, "tokens", ""), name)
			}
		})
		assert.Zero(t, inProgress(t, l, "tokens", ""), name)
	}
}

// Over real connections: streams that are aborted, of HTTP/1 and HTTP/2, and one that is taken over.
func TestSlotsOfRealConnectionsAreReturned(t *testing.T) {
	l := limited(t, middleware.Config{Rules: []middleware.Rule{exports(100)}})
	began := make(chan struct{}, 100)
	server := httptest.NewUnstartedServer(l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hijack" {
			conn, _, err := http.NewResponseController(w).Hijack()
			if assert.NoError(t, err) {
				began <- struct{}{}
				_, _ = conn.Read(make([]byte, 1)) // until the client is gone
				conn.Close()
			}
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		began <- struct{}{}
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	})))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	http1 := server.Client().Transport.(*http.Transport).Clone()
	http1.TLSClientConfig.NextProtos, http1.ForceAttemptHTTP2 = []string{"http/1.1"}, false
	http1.Protocols = &http.Protocols{}
	http1.Protocols.SetHTTP1(true)
	defer http1.CloseIdleConnections()

	var cancels []context.CancelFunc
	for _, client := range []*http.Client{server.Client(), {Transport: http1}} {
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			cancels = append(cancels, cancel)
			r, _ := http.NewRequestWithContext(ctx, "GET", server.URL+"/events", nil)
			answer, err := client.Do(r)
			require.NoError(t, err)
			assert.Equal(t, 200, answer.StatusCode)
			defer answer.Body.Close()
			<-began
		}
	}
	plain := httptest.NewServer(server.Config.Handler)
	defer plain.Close()
	conn, err := net.Dial("tcp", plain.Listener.Addr().String())
	require.NoError(t, err)
	fmt.Fprintf(conn, "GET /hijack HTTP/1.1\r\nHost: x\r\n\r\n")
	<-began

	assert.EqualValues(t, 41, inProgress(t, l, "exports", "127.0.0.1"))
	for _, cancel := range cancels {
		cancel()
	}
	conn.Close()
	assert.Eventually(t, func() bool { return inProgress(t, l, "exports", "127.0.0.1") == 0 }, 30*time.Second, time.Millisecond)
}

// As it takes a unit of a limit each time.
func TestARequestTakesASlotEachTimeItMeetsItsRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limited(t, middleware.Config{Rules: []middleware.Rule{queued(2, 1, time.Second)}})
		inner := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			assert.EqualValues(t, 2, inProgress(t, l, "exports", client))
		}))
		assert.Equal(t, 200, serve(l.Handler(inner), request()).Code)
		assert.Equal(t, http.StatusTooManyRequests, serve(l.Handler(l.Handler(inner)), request()).Code, "it does not wait for itself without end")
		assert.Zero(t, inProgress(t, l, "exports", client))
	})
}

func TestRequestsWaitInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deskOf(t, middleware.Config{Rules: []middleware.Rule{queued(1, 3, time.Hour)}})
		answers := []chan *httptest.ResponseRecorder{d.begin()}
		for range 3 {
			answers = append(answers, d.begin())
		}
		assert.Equal(t, []middleware.InProgress{{Rule: d.l.InProgress()[0].Rule, Requests: 1, Waiting: 3}}, d.l.InProgress())
		w := <-d.begin()
		assert.Equal(t, 429, w.Code, "no more wait")
		assert.Equal(t, "4", w.Header().Get("Retry-After"), "three come first")
		for i := range answers {
			time.Sleep(time.Second)
			d.leave <- struct{}{}
			synctest.Wait()
			for j := range answers {
				assert.Len(t, answers[j], map[bool]int{true: 1}[j <= i], "%d after %d", j, i)
			}
		}
		assert.Zero(t, d.l.InProgress()[0].Waiting)
	})
}

func TestWaitingForASlotEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waited []time.Duration
		seen := observer(func(o *middleware.Observation) {
			waited = append(waited, o.Waited)
			assert.Less(t, o.Elapsed, time.Millisecond, "which is no part of the decision's time")
		})
		d := deskOf(t, middleware.Config{Rules: []middleware.Rule{queued(1, 3, 2*time.Second)}, Observer: seen})
		d.begin()
		began := time.Now()
		assert.Equal(t, 429, (<-d.begin()).Code)
		assert.Equal(t, 2*time.Second, time.Since(began), "MaxWait")

		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		assert.Equal(t, 499, (<-d.begin(func(r *http.Request) { *r = *r.WithContext(ctx) })).Code)

		next := d.begin()
		time.Sleep(time.Second)
		d.leave <- struct{}{}
		synctest.Wait()
		d.leave <- struct{}{}
		assert.Equal(t, 200, (<-next).Code)
		assert.Equal(t, []time.Duration{0, 2 * time.Second, time.Second, time.Second}, waited)
		assert.Zero(t, inProgress(t, d.l, "exports", client))
	})
}

// A request that waits for a slot of one rule keeps no slot of another, and is charged nothing.
func TestWhatWaitsHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := middleware.Rule{Name: "all", Key: keyfunc.Global, Limit: limiter.All(limiter.PerHour(3), limiter.AtOnce(2))}
		slow := queued(1, 5, time.Hour)
		slow.Match = middleware.MatchFunc(func(r *http.Request) bool { return r.URL.Path == "/slow" })
		d := deskOf(t, middleware.Config{Rules: []middleware.Rule{all, slow}})
		path := func(p string) func(*http.Request) { return func(r *http.Request) { r.URL.Path = p } }
		d.begin(path("/slow"))
		waits := d.begin(path("/slow"))
		assert.EqualValues(t, 1, inProgress(t, d.l, "all", ""))
		quick := d.begin(path("/quick"))
		assert.EqualValues(t, 2, inProgress(t, d.l, "all", ""), "the other slot is for another request")
		d.leave <- struct{}{}
		synctest.Wait()
		d.leave <- struct{}{}
		synctest.Wait()
		assert.Empty(t, waits)
		if assert.NotEmpty(t, quick) {
			assert.EqualValues(t, 1, d.now.Load())
		}
		w := <-d.begin(path("/quick"))
		assert.Equal(t, 429, w.Code, "the third unit is that of the one that waited")
		d.leave <- struct{}{}
		assert.Equal(t, 200, (<-waits).Code)
	})
}

// A hookedClock is a store whose clock a request reads as it begins to wait.
type hookedClock struct {
	*limiter.Memory
	hook atomic.Pointer[func()] // called once
}

func (c *hookedClock) Now() time.Time {
	if hook := c.hook.Swap(nil); hook != nil {
		(*hook)()
	}
	return time.Now()
}

// The request was not decided on before, as others waited.
func TestARequestIsDecidedOnThoughTheQueueThatItMetIsEmptyByNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, export := queued(1, 2, time.Minute), exports(1)
		pool.Name, export.Match = "pool", middleware.MatchFunc(func(r *http.Request) bool { return r.URL.Path == "/export" })
		store := &hookedClock{Memory: limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))}
		d := deskOf(t, middleware.Config{Store: store, Rules: []middleware.Rule{export, pool}})
		first, second := d.begin(), d.begin()
		leaves := func() {
			d.leave <- struct{}{}
			<-first
			for d.l.InProgress()[1].Waiting > 0 { // until the second waits no more
				runtime.Gosched()
			}
		}
		store.hook.Store(&leaves)
		third := d.begin(func(r *http.Request) { r.URL.Path = "/export" })
		require.Nil(t, store.hook.Load())
		assert.EqualValues(t, 1, d.now.Load(), "in progress")
		d.leave <- struct{}{}
		assert.Equal(t, 200, (<-second).Code)
		synctest.Wait()
		assert.EqualValues(t, 1, d.now.Load())
		assert.EqualValues(t, 1, inProgress(t, d.l, "exports", client))
		assert.EqualValues(t, 1, inProgress(t, d.l, "pool", client))
		d.leave <- struct{}{}
		assert.Equal(t, 200, (<-third).Code)
		assert.Zero(t, inProgress(t, d.l, "pool", client))
	})
}

// Whatever rules requests meet, wherever they wait, give up or panic: no rule has more in
// progress than it says, requests of one key and rule begin in the order in which they came, and
// nothing is left.
func TestNoSlotLeaksWhateverRequestsDo(tt *testing.T) {
	rapid.Check(tt, func(t *rapid.T) {
		type event struct {
			come, hold, patience time.Duration
			rules                int
			panics               bool
		}
		ms := rapid.Map(rapid.IntRange(0, 40), func(n int) time.Duration { return time.Duration(n) * time.Millisecond })
		events := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) event {
			return event{ms.Draw(t, "come"), ms.Draw(t, "hold"), ms.Draw(t, "patience"), rapid.IntRange(1, 7).Draw(t, "rules"), rapid.Bool().Draw(t, "panics")}
		}), 1, 25).Draw(t, "events")
		var rules []middleware.Rule
		var most []int64
		for i := range 3 {
			slots := limiter.AtOnce(rapid.Int64Range(1, 3).Draw(t, "max"))
			if queue := rapid.IntRange(0, 4).Draw(t, "queue"); queue > 0 {
				slots = slots.Queue(queue, 30*time.Millisecond)
			}
			most = append(most, slots.Max)
			rule := middleware.Rule{
				Name: fmt.Sprint(i), Key: keyfunc.Global, Limit: slots,
				Match: middleware.MatchFunc(func(r *http.Request) bool { n, _ := strconv.Atoi(r.Header.Get("Rules")); return n>>i&1 == 1 }),
				Mode:  inShadow(rapid.IntRange(0, 5).Draw(t, "shadow") == 0),
			}
			if rapid.IntRange(0, 2).Draw(t, "limit") == 0 {
				rule.Limit = limiter.All(limiter.PerSecond(50), slots)
			}
			rules = append(rules, rule)
		}
		var wrong []string
		synctest.Test(tt, func(st *testing.T) {
			l := plainly(st, middleware.Config{Logger: quiet, Rules: rules, Results: rapid.Bool().Draw(t, "results")})
			var now [3]atomic.Int64
			h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for i := range rules {
					if rules[i].Match.Matches(r) && rules[i].Mode != middleware.Shadow {
						if n := now[i].Add(1); n > most[i] {
							wrong = append(wrong, fmt.Sprintf("%d of rule %d at once", n, i))
						}
						defer now[i].Add(-1)
					}
				}
				hold, _ := time.ParseDuration(r.Header.Get("Hold"))
				time.Sleep(hold)
				if r.Header.Get("Panics") != "" {
					panic(http.ErrAbortHandler)
				}
			}))
			var wg sync.WaitGroup
			for _, e := range events {
				wg.Go(func() {
					defer func() { _ = recover() }()
					time.Sleep(e.come)
					ctx, cancel := context.WithTimeout(context.Background(), e.patience+time.Microsecond)
					defer cancel()
					r := request(header("Rules", fmt.Sprint(e.rules)), header("Hold", e.hold.String()))
					if e.panics {
						r.Header.Set("Panics", "yes")
					}
					serve(h, r.WithContext(ctx))
				})
			}
			wg.Wait()
			for i, p := range l.InProgress() {
				if n := inProgress(st, l, fmt.Sprint(i), ""); n != 0 || p.Requests != 0 || p.Waiting != 0 {
					wrong = append(wrong, fmt.Sprintf("rule %d: %d slots, %+v are left", i, n, p))
				}
			}
		})
		if len(wrong) > 0 {
			t.Fatal(wrong) // so that rapid says it, also if it cannot repeat it
		}
	})
}

func TestShadowOfConcurrencyRefusesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := queued(1, 5, time.Hour)
		rule.Mode = middleware.Shadow
		var refused int
		d := deskOf(t, middleware.Config{Rules: []middleware.Rule{rule, {Name: "all", Key: keyfunc.Global, Limit: limiter.PerHour(100)}}, Observer: observer(func(o *middleware.Observation) {
			if !o.Rules[0].Allowed {
				refused++
			}
		})})
		for range 3 {
			assert.Empty(t, d.begin())
		}
		assert.Equal(t, 2, refused)
		assert.EqualValues(t, 3, d.now.Load())
		assert.EqualValues(t, 1, inProgress(t, d.l, "exports", client))
		for range 3 {
			d.leave <- struct{}{}
		}
		synctest.Wait()
		assert.Zero(t, inProgress(t, d.l, "exports", client))
	})
}

func TestConcurrencyWarnsAndBans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := exports(4)
		rule.SoftAt = 75
		rule.Escalate = bans.Escalation{After: 3, Within: time.Minute, Ban: time.Hour}
		d := deskOf(t, middleware.Config{Rules: []middleware.Rule{rule}, Bans: middleware.Bans{List: bansOf(t)}})
		for range 4 {
			d.begin()
		}
		for range 3 {
			assert.Equal(t, 429, (<-d.begin()).Code)
		}
		assert.Equal(t, 403, (<-d.begin()).Code)
		for range 4 {
			d.leave <- struct{}{}
		}
		rule = exports(2)
		rule.SoftAt = 50
		w := serve(limited(t, middleware.Config{Rules: []middleware.Rule{rule}}).Handler(noop), request())
		assert.Equal(t, `"exports";r=1;q=2`, w.Header().Get("X-RateLimit-Warning"))
	})
}

// Those in progress stay counted when the rules are changed: one name, one count.
func TestALowerConcurrencyAdmitsNobodyUntilEnoughHaveLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deskOf(t, middleware.Config{Rules: []middleware.Rule{exports(3)}})
		for range 3 {
			d.begin()
		}
		withLimit := queued(2, 1, time.Hour)
		withLimit.Limit = limiter.All(limiter.PerHour(100), withLimit.Limit)
		require.NoError(t, d.l.Reconfigure(middleware.Config{Rules: []middleware.Rule{withLimit}}))
		assert.EqualValues(t, 3, d.l.InProgress()[0].Requests)
		waits := d.begin()
		d.leave <- struct{}{}
		synctest.Wait()
		assert.EqualValues(t, 2, d.now.Load())
		assert.EqualValues(t, 1, d.l.InProgress()[0].Waiting, "two are as many as are allowed now")
		require.NoError(t, d.l.Reconfigure(middleware.Config{Rules: []middleware.Rule{exports(9)}}))
		assert.Empty(t, d.begin(), "a higher one admits at once")
		for range 4 {
			d.leave <- struct{}{}
			synctest.Wait()
		}
		assert.Equal(t, 200, (<-waits).Code)
		assert.Zero(t, inProgress(t, d.l, "exports", client))
	})
}

// Its client is there, and learns why it got none.
func TestARequestWhoseTimeIsUpWhileItWaitsIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refused atomic.Int64
		d := deskOf(t, middleware.Config{Headers: bothHeaders, Rules: []middleware.Rule{queued(1, 2, time.Minute)}, Observer: observer(func(o *middleware.Observation) {
			if o.Outcome == middleware.OutcomeRefused {
				refused.Add(1)
			}
		})})
		first := d.begin()
		briefly := func(r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), time.Second)
			context.AfterFunc(ctx, cancel)
			*r = *r.WithContext(ctx)
		}
		second, third := d.begin(briefly), d.begin(briefly) // which is never asked for
		for _, answer := range []chan *httptest.ResponseRecorder{second, third} {
			w := <-answer
			assert.Equal(t, 429, w.Code)
			assert.NotEmpty(t, w.Header().Get("Retry-After"))
			assert.Equal(t, `"exports";q=1;qu="concurrent-requests"`, w.Header().Get("RateLimit-Policy"))
			assert.Contains(t, w.Body.String(), "concurrency_limit_exceeded")
		}
		assert.EqualValues(t, 2, refused.Load())
		d.leave <- struct{}{}
		<-first
		assert.EqualValues(t, 0, inProgress(t, d.l, "exports", client))
	})
}

func TestAHigherConcurrencyIsForThoseThatWaitToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deskOf(t, middleware.Config{Rules: []middleware.Rule{queued(1, 5, time.Minute)}})
		answers := []chan *httptest.ResponseRecorder{d.begin(), d.begin(), d.begin()}
		assert.EqualValues(t, 1, d.now.Load())
		require.NoError(t, d.l.Reconfigure(middleware.Config{Rules: []middleware.Rule{queued(4, 5, time.Minute)}}))
		synctest.Wait()
		assert.EqualValues(t, 3, d.now.Load(), "none has to leave first")
		answers = append(answers, d.begin(), d.begin())
		assert.EqualValues(t, 4, d.now.Load())

		require.NoError(t, d.l.Reconfigure(middleware.Config{Rules: []middleware.Rule{{Name: "other", Key: keyfunc.Global, Limit: limiter.PerHour(1000)}}}))
		close(d.leave)
		for _, answer := range answers {
			assert.Equal(t, 200, (<-answer).Code)
		}
		require.NoError(t, d.l.Reconfigure(middleware.Config{Rules: []middleware.Rule{queued(4, 5, time.Minute)}}))
		assert.EqualValues(t, 0, inProgress(t, d.l, "exports", client), "also when the rule was gone meanwhile")
	})
}

func TestNobodyWaitsLongerBecauseTheRulesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := configOf(queued(1, 1, time.Second))
		l := limited(t, config)
		ended := make(chan struct{})
		go serve(l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ended })), request())
		synctest.Wait()
		go func() {
			for reload := time.NewTicker(2 * time.Millisecond); ; {
				select {
				case <-reload.C:
					assert.NoError(t, l.Reconfigure(config))
				case <-ended:
					return
				}
			}
		}()
		began := time.Now()
		assert.Equal(t, http.StatusTooManyRequests, serve(l.Handler(ok), request()).Code)
		assert.Equal(t, time.Second, time.Since(began))
		close(ended)
	})
}

// A panic of an observer, or in Config.Overload, comes after the slot was taken.
func TestAPanicOfOthersReleasesTheSlots(t *testing.T) {
	c := roomFor(1)
	panics := observer(func(*middleware.Observation) { panic("boom") })
	for name, config := range map[string]middleware.Config{
		"observer":                {Observer: panics},
		"overload":                {Overload: &panicking{}, Observer: outcomesSeen{}},
		"observer, with overload": {Overload: c, Observer: panics},
	} {
		config.Rules = []middleware.Rule{exports(1)}
		l := limited(t, config)
		assert.Panics(t, func() { serve(l.Handler(noop), request()) }, name)
		assert.Zero(t, inProgress(t, l, "exports", client), name)
	}
	withoutRules := limited(t, middleware.Config{Overload: c, Observer: panics})
	assert.Panics(t, func() { serve(withoutRules.Handler(noop), request()) })
	assert.EqualValues(t, 1, c.free.Load())
}

type panicking struct{}

func (*panicking) Admit(*http.Request) (middleware.Slot, time.Duration) { panic("boom") }

func TestARequestThatIsShedReturnsItsSlot(t *testing.T) {
	l := overloaded(t, roomFor(0), middleware.Config{Rules: []middleware.Rule{exports(1)}})
	assert.Equal(t, 503, serve(l.Handler(noop), request()).Code)
	assert.Zero(t, inProgress(t, l, "exports", client))
}

// A request of a leaky bucket has its slot while it waits for its turn.
func TestASlotIsHeldWhileARequestWaitsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := exports(1)
		rule.Limit = limiter.All(limiter.PerMinute(1).With(limiter.LeakyBucket).WithBurst(5), rule.Limit)
		d := deskOf(t, middleware.Config{Rules: []middleware.Rule{rule}})
		d.begin()
		d.leave <- struct{}{}
		synctest.Wait()
		ctx, leave := context.WithCancel(t.Context())
		turn := d.begin(func(r *http.Request) { *r = *r.WithContext(ctx) })
		assert.EqualValues(t, 1, inProgress(t, d.l, "exports", client))
		assert.Equal(t, 429, (<-d.begin()).Code)
		leave()
		assert.Equal(t, 499, (<-turn).Code)
		assert.Zero(t, inProgress(t, d.l, "exports", client))
	})
}

// plain is a Store without more.
type plain struct{ limiter.Store }

// Else more would be in progress than the rule says for as long as others come.
func TestResetLeavesThoseInProgressTheirSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deskOf(t, middleware.Config{Rules: []middleware.Rule{queued(1, 1, time.Hour)}})
		first := d.begin()
		waits := d.begin()
		require.NoError(t, d.l.Reset(t.Context(), "exports", client))
		synctest.Wait()
		assert.EqualValues(t, 1, d.now.Load())
		d.leave <- struct{}{}
		assert.Equal(t, 200, (<-first).Code)
		synctest.Wait()
		assert.EqualValues(t, 1, d.now.Load())
		d.leave <- struct{}{}
		assert.Equal(t, 200, (<-waits).Code)
		synctest.Wait()
		assert.Zero(t, inProgress(t, d.l, "exports", client))
	})
}

func TestARuleThatChargesAfterwardsTakesItsSlots(t *testing.T) {
	for name, rule := range map[string]middleware.Rule{
		"counts":    {Limit: limiter.All(plenty, limiter.AtOnce(1)), Counts: middleware.Statuses(401).Afterwards()},
		"reserve":   {Limit: limiter.All(plenty, limiter.AtOnce(1)), Counts: middleware.Counts{}.Afterwards(), Cost: middleware.Reserve(nil)},
		"WithLimit": {Limit: plenty, Counts: middleware.Statuses(401).Afterwards()},
	} {
		t.Run(name, func(t *testing.T) {
			rule.Name, rule.Key = "r", keyfunc.Header("X-User")
			l := limited(t, middleware.Config{Rules: []middleware.Rule{rule}})
			ask := func() *http.Request {
				r := request(header("X-User", "ann"))
				ctx, err := middleware.WithLimit(r.Context(), "r", limiter.All(plenty, limiter.AtOnce(1)))
				require.NoError(t, err)
				return r.WithContext(ctx)
			}
			during := 0
			h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				during = serve(l.Handler(ok), ask()).Code
			}))
			assert.Equal(t, 200, serve(h, ask()).Code)
			assert.Equal(t, 429, during, "the slot is taken")
			assert.Equal(t, 200, serve(l.Handler(ok), ask()).Code, "the slot is free again")
		})
	}
}

func TestACopyOfAnEnteredEndsTheRequestOnce(t *testing.T) {
	l := limited(t, configOf(middleware.Rule{Name: "r", Key: keyfunc.IP(), Limit: limiter.AtOnce(1)}))
	first := l.Enter(httptest.NewRecorder(), request(), nil)
	again := *first
	first.End(200)
	second := l.Enter(httptest.NewRecorder(), request(), nil)
	require.NotNil(t, second)
	again.End(200)
	assert.EqualValues(t, 1, l.InProgress()[0].Requests)
	assert.False(t, passes(l, httptest.NewRecorder(), request()), "the slot is the second request's")
	second.End(200)
	assert.Zero(t, l.InProgress()[0].Requests)
}
