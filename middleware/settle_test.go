package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

// perHour is a limit without windows.
func perHour(events int64) limiter.Limit { return limiter.PerHour(events).With(limiter.SlidingLog) }

// tokens is a rule that reserves so many units of a limit.
func tokens(reserved, of int64) middleware.Rule {
	return middleware.Rule{Name: "tokens", Key: keyfunc.Global, Limit: perHour(of),
		Cost: middleware.Reserve(func(*http.Request) int64 { return reserved })}
}

// through is the status that l lets a client see, around a handler.
func through(l *middleware.RateLimit, handler http.HandlerFunc, edits ...func(*http.Request)) int {
	w := httptest.NewRecorder()
	l.Handler(handler).ServeHTTP(w, request(edits...))
	return w.Code
}

// settling is a handler that says what its requests cost.
func settling(t require.TestingT, costs ...int64) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		for i, n := range costs {
			err := middleware.Settle(r.Context(), "tokens", n)
			if i > 0 {
				require.ErrorIs(t, err, limiter.ErrSettled)
				continue
			}
			require.NoError(t, err)
		}
	}
}

func TestARequestCostsWhatItsHandlerSays(t *testing.T) {
	for name, test := range map[string]struct {
		reserved int64
		says     []int64
		left     int64
	}{
		"less":                     {40, []int64{15}, 85},
		"nothing":                  {40, []int64{0}, 100},
		"what was reserved":        {40, []int64{40}, 60},
		"more":                     {40, []int64{70}, 30},
		"all that there is":        {40, []int64{100}, 0},
		"unsaid":                   {40, nil, 60},
		"twice, the first counts":  {40, []int64{10, 90}, 90},
		"a failed estimate":        {-1, []int64{10}, 90},
		"a failed estimate, alone": {0, nil, 99},
	} {
		l := limited(t, middleware.Config{Rules: []middleware.Rule{tokens(test.reserved, 100)}})
		assert.Equal(t, 200, through(l, settling(t, test.says...)), name)
		assert.Equal(t, test.left, left(t, l, "tokens", ""), name)
	}
}

func TestAReservationIsAtMostWhatTheLimitAllows(t *testing.T) {
	l := limited(t, middleware.Config{Rules: []middleware.Rule{tokens(1_000_000, 100)}})
	assert.Equal(t, 200, through(l, settling(t, 30)), "or no request would ever pass")
	assert.EqualValues(t, 70, left(t, l, "tokens", ""))
	assert.Equal(t, http.StatusTooManyRequests, through(l, settling(t, 30)))

	rule := tokens(1_000_000, 100)
	rule.Cost = middleware.CostOf(func(*http.Request) int64 { return 1_000_000 })
	l = limited(t, middleware.Config{Rules: []middleware.Rule{rule}})
	assert.Equal(t, http.StatusTooManyRequests, through(l, settling(t)), "a cost that is final is what it is")
}

func TestWhileItIsUnderWayARequestHasWhatItReserved(t *testing.T) {
	l := limited(t, middleware.Config{Rules: []middleware.Rule{tokens(60, 100)}})
	through(l, func(_ http.ResponseWriter, r *http.Request) {
		require.NoError(t, middleware.Settle(r.Context(), "tokens", 5))
		assert.EqualValues(t, 40, left(t, l, "tokens", ""), "it is settled when the handler has returned")
		assert.Equal(t, http.StatusTooManyRequests, through(l, settling(t)))
	})
	assert.EqualValues(t, 95, left(t, l, "tokens", ""))
}

func TestSettledLate(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := limited(t, middleware.Config{Rules: []middleware.Rule{tokens(60, 100)}})
		var ctx context.Context
		through(l, func(_ http.ResponseWriter, r *http.Request) { ctx = r.Context() })
		require.NoError(t, middleware.Settle(ctx, "tokens", 20))
		assert.EqualValues(t, 80, left(t, l, "tokens", ""), "at once after the handler has returned")
		require.ErrorIs(t, middleware.Settle(ctx, "tokens", 0), limiter.ErrSettled)
		assert.EqualValues(t, 80, left(t, l, "tokens", ""), "the first counts")

		time.Sleep(2 * time.Hour)
		through(l, func(_ http.ResponseWriter, r *http.Request) { ctx = r.Context() })
		time.Sleep(2 * time.Hour)
		require.NoError(t, middleware.Settle(ctx, "tokens", 20))
		assert.EqualValues(t, 100, left(t, l, "tokens", ""), "the period is over: nothing comes back that is there already")

		through(l, func(_ http.ResponseWriter, r *http.Request) { ctx = r.Context() })
		time.Sleep(2 * time.Hour)
		require.NoError(t, middleware.Settle(ctx, "tokens", 75))
		assert.EqualValues(t, 85, left(t, l, "tokens", ""), "what is owed is owed also after the period")
	})
}

