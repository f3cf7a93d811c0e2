package middleware_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// allowing gives a request a limit of its own for the rule "exports".
func allowing(t *testing.T, limit limiter.Allowance) func(*http.Request) {
	return func(r *http.Request) {
		ctx, err := middleware.WithLimit(r.Context(), "exports", limit)
		require.NoError(t, err)
		*r = *r.WithContext(ctx)
	}
}

// Requests of one key may have different limits.
func TestNoRequestWaitsForOneWithASmallerLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deskOf(t, middleware.Config{Rules: []middleware.Rule{exports(1)}})
		of := func(most int64) func(*http.Request) {
			return allowing(t, limiter.AtOnce(most).Queue(10, time.Hour))
		}
		d.begin(of(1))
		small := d.begin(of(1))
		large := d.begin(of(3))
		assert.EqualValues(t, 2, d.now.Load(), "of three slots one was in use")
		d.begin(of(3))
		waits := d.begin(of(3))
		assert.EqualValues(t, 3, d.now.Load())
		d.leave <- struct{}{}
		synctest.Wait()
		assert.EqualValues(t, 3, d.now.Load(), "it is behind the small limit's request, which cannot run")
		for range 3 {
			d.leave <- struct{}{}
			synctest.Wait()
		}
		assert.EqualValues(t, 1, d.now.Load(), "the small limit's")
		d.leave <- struct{}{}
		for _, answer := range []chan *httptest.ResponseRecorder{small, large, waits} {
			assert.Equal(t, 200, (<-answer).Code)
		}
	})
}

func TestAQueueStaysInOrderWhileTheRulesChange(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			const waiters = 20
			rule := func() middleware.Rule { return queued(1, 2*waiters+rand.IntN(9), time.Hour) }
			l := limited(t, configOf(rule()))
			var mu sync.Mutex
			var order []string
			began := func(n string) {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, n)
			}
			h := l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				began(r.Header.Get("N"))
				time.Sleep(10 * time.Millisecond)
			}))
			var want []string
			var all sync.WaitGroup
			for i := range waiters {
				n := fmt.Sprint(i)
				want = append(want, n)
				all.Go(func() { assert.Equal(t, 200, serve(h, request(header("N", n))).Code) })
				synctest.Wait()
			}
			stop := make(chan struct{})
			go func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Duration(1+rand.IntN(9)) * time.Millisecond):
						assert.NoError(t, l.Reconfigure(configOf(rule())))
					}
				}
			}()
			for i := range 10 { // while others wait
				time.Sleep(7 * time.Millisecond)
				n := fmt.Sprint(waiters + i)
				want = append(want, n)
				all.Go(func() { assert.Equal(t, 200, serve(h, request(header("N", n))).Code) })
				synctest.Wait()
			}
			all.Wait()
			close(stop)
			assert.Equal(t, want, order)
			assert.Zero(t, l.InProgress()[0].Waiting)
		})
	}
}