func TestSettledWhileTheRequestEnds(t *testing.T) {
	for range 200 {
		l := limited(t, middleware.Config{Rules: []middleware.Rule{tokens(60, 100)}})
		var others sync.WaitGroup
		through(l, func(_ http.ResponseWriter, r *http.Request) {
			for range 3 {
				others.Go(func() { _ = middleware.Settle(r.Context(), "tokens", 30) })
			}
		})
		others.Wait()
		assert.EqualValues(t, 70, left(t, l, "tokens", ""))
	}
}

func TestSettleFindsTheRuleOfALimiterFurtherOut(t *testing.T) {
	outer := limited(t, middleware.Config{Rules: []middleware.Rule{tokens(60, 100)}})
	inner := limited(t, middleware.Config{Rules: []middleware.Rule{
		{Name: "login", Key: keyfunc.Global, Limit: perHour(10), Counts: middleware.Statuses(401)},
	}})
	through(outer, inner.Handler(settling(t, 10)).ServeHTTP)
	assert.EqualValues(t, 90, left(t, outer, "tokens", ""))
	assert.EqualValues(t, 10, left(t, inner, "login", ""))
}

func TestWhatAnInnerLimiterRefusesCostsTheOuterOneNothing(t *testing.T) {
	outer := limited(t, middleware.Config{Rules: []middleware.Rule{tokens(60, 100), {Name: "plain", Key: keyfunc.Global, Limit: perHour(10)}}})
	inner := limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "one", Key: keyfunc.Global, Limit: perHour(1)}}})
	assert.Equal(t, 200, through(outer, inner.Handler(settling(t, 10)).ServeHTTP))
	assert.Equal(t, http.StatusTooManyRequests, through(outer, inner.Handler(settling(t, 10)).ServeHTTP))
	assert.EqualValues(t, 90, left(t, outer, "tokens", ""), "no handler has seen it")
	assert.EqualValues(t, 8, left(t, outer, "plain", ""), "what it took as a request stays")
	assert.Equal(t, http.StatusTooManyRequests, through(outer, func(w http.ResponseWriter, r *http.Request) {
		inner.Handler(noop).ServeHTTP(w, r)
		settling(t, 7)(w, r)
	}))
	assert.EqualValues(t, 83, left(t, outer, "tokens", ""), "unless it is said")
}

// However a limiter further in refuses a request.
func TestARefusalOfAnyKindCostsNoReservation(t *testing.T) {
	failing := func(*http.Request) (string, error) { return "", errors.New("no key") }
	list := bans.Must(bans.New(bans.Options{}))
	require.NoError(t, list.Ban(t.Context(), "x", time.Hour))
	rule := func(r middleware.Rule) middleware.Config {
		r.Name, r.Key = "narrow", keyfunc.Global
		return middleware.Config{Rules: []middleware.Rule{r}}
	}
	own := rule(middleware.Rule{Mode: middleware.Deny, Refusal: middleware.Refusal{
		Answer: func(w http.ResponseWriter, _ *http.Request, _ middleware.Result) { w.WriteHeader(http.StatusOK) }}})
	outage := func(context.Context, []limiter.Charge) error { return errors.New("no store") }
	noStore := rule(middleware.Rule{Limit: perHour(9)})
	noStore.Store = &spy{fails: outage}
	for name, c := range map[string]middleware.Config{
		"deny":         rule(middleware.Rule{Mode: middleware.Deny}),
		"own answer":   own,
		"a cost":       rule(middleware.Rule{Limit: perHour(5), Cost: middleware.CostOf(func(*http.Request) int64 { return 6 })}),
		"a limit of 0": {Rules: []middleware.Rule{{Name: "suspended", Key: keyfunc.IP(), Limit: perHour(5)}}},
		"no key":       {Rules: []middleware.Rule{{Name: "k", Key: failing, Limit: perHour(9), OnOutage: limiter.FailClosed}}},
		"banned":       {Bans: middleware.Bans{Deny: always}},
		"in doubt":     {Bans: middleware.Bans{List: list, Keys: []keyfunc.Func{failing}}},
		"no store":     noStore,
		"overload":     {Overload: roomFor(0)},
	} {
		c.Logger = quiet
		inner := limited(t, c)
		for _, edit := range []func(*http.Request){
			header("Accept", "text/plain"), header("Content-Type", "application/grpc"),
			func(r *http.Request) {
				ctx, leave := context.WithCancel(r.Context())
				leave()
				*r = *r.WithContext(ctx)
			},
		} {
			outer := limited(t, middleware.Config{Rules: []middleware.Rule{tokens(60, 100)}})
			reserved := tokens(50, 100)
			reserved.Name = "middle"
			middle := limited(t, middleware.Config{Results: true, Rules: []middleware.Rule{reserved}})
			for _, h := range []http.Handler{inner.Handler(noop), inner.Gateway(noop, false)} {
				through(outer, middle.Handler(h).ServeHTTP, edit, func(r *http.Request) {
					ctx, err := middleware.WithLimit(r.Context(), "suspended", limiter.PerHour(0))
					require.NoError(t, err)
					*r = *r.WithContext(ctx)
				})
				assert.EqualValues(t, 100, left(t, outer, "tokens", ""), name)
				assert.EqualValues(t, 100, left(t, middle, "middle", ""), name)
			}
		}
	}
}