func TestARequestThatWaitedMeetsTheNewRules(t *testing.T) {
	never := middleware.MatchFunc(func(*http.Request) bool { return false })
	slot := func() middleware.Rule { return queued(1, 5, time.Minute) }
	deny := func(match middleware.Match) middleware.Rule {
		return middleware.Rule{Name: "down", Mode: middleware.Deny, Match: match}
	}
	for name, test := range map[string]struct {
		config middleware.Config
		want   int
	}{
		"the same":         {middleware.Config{Rules: []middleware.Rule{slot()}}, 200},
		"a ban":            {middleware.Config{Rules: []middleware.Rule{slot()}, Bans: middleware.Bans{Deny: always}}, 403},
		"a ban of others":  {middleware.Config{Rules: []middleware.Rule{slot()}, Bans: middleware.Bans{Deny: never}}, 200},
		"deny":             {middleware.Config{Rules: []middleware.Rule{slot(), deny(nil)}}, 403},
		"deny its route":   {middleware.Config{Rules: []middleware.Rule{slot(), deny(middleware.Route("GET /search"))}}, 403},
		"deny by route":    {middleware.Config{Rules: []middleware.Rule{slot()}, ByRoute: map[string][]middleware.Rule{"GET /search": {deny(nil)}}}, 403},
		"another by route": {middleware.Config{Default: []middleware.Rule{deny(nil)}, ByRoute: map[string][]middleware.Rule{"GET /search": {slot()}}}, 200},
		"exempt":           {middleware.Config{Rules: []middleware.Rule{deny(nil)}, Allow: always}, 200},
		"no key": {middleware.Config{Rules: []middleware.Rule{
			{Name: "key", Key: keyfunc.APIKey("X-Api-Key"), Limit: plenty, NoKey: middleware.NoKeyUnauthorized}}}, 401},
		"a limit": {middleware.Config{Rules: []middleware.Rule{slot(), {Name: "big", Key: keyfunc.Global, Limit: perHour(1), Cost: middleware.CostOf(func(*http.Request) int64 { return 2 })}}}, 429},
	} {
		for _, gateway := range []bool{false, true} {
			t.Run(fmt.Sprint(name, gateway), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					test.config.Logger = quiet
					l := limited(t, configOf(slot()))
					leave := make(chan struct{})
					mux := http.NewServeMux()
					mux.HandleFunc("GET /search", func(http.ResponseWriter, *http.Request) { <-leave })
					h := l.Handler(mux)
					if gateway {
						h = l.Gateway(mux, false)
					}
					codes := make(chan int, 2)
					for range 2 {
						go func() { codes <- serve(h, request(func(r *http.Request) { r.URL.Path = "/search" })).Code }()
						synctest.Wait()
					}
					require.NoError(t, l.Reconfigure(test.config))
					synctest.Wait()
					if test.want != 200 {
						assert.Equal(t, test.want, <-codes, "at once: its turn would come later")
					}
					close(leave)
					assert.Equal(t, 200, <-codes)
					if test.want == 200 {
						assert.Equal(t, 200, <-codes)
					}
					require.NoError(t, l.Reconfigure(configOf(slot())))
					assert.Equal(t, 200, serve(h, request(func(r *http.Request) { r.URL.Path = "/search" })).Code, "nobody has its place")
					assert.Zero(t, inProgress(t, l, "exports", client))
				})
			})
		}
	}
}