func TestWhoMayHaveWorkedKeepsTheReservation(t *testing.T) {
	rules := []middleware.Rule{{Name: "narrow", Mode: middleware.Deny}}
	inner := limited(t, middleware.Config{Rules: rules})
	shadow := limited(t, middleware.Config{Rules: rules, Shadow: true, Logger: quiet})
	ask := func(w http.ResponseWriter, r *http.Request) *httptest.ResponseRecorder {
		sub := httptest.NewRecorder()
		inner.Handler(noop).ServeHTTP(sub, r)
		assert.Equal(t, http.StatusForbidden, sub.Code)
		return sub
	}
	for name, h := range map[string]http.HandlerFunc{
		"a request that it built": func(w http.ResponseWriter, r *http.Request) {
			built, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "/", nil)
			require.NoError(t, err)
			ask(w, built)
		},
		"a clone": func(w http.ResponseWriter, r *http.Request) { ask(w, r.Clone(r.Context())) },
		"a clone, whose answer is passed on": func(w http.ResponseWriter, r *http.Request) {
			sub := ask(w, r.Clone(r.Context()))
			maps.Copy(w.Header(), sub.Header())
			w.WriteHeader(sub.Code)
		},
		"the same request":    func(w http.ResponseWriter, r *http.Request) { ask(w, r) },
		"Allow":               func(w http.ResponseWriter, r *http.Request) { assert.False(t, inner.Allow(w, r, "narrow", "ann")) },
		"a limiter in shadow": func(w http.ResponseWriter, r *http.Request) { shadow.Handler(noop).ServeHTTP(w, r) },
	} {
		outer := limited(t, middleware.Config{Rules: []middleware.Rule{tokens(60, 100)}})
		through(outer, h)
		assert.EqualValues(t, 40, left(t, outer, "tokens", ""), name)
	}
}

// A plainWriter hides the methods of another writer.
type plainWriter struct{ http.ResponseWriter }

func TestARefusalIsTheRequestsOwnWhateverIsBetween(t *testing.T) {
	inner := limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "narrow", Mode: middleware.Deny}}}).Handler(noop)
	for name, between := range map[string]http.Handler{
		"StripPrefix":    http.StripPrefix("/", inner),
		"TimeoutHandler": http.TimeoutHandler(inner, time.Hour, ""),
		"a clone":        http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inner.ServeHTTP(w, r.Clone(r.Context())) }),
		"a writer":       http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inner.ServeHTTP(plainWriter{w}, r) }),
	} {
		outer := limited(t, middleware.Config{Rules: []middleware.Rule{tokens(60, 100)}})
		assert.Equal(t, http.StatusForbidden, through(outer, between.ServeHTTP), name)
		assert.EqualValues(t, 100, left(t, outer, "tokens", ""), name)
	}
}

func TestNoFieldOfAnAnswerRefundsAReservation(t *testing.T) {
	for _, values := range [][]string{{""}, {"1"}, {"", ""}} {
		outer := limited(t, middleware.Config{Rules: []middleware.Rule{tokens(60, 100)}})
		through(outer, func(w http.ResponseWriter, _ *http.Request) { // as httputil.ReverseProxy copies them
			for _, value := range values {
				w.Header().Add("Weir-Unseen", value)
			}
		})
		assert.EqualValues(t, 40, left(t, outer, "tokens", ""))
	}
}

// A writer may be used for several requests.
func TestARefusalRefundsNoLaterRequest(t *testing.T) {
	inner := limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "one", Key: keyfunc.Global, Limit: perHour(1), Mode: middleware.Enforce}}})
	outer := limited(t, middleware.Config{Rules: []middleware.Rule{tokens(60, 100)}})
	through(inner, noop)
	w := httptest.NewRecorder()
	outer.Handler(inner.Handler(noop)).ServeHTTP(w, request())
	outer.Handler(noop).ServeHTTP(w, request())
	assert.EqualValues(t, 40, left(t, outer, "tokens", ""))
	assert.NotContains(t, w.Result().Header, "Weir-Unseen", "it is not sent")
}

func TestTheInnermostLimiterIsSettled(t *testing.T) {
	l := limited(t, middleware.Config{Rules: []middleware.Rule{tokens(20, 100)}})
	through(l, l.Handler(l.Handler(settling(t, 10))).ServeHTTP)
	assert.EqualValues(t, 50, left(t, l, "tokens", ""))
}

func TestWhatCannotBeSettledIsAnError(t *testing.T) {
	l := limited(t, middleware.Config{
		Allow: middleware.MatchFunc(func(r *http.Request) bool { return r.Header.Get("X-Health") != "" }),
		Rules: []middleware.Rule{
			tokens(60, 100),
			{Name: "ip", Key: keyfunc.IP(), Limit: perHour(10)},
			{Name: "other", Key: keyfunc.Global, Match: middleware.Route("/other"), Limit: perHour(10), Cost: middleware.Reserve(func(*http.Request) int64 { return 1 })},
		}})
	through(l, func(_ http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		assert.EqualError(t, middleware.Settle(ctx, "tokens", -1), `middleware: Settle of rule "tokens": -1 units: they must not be negative`)
		assert.EqualError(t, middleware.Settle(ctx, "ip", 1), `middleware: Settle of rule "ip": it cannot be settled: its Cost is not a Reserve`)
		assert.ErrorIs(t, middleware.Settle(ctx, "other", 1), middleware.ErrNotApplied)
		assert.EqualError(t, middleware.Settle(ctx, "nothing", 1), `middleware: the rule did not apply to this request: "nothing"`)
	}, routedBy("/"))
	through(l, func(_ http.ResponseWriter, r *http.Request) {
		assert.ErrorIs(t, middleware.Settle(r.Context(), "tokens", 1), middleware.ErrNotApplied, "an exempt request meets no rule")
	}, header("X-Health", "1"))
	assert.ErrorIs(t, middleware.Settle(t.Context(), "tokens", 1), middleware.ErrNotApplied)
	assert.EqualValues(t, 40, left(t, l, "tokens", ""))
}

func TestARefusedRequestLeavesNothingBehind(t *testing.T) {
	full := middleware.Rule{Name: "full", Key: keyfunc.Global, Limit: perHour(1), Counts: middleware.Statuses(401).Afterwards()}
	for name, algorithm := range map[string]limiter.Algorithm{"log": limiter.SlidingLog, "bucket": limiter.TokenBucket} {
		rules := []middleware.Rule{
			tokens(60, 100), {Name: "plain", Key: keyfunc.Global, Limit: limiter.PerHour(10).With(algorithm)}, full,
			{Name: "login", Key: keyfunc.Global, Limit: perHour(7), Counts: middleware.Statuses(401)},
		}
		l := newLimit(t, rules...)
		assert.Equal(t, 401, through(l, func(w http.ResponseWriter, r *http.Request) {
			settling(t, 1)(w, r)
			w.WriteHeader(401)
		}))
		w := httptest.NewRecorder()
		l.Handler(noop).ServeHTTP(w, request())
		assert.Equal(t, http.StatusTooManyRequests, w.Code, name)
		assert.Equal(t, "3600", w.Header().Get("Retry-After"), "of the rule that is looked at")
		assert.Equal(t, "99", readMember(t, w.Header(), "tokens"), "what is told is what is there")
		for rule, want := range map[string]int64{"tokens": 99, "plain": 9, "full": 0, "login": 6} {
			assert.Equal(t, want, left(t, l, rule, ""), "%s: %s", name, rule)
		}
	}
}

// readMember is what the RateLimit field says is left of a rule.
func readMember(t *testing.T, h http.Header, rule string) string {
	t.Helper()
	_, rest, ok := strings.Cut(h.Get("RateLimit"), `"`+rule+`";r=`)
	require.True(t, ok, h.Get("RateLimit"))
	end := strings.IndexAny(rest, ";,")
	if end < 0 {
		return rest
	}
	return rest[:end]
}