// An attacker fills no queue that others need with requests that would be refused though they got a slot.
func TestAClientOverItsLimitFillsNoQueue(t *testing.T) {
	ip := keyfunc.IP()
	pool := middleware.Rule{Name: "pool", Key: keyfunc.Global, Limit: limiter.AtOnce(1).Queue(20, 3*time.Second)}
	const attacker = "198.51.100.66:1"
	twice := func(r *http.Request) int64 {
		if r.RemoteAddr == attacker {
			return 2
		}
		return 1
	}
	for name, test := range map[string]struct {
		rules []middleware.Rule
		used  int // by the attacker before
		waits int // of 40
	}{
		"a limit":              {[]middleware.Rule{{Name: "ip", Key: ip, Limit: perHour(5)}, pool}, 5, 0},
		"in another order":     {[]middleware.Rule{pool, {Name: "ip", Key: ip, Limit: perHour(5)}}, 5, 0},
		"a large cost":         {[]middleware.Rule{{Name: "ip", Key: ip, Limit: perHour(1), Cost: middleware.CostOf(twice)}, pool}, 0, 0},
		"slots":                {[]middleware.Rule{{Name: "ip", Key: ip, Limit: limiter.AtOnce(2)}, pool}, 0, 2},
		"slots with a queue":   {[]middleware.Rule{pool, {Name: "ip", Key: ip, Limit: limiter.AtOnce(2).Queue(100, time.Minute)}}, 0, 2},
		"some units left":      {[]middleware.Rule{pool, {Name: "ip", Key: ip, Limit: perHour(8)}}, 5, 3},
		"some of a large cost": {[]middleware.Rule{pool, {Name: "ip", Key: ip, Limit: perHour(9), Cost: middleware.CostOf(twice)}}, 0, 4},
		"several limits":       {[]middleware.Rule{pool, {Name: "ip", Key: ip, Limit: limiter.All(perHour(7), limiter.PerDay(100).With(limiter.SlidingLog))}}, 5, 2},
		"no key":               {[]middleware.Rule{pool, {Name: "key", Key: keyfunc.APIKey("X-Api-Key"), Limit: perHour(5)}}, 5, 0},
		"afterwards": {[]middleware.Rule{pool, {Name: "ip", Key: ip, Limit: perHour(3),
			Counts: middleware.Statuses(200).Afterwards()}}, 3, 0},
		"a reservation": {[]middleware.Rule{pool, {Name: "ip", Key: ip, Limit: perHour(5), Cost: middleware.Reserve(twice)}}, 0, 2},
		"distinct":      {[]middleware.Rule{pool, {Name: "ip", Key: ip, Limit: perHour(5), Distinct: keyfunc.Header("N")}}, 5, 0},
		"a tenant's, some units left": {[]middleware.Rule{{Name: "ip", Key: ip, Limit: perHour(8)},
			{Name: "tenant", Key: keyfunc.Header("X-Tenant"), Limit: limiter.AtOnce(1).Queue(20, 3*time.Second), NoKey: middleware.NoKeyShare}}, 5, 3},
		"a tenant's, and slots with a queue": {[]middleware.Rule{{Name: "ip", Key: ip, Limit: limiter.AtOnce(2).Queue(100, time.Minute)},
			{Name: "tenant", Key: keyfunc.Header("X-Tenant"), Limit: limiter.AtOnce(1).Queue(20, 3*time.Second)}}, 0, 2},
		"of the rule": {[]middleware.Rule{{Name: "ip", Key: ip, Limit: perHour(5)},
			{Name: "tenant", Key: keyfunc.Header("X-Tenant"), Limit: limiter.AtOnce(1).Queue(20, 3*time.Second)}}, 5, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leave := make(chan struct{})
				l := limited(t, configOf(test.rules...))
				h := l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Slow") != "" {
						<-leave
					}
				}))
				attack := from(attacker)
				for i := range test.used {
					require.Equal(t, 200, serve(h, request(attack, header("N", fmt.Sprint(i)))).Code)
				}
				other := func(n int) func(*http.Request) { return from(fmt.Sprintf("192.0.2.%d:1", n)) }
				honest := func(n int) chan int {
					code := make(chan int, 1)
					go func() { code <- serve(h, request(other(n), header("X-Api-Key", fmt.Sprint(n)))).Code }()
					return code
				}
				go serve(h, request(other(1), header("Slow", "yes"), header("X-Api-Key", "1")))
				synctest.Wait()
				first := honest(2)
				synctest.Wait()
				var waiting atomic.Int64
				for i := range 40 {
					go func() {
						waiting.Add(1)
						defer waiting.Add(-1)
						w := serve(h, request(attack, header("N", fmt.Sprint("new", i))))
						if test.waits == 0 {
							assert.Equal(t, 429, w.Code)
							assert.NotContains(t, w.Body.String(), "concurrency", "its own limit refuses it")
						}
					}()
					synctest.Wait()
				}
				inPool := int64(0)
				for _, p := range l.InProgress() {
					if p.Rule.Name != "ip" {
						inPool = p.Waiting - 1
					}
				}
				assert.EqualValues(t, test.waits, inPool, "places of the attacker")
				second := honest(3)
				synctest.Wait()
				close(leave)
				assert.Equal(t, 200, <-first)
				assert.Equal(t, 200, <-second)
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Zero(t, waiting.Load())
				for _, p := range l.InProgress() {
					assert.Zero(t, p.Waiting+p.Requests)
				}
			})
		})
	}
}

// It has been through its client's queue, where others wait by now.
func TestNobodyWaitsAgainBehindThoseWhoCameLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deskOf(t, configOf(queued(1, 5, time.Hour), middleware.Rule{Name: "pool", Key: keyfunc.Global, Limit: limiter.AtOnce(1).Queue(5, time.Hour)}))
		d.begin(from("198.51.100.7:1"))
		var answers []chan *httptest.ResponseRecorder
		for range 3 {
			answers = append(answers, d.begin())
		}
		d.leave <- struct{}{}
		synctest.Wait()
		for i := range answers {
			d.leave <- struct{}{}
			synctest.Wait()
			for j := range answers {
				assert.Len(t, answers[j], map[bool]int{true: 1}[j <= i], "%d after %d", j, i)
			}
		}
	})
}