func TestARequestThatARuleRefusesAfterwardsTakesNoTurnInAQueue(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		store := &spy{}
		l := limited(t, middleware.Config{Store: store, Rules: []middleware.Rule{
			{Name: "login", Key: keyfunc.Global, Limit: perHour(1), Counts: middleware.Statuses(401).Afterwards()},
			{Name: "queue", Key: keyfunc.Global, Limit: limiter.PerMinute(1).With(limiter.LeakyBucket)},
		}})
		assert.Equal(t, 401, ask(l, 401))
		taken := len(store.charged)
		for range 10 {
			assert.Equal(t, http.StatusTooManyRequests, ask(l, 401))
		}
		for _, c := range store.charged[taken:] {
			assert.Zero(t, c.Cost, "another request's turn could be behind it")
		}
	})
}

func TestACostThatIsChargedAfterwards(t *testing.T) {
	l := limited(t, middleware.Config{Rules: []middleware.Rule{
		{Name: "tokens", Key: keyfunc.Global, Limit: perHour(100), Cost: middleware.Reserve(nil), Counts: middleware.Not(middleware.StatusClass(5)).Afterwards()},
	}})
	through(l, settling(t, 30))
	assert.EqualValues(t, 70, left(t, l, "tokens", ""))
	through(l, settling(t))
	assert.EqualValues(t, 69, left(t, l, "tokens", ""), "unsaid it is what the rule says: 1")
	through(l, func(w http.ResponseWriter, r *http.Request) {
		settling(t, 30)(w, r)
		w.WriteHeader(503)
	})
	assert.EqualValues(t, 69, left(t, l, "tokens", ""), "what does not count costs nothing, whatever is said")
}

func TestTheEndOfARuleInShadow(t *testing.T) {
	for _, after := range []bool{false, true} {
		l := limited(t, middleware.Config{Rules: []middleware.Rule{
			{Name: "login", Key: keyfunc.Global, Limit: perHour(2), Counts: afterwards(middleware.Statuses(401), after), Mode: middleware.Shadow},
			{Name: "all", Key: keyfunc.Global, Limit: perHour(100)},
		}})
		for range 5 {
			assert.Equal(t, 200, ask(l, 200))
		}
		assert.EqualValues(t, 2, left(t, l, "login", ""))
		for range 5 {
			assert.Equal(t, 401, ask(l, 401), "it refuses nothing")
		}
		assert.EqualValues(t, 0, left(t, l, "login", ""))
		assert.EqualValues(t, 90, left(t, l, "all", ""))
	}
}

func TestRulesThatChangeMeanwhile(t *testing.T) {
	l := limited(t, middleware.Config{Rules: []middleware.Rule{tokens(60, 100)}})
	through(l, func(w http.ResponseWriter, r *http.Request) {
		require.NoError(t, l.Reconfigure(middleware.Config{Rules: []middleware.Rule{tokens(60, 200)}}))
		settling(t, 10)(w, r)
	})
	assert.EqualValues(t, 190, left(t, l, "tokens", ""))
	through(l, func(w http.ResponseWriter, r *http.Request) {
		require.NoError(t, l.Reconfigure(middleware.Config{Rules: []middleware.Rule{{Name: "other", Key: keyfunc.Global, Limit: perHour(1)}}}))
		settling(t, 10)(w, r)
	})
	require.NoError(t, l.Reconfigure(middleware.Config{Rules: []middleware.Rule{tokens(60, 200)}}))
	assert.EqualValues(t, 180, left(t, l, "tokens", ""))
}

// A picky store does nothing for a client that is gone.
type picky struct{ limiter.Store }

func (p picky) Settle(ctx context.Context, settlements []limiter.Settlement) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return p.Store.Settle(ctx, settlements)
}

func (p picky) Decide(ctx context.Context, charges []limiter.Charge) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return p.Store.Decide(ctx, charges)
}

func (p picky) Unwrap() limiter.Store { return p.Store }

func TestAClientThatLeavesFirstIsSettledAllTheSame(t *testing.T) {
	l := limited(t, middleware.Config{
		Store: picky{limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))},
		Rules: []middleware.Rule{tokens(60, 100), {Name: "login", Key: keyfunc.Global, Limit: perHour(10), Counts: middleware.Statuses(401)}},
	})
	ctx, leave := context.WithCancel(t.Context())
	through(l, func(w http.ResponseWriter, r *http.Request) {
		leave()
		settling(t, 10)(w, r)
	}, func(r *http.Request) { *r = *r.WithContext(ctx) })
	assert.EqualValues(t, 90, left(t, l, "tokens", ""))
	assert.EqualValues(t, 9, left(t, l, "login", ""), "what a client that left is answered, it may have brought about")
}

func TestARequestThatTookTooLongIsNotLeftByItsClient(t *testing.T) {
	for _, after := range []bool{false, true} {
		l := limited(t, middleware.Config{Rules: []middleware.Rule{
			{Name: "api", Key: keyfunc.Global, Limit: perHour(5), Counts: afterwards(middleware.Not(middleware.StatusClass(5)), after)},
		}})
		failing := func(ctx context.Context, end func()) {
			through(l, func(w http.ResponseWriter, r *http.Request) {
				end()
				w.WriteHeader(http.StatusBadGateway)
			}, func(r *http.Request) { *r = *r.WithContext(ctx) })
		}
		late, stop := context.WithTimeout(t.Context(), 0)
		failing(late, func() {})
		stop()
		assert.EqualValues(t, 5, left(t, l, "api", ""))
		failing(context.WithCancel(t.Context()))
		assert.EqualValues(t, 4, left(t, l, "api", ""))
	}
}

func TestAClientThatLeavesIsBannedByItsAnswersOnly(t *testing.T) {
	list := bans.Must(bans.New(bans.Options{}))
	l := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Rules: []middleware.Rule{{
		Name: "login", Key: keyfunc.IP(), Limit: perHour(100), Counts: middleware.Statuses(401),
		Escalate: bans.Escalation{After: 1, Within: time.Hour, Ban: time.Minute, Outcomes: true},
	}}})
	for _, status := range []int{200, 401} {
		assert.True(t, list.Empty())
		ctx, leave := context.WithCancel(t.Context())
		through(l, func(w http.ResponseWriter, _ *http.Request) {
			leave()
			w.WriteHeader(status)
		}, func(r *http.Request) { *r = *r.WithContext(ctx) })
	}
	assert.False(t, list.Empty())
}

func TestAClientThatLeavesBeforeItsTurnCostsNoWork(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := limited(t, middleware.Config{Rules: []middleware.Rule{
			{Name: "queue", Key: keyfunc.Global, Limit: limiter.PerMinute(1).With(limiter.LeakyBucket).WithBurst(5)},
			tokens(60, 100), {Name: "plain", Key: keyfunc.Global, Limit: perHour(10)},
		}})
		assert.Equal(t, 200, through(l, settling(t, 0)))
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		began := time.Now()
		assert.Equal(t, 499, through(l, settling(t, 0), func(r *http.Request) { *r = *r.WithContext(ctx) }))
		assert.Equal(t, time.Second, time.Since(began), "it leaves the queue at once")
		assert.EqualValues(t, 100, left(t, l, "tokens", ""), "no handler has seen it")
		assert.EqualValues(t, 8, left(t, l, "plain", ""), "or it could fill the queue for nothing")
	})
}

// An outage is a store that gives no answer while it lasts.
type outage struct {
	limiter.Store
	lasts bool
}

var errOutage = errors.New("connection refused")

func (o *outage) Decide(ctx context.Context, charges []limiter.Charge) error {
	if o.lasts {
		return errOutage
	}
	return o.Store.Decide(ctx, charges)
}

func (o *outage) Settle(ctx context.Context, settlements []limiter.Settlement) error {
	if o.lasts {
		return errOutage
	}
	return o.Store.Settle(ctx, settlements)
}

func TestAStoreThatCannotBeToldIsWarnedOfOnce(t *testing.T) {
	var log bytes.Buffer
	store := &outage{Store: limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))}
	l := limited(t, middleware.Config{Store: store, Logger: slog.New(slog.NewTextHandler(&log, nil)), Rules: []middleware.Rule{tokens(10, 100)}})
	for range 2 {
		assert.Equal(t, 200, through(l, func(w http.ResponseWriter, r *http.Request) {
			store.lasts = true
			settling(t, 5)(w, r)
		}), "the answer is not held up")
		store.lasts = false
	}
	assert.Equal(t, 1, strings.Count(log.String(), "code=weir-not-settled"))
	assert.EqualValues(t, 80, left(t, l, "tokens", ""), "it has cost what was reserved")
}

func TestReservedInAnOutageItIsSettledThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for policy, want := range map[limiter.Outage]int64{limiter.FailLocal: 100, limiter.FailOpen: 100} {
			inner := &outage{Store: limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))}
			store := failover.Must(failover.New(inner, failover.Options{}))
			rule := tokens(60, 100)
			rule.OnOutage = policy
			l := limited(t, middleware.Config{Store: store, Rules: []middleware.Rule{rule}})
			assert.Equal(t, 200, through(l, settling(t, 60)))
			assert.EqualValues(t, want-60, left(t, l, "tokens", ""))
			inner.lasts = true
			assert.Equal(t, 200, through(l, func(w http.ResponseWriter, r *http.Request) {
				inner.lasts = false
				time.Sleep(time.Minute)
				assert.EqualValues(t, want-60, left(t, l, "tokens", ""))
				settling(t, 0)(w, r)
			}))
			assert.EqualValues(t, want-60, left(t, l, "tokens", ""), "%v: the server's counter has nothing to do with it", policy)
		}
	})
}

func TestFiveFailedLoginsBanAKey(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		for _, after := range []bool{false, true} {
			list := bans.Must(bans.New(bans.Options{}))
			l := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Rules: []middleware.Rule{{
				Name: "login", Key: keyfunc.IP(), Limit: perHour(100),
				Counts:   afterwards(middleware.Statuses(401), after),
				Escalate: bans.Escalation{After: 5, Within: time.Hour, Ban: time.Minute, Outcomes: true},
			}}})
			for range 4 {
				assert.Equal(t, 401, ask(l, 401))
				assert.Equal(t, 200, ask(l, 200))
			}
			assert.True(t, list.Empty())
			assert.Equal(t, 401, ask(l, 401))
			assert.Equal(t, 403, ask(l, 200), "five were wrong")
			assert.Equal(t, 200, ask(l, 200, from("192.0.2.7:1")), "another key is another key")
			time.Sleep(time.Minute)
			assert.Equal(t, 401, ask(l, 401), "the count begins anew after the ban")
			assert.Equal(t, 200, ask(l, 200))
		}
	})
}

func TestRefusalsAreNoOutcomes(t *testing.T) {
	list := bans.Must(bans.New(bans.Options{}))
	l := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Rules: []middleware.Rule{{
		Name: "login", Key: keyfunc.IP(), Limit: perHour(2), Counts: middleware.Statuses(401),
		Escalate: bans.Escalation{After: 3, Within: time.Hour, Ban: time.Minute, Outcomes: true},
	}}})
	for range 2 {
		assert.Equal(t, 401, ask(l, 401))
	}
	for range 10 {
		assert.Equal(t, http.StatusTooManyRequests, ask(l, 401))
	}
	assert.True(t, list.Empty())
}

// afterwards is c, afterwards if so.
func afterwards(c middleware.Counts, so bool) middleware.Counts {
	if so {
		return c.Afterwards()
	}
	return c
}

// A settledStore counts the settlements that it gets.
type settledStore struct {
	limiter.Store
	settled int
}

func (s *settledStore) Check(*limiter.Quota) error { return nil }

func (s *settledStore) Settle(ctx context.Context, settlements []limiter.Settlement) error {
	s.settled += len(settlements)
	return s.Store.Settle(ctx, settlements)
}

func TestWhatFailOpenAdmitsHasNothingToSettle(t *testing.T) {
	for name, rule := range map[string]middleware.Rule{
		"a reservation": tokens(60, 100),
		"counts":        {Limit: perHour(10), Counts: middleware.Statuses(401)},
		"a slot":        {Limit: limiter.AtOnce(1)},
	} {
		synctest.Test(t, func(t *testing.T) {
			rule.Name, rule.Key, rule.OnOutage = "tokens", keyfunc.Global, limiter.FailOpen
			inner := &outage{Store: limiter.Must(limiter.NewMemory(limiter.MemoryOptions{})), lasts: true}
			store := &settledStore{Store: failover.Must(failover.New(inner, failover.Options{}))}
			l := limited(t, middleware.Config{Store: store, Logger: quiet, Rules: []middleware.Rule{rule}})
			assert.Equal(t, 200, through(l, func(_ http.ResponseWriter, r *http.Request) {
				for _, p := range l.InProgress() {
					assert.Zero(t, p.Requests, "nobody knows how many hold a slot")
				}
				_ = middleware.Settle(r.Context(), "tokens", 10)
			}), name)
			assert.Zero(t, store.settled, name)
		})
	}
}