// Both queues are of one client each: it waits for the first slot, and then for the second.
func TestARequestWaitsForTwoSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := queued(1, 5, time.Hour), queued(1, 5, time.Hour)
		first.Name, first.Key = "user", keyfunc.User
		onlyUser := middleware.MatchFunc(func(r *http.Request) bool { return r.URL.Path != "/ip" })
		onlyIP := middleware.MatchFunc(func(r *http.Request) bool { return r.URL.Path != "/user" })
		first.Match, second.Match = onlyUser, onlyIP
		d := deskOf(t, configOf(first, second))
		of := func(path string) func(*http.Request) {
			return func(r *http.Request) {
				r.URL.Path = path
				*r = *r.WithContext(keyfunc.WithUser(r.Context(), "ann"))
			}
		}
		d.begin(of("/user"))
		d.begin(of("/ip"))
		both := d.begin(of("/both"))
		again := d.begin(of("/both"))
		waiting := func() [2]int64 { p := d.l.InProgress(); return [2]int64{p[0].Waiting, p[1].Waiting} }
		assert.Equal(t, [2]int64{2, 0}, waiting())
		d.leave <- struct{}{}
		synctest.Wait()
		d.leave <- struct{}{}
		synctest.Wait()
		assert.EqualValues(t, 1, d.now.Load())
		d.leave <- struct{}{}
		assert.Equal(t, 200, (<-both).Code)
		synctest.Wait()
		d.leave <- struct{}{}
		assert.Equal(t, 200, (<-again).Code)
		assert.Equal(t, [2]int64{}, waiting())
	})
}

// A value that was seen costs nothing, also if the limit is used up.
func TestASeenValueMayWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deskOf(t, configOf(middleware.Rule{Name: "pool", Key: keyfunc.Global, Limit: limiter.AtOnce(1).Queue(5, time.Hour)},
			middleware.Rule{Name: "names", Key: keyfunc.IP(), Limit: perHour(2), Distinct: keyfunc.Header("N")}))
		d.begin(header("N", "ann"))
		seen, other, bob := d.begin(header("N", "ann")), d.begin(header("N", "ann")), d.begin(header("N", "bob"))
		assert.Equal(t, 503, (<-d.begin(header("N", "eve"))).Code, "one new value is left, and bob waits with it")
		for range 4 {
			d.leave <- struct{}{}
			synctest.Wait()
		}
		assert.Equal(t, []int{200, 200, 200}, []int{(<-seen).Code, (<-other).Code, (<-bob).Code})
		assert.Equal(t, 429, (<-d.begin(header("N", "eve"))).Code)
		again := d.begin(header("N", "ann"))
		third := d.begin(header("N", "ann"))
		for range 2 {
			d.leave <- struct{}{}
			synctest.Wait()
		}
		assert.Equal(t, []int{200, 200}, []int{(<-again).Code, (<-third).Code}, "none is left")
	})
}

// A store that panics, or fails, while a request has a place.
func TestNobodyKeepsAPlaceWhenTheStorePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		store := &countingStore{spy: spy{fails: func(context.Context, []limiter.Charge) error {
			if broken.Load() {
				panic("on purpose")
			}
			return nil
		}}}
		c := configOf(queued(1, 5, time.Hour))
		c.Store = store
		d := deskOf(t, c)
		first := d.begin()
		waits := make(chan any, 1)
		go func() {
			defer func() { waits <- recover() }()
			serve(d.handler, request())
		}()
		synctest.Wait()
		broken.Store(true)
		require.NotNil(t, <-waits) // it polls, as others may release slots in such a store
		broken.Store(false)
		assert.Zero(t, d.l.InProgress()[0].Waiting)
		d.leave <- struct{}{}
		<-first
		next := d.begin()
		d.leave <- struct{}{}
		assert.Equal(t, 200, (<-next).Code)
	})
}

// A countingStore says that it counts slots.
type countingStore struct{ spy }

func (s *countingStore) Check(*limiter.Quota) error { return nil }

// What a waiter has claimed of its client's slots is free when it gives up, and the client's next request goes on.
func TestAWaiterThatGivesUpLetsItsClientsNextOneWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := queued(1, 5, time.Hour)
		d := deskOf(t, configOf(own, middleware.Rule{Name: "pool", Key: keyfunc.Global, Limit: limiter.AtOnce(1).Queue(5, time.Minute)}))
		d.begin(from("198.51.100.7:1"))
		ctx, leave := context.WithCancel(t.Context())
		gone := d.begin(func(r *http.Request) { *r = *r.WithContext(ctx) })
		next := d.begin()
		waiting := func(i int) int64 { return d.l.InProgress()[i].Waiting }
		assert.Equal(t, [2]int64{1, 1}, [2]int64{waiting(0), waiting(1)}, "for its client's slot, and for one of the pool")
		leave()
		assert.Equal(t, 499, (<-gone).Code)
		synctest.Wait()
		assert.Equal(t, [2]int64{0, 1}, [2]int64{waiting(0), waiting(1)})
		d.leave <- struct{}{}
		synctest.Wait()
		d.leave <- struct{}{}
		assert.Equal(t, 200, (<-next).Code)
	})
}