func TestCountAsAndSettleMayBeCalledAtOnce(t *testing.T) {
	l := limited(t, middleware.Config{Rules: []middleware.Rule{
		{Name: "reserve", Key: keyfunc.Global, Limit: plenty, Cost: middleware.Reserve(func(*http.Request) int64 { return 2 })},
		{Name: "counts", Key: keyfunc.Global, Limit: plenty, Counts: middleware.StatusClass(2)},
	}})
	serve(l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, middleware.Settle(r.Context(), "reserve", 1)) })
		wg.Go(func() { assert.NoError(t, middleware.CountAs(r.Context(), 404)) })
		wg.Wait()
	})), request())
}

func TestAHandlerResetsTheKeyThatCountedItsRequest(t *testing.T) {
	rule := middleware.Rule{Name: "tokens", Key: keyfunc.Header("X-Client"), Limit: limiter.All(perHour(3), limiter.PerDay(9)),
		Cost: middleware.Reserve(func(*http.Request) int64 { return 1 })}
	inner := limited(t, middleware.Config{Rules: []middleware.Rule{rule}})
	outer := limited(t, middleware.Config{Rules: []middleware.Rule{rule}})
	ann := header("X-Client", "ann")
	fail := func(http.ResponseWriter, *http.Request) {}
	for range 2 {
		through(inner, fail, ann)
		through(inner, fail, header("X-Client", "bob"))
		through(outer, fail, ann)
	}
	through(outer, func(w http.ResponseWriter, r *http.Request) {
		inner.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			key, err := middleware.KeyOf(r.Context(), "tokens")
			assert.NoError(t, err)
			assert.Equal(t, "header:X-Client:ann", key)
			ctx, cancel := context.WithCancel(r.Context())
			cancel() // as if the client had left
			assert.NoError(t, middleware.Reset(ctx, "tokens"))
			_, err = middleware.KeyOf(r.Context(), "other")
			assert.ErrorIs(t, err, middleware.ErrNotApplied)
			assert.ErrorIs(t, middleware.Reset(r.Context(), "other"), middleware.ErrNotApplied)
			require.NoError(t, inner.Reconfigure(middleware.Config{Rules: []middleware.Rule{{Name: "other", Key: keyfunc.Global, Limit: perHour(1)}}, Logger: quiet}))
			assert.ErrorIs(t, middleware.Reset(r.Context(), "tokens"), middleware.ErrNoRule)
			require.NoError(t, inner.Reconfigure(middleware.Config{Rules: []middleware.Rule{rule}, Logger: quiet}))
		})).ServeHTTP(w, r)
	}, ann)
	assert.Equal(t, int64(3), left(t, inner, "tokens", "header:X-Client:ann"))
	assert.Equal(t, int64(1), left(t, inner, "tokens", "header:X-Client:bob"))
	assert.Equal(t, int64(0), left(t, outer, "tokens", "header:X-Client:ann"), "the innermost is reset")
	assert.ErrorIs(t, middleware.Reset(context.Background(), "tokens"), middleware.ErrNotApplied)
}

func TestReservationsSayWhatBecameOfThem(t *testing.T) {
	rule := middleware.Rule{Name: "tokens", Key: keyfunc.Global, Limit: limiter.All(perHour(100), limiter.PerDay(50)), Cost: middleware.Reserve(func(*http.Request) int64 { return 60 })}
	l := limited(t, middleware.Config{Rules: []middleware.Rule{rule, {Name: "calls", Key: keyfunc.Global, Limit: plenty}}})
	settles := true
	handler := l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.Equal(t, map[string]int64{"tokens": 60}, middleware.Reserved(r.Context()), "the most of its limits")
		if settles {
			assert.NoError(t, middleware.Settle(r.Context(), "tokens", 5))
			assert.Empty(t, middleware.Reserved(r.Context()))
		}
	}))
	handler.ServeHTTP(httptest.NewRecorder(), request())
	assert.Equal(t, []middleware.Reservations{{Rule: "tokens", Reserved: 60, Settled: 5}}, l.Reservations())
	settles = false
	l2 := limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "tokens", Key: keyfunc.Global, Limit: perHour(100), Cost: rule.Cost}}})
	l2.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.Equal(t, map[string]int64{"tokens": 60}, middleware.Reserved(r.Context()))
	})).ServeHTTP(httptest.NewRecorder(), request())
	assert.Equal(t, []middleware.Reservations{{Rule: "tokens", Reserved: 60, Unsettled: 60}}, l2.Reservations())
	require.NoError(t, l2.Reconfigure(middleware.Config{Rules: []middleware.Rule{rule}}))
	assert.Equal(t, uint64(60), l2.Reservations()[0].Unsettled, "a reload forgets none")
	assert.Empty(t, middleware.Reserved(t.Context()))
}