// A client whose requests all fit keeps all its places.
func TestAClientWaitsForAllThatItHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deskOf(t, configOf(middleware.Rule{Name: "ip", Key: keyfunc.IP(), Limit: perHour(10)},
			middleware.Rule{Name: "pool", Key: keyfunc.Global, Limit: limiter.AtOnce(1).Queue(20, time.Hour)}))
		var answers []chan *httptest.ResponseRecorder
		for range 10 {
			answers = append(answers, d.begin())
		}
		assert.EqualValues(t, 9, d.l.InProgress()[0].Waiting)
		w := <-d.begin()
		assert.Equal(t, 503, w.Code, "the queue has no place for it")
		for _, answer := range answers {
			d.leave <- struct{}{}
			assert.Equal(t, 200, (<-answer).Code)
		}
		assert.Equal(t, 429, (<-d.begin()).Code, "its limit is used up")
	})
}

// A request that waits for anything but a slot is charged already.
func TestABanReachesRequestsThatWaitForTheirTurn(t *testing.T) {
	for name, c := range map[string]middleware.Config{
		"leaky bucket": {Rules: []middleware.Rule{{Name: "exports", Key: keyfunc.Global,
			Limit: limiter.All(limiter.PerMinute(1).With(limiter.LeakyBucket).WithBurst(5), limiter.AtOnce(5))}}},
		"overload": {Overload: &slowly{time.Minute}, Rules: []middleware.Rule{{Name: "exports", Key: keyfunc.Global,
			Limit: limiter.All(perHour(5), limiter.AtOnce(5))}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var banned atomic.Int64
				c.Observer = observer(func(o *middleware.Observation) {
					if o.Outcome == middleware.OutcomeBanned {
						banned.Add(1)
					}
				})
				d := deskOf(t, c)
				close(d.leave)
				first := d.begin()
				time.Sleep(2 * time.Minute)
				<-first
				d.begin()
				second := d.begin()
				banning := c
				banning.Bans = middleware.Bans{Deny: always}
				require.NoError(t, d.l.Reconfigure(banning))
				assert.Equal(t, 403, (<-second).Code)
				synctest.Wait()
				assert.NotZero(t, banned.Load(), "observers see the ban")
				assert.Zero(t, inProgress(t, d.l, "exports", ""))
			})
		})
	}
}

// The rules before may not have asked for a request's route.
func TestABanOfARouteReachesRequestsThatWait(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/shut", ok)
	for name, handler := range map[string]func(l *middleware.RateLimit) http.Handler{
		"gateway": func(l *middleware.RateLimit) http.Handler { return l.Gateway(ok, false) },
		"mux":     func(l *middleware.RateLimit) http.Handler { return l.Handler(mux) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := middleware.Config{Rules: []middleware.Rule{{Name: "r", Key: keyfunc.Global, Limit: limiter.PerMinute(1).With(limiter.LeakyBucket).WithBurst(5)}}}
				l := limited(t, c)
				h, answered := handler(l), make(chan int, 2)
				for range 2 {
					go func() {
						w := httptest.NewRecorder()
						h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/shut", nil))
						answered <- w.Code
					}()
				}
				assert.Equal(t, 200, <-answered)
				synctest.Wait()
				c.Bans.Deny = middleware.Route("/shut")
				require.NoError(t, l.Reconfigure(c))
				assert.Equal(t, 403, <-answered)
			})
		})
	}
}

// slowly is an Overload that admits each request after a time.
type slowly struct{ after time.Duration }

func (s *slowly) Admit(*http.Request) (middleware.Slot, time.Duration) {
	time.Sleep(s.after)
	return nobodysSlot{}, 0
}

type nobodysSlot struct{}

func (nobodysSlot) Streams(bool) {}
func (nobodysSlot) Waits(bool)   {}
func (nobodysSlot) Leave()       {}
