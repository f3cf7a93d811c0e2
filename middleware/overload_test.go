package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// A counting has so many places, and notes what is told of them.
type counting struct {
	free     int // below 0: every request waits until its client is gone
	asked    int
	left     int
	flushed  int
	detached int
}

func (c *counting) Admit(r *http.Request) (middleware.Place, time.Duration) {
	c.asked++
	if c.free < 0 {
		<-r.Context().Done()
	}
	if c.free <= 0 {
		return nil, 2500 * time.Millisecond
	}
	c.free--
	return counted{c}, 0
}

type counted struct{ c *counting }

func (p counted) Leave() { p.c.left++; p.c.free++ }

func (p counted) Streams(detached bool) {
	if detached {
		p.c.detached++
	} else {
		p.c.flushed++
	}
}

var one = []middleware.Rule{{Name: "one", Limit: limiter.PerHour(1)}}

func overloaded(t *testing.T, c *counting, config middleware.Config) *middleware.RateLimit {
	config.Overload = c
	l, err := middleware.New(config)
	require.NoError(t, err)
	return l
}

func TestARequestThatIsShedSpendsNothingAndLearnsWhenToComeBack(t *testing.T) {
	c, seen := &counting{}, outcomesSeen{}
	l := overloaded(t, c, middleware.Config{Rules: one, Observer: seen})
	h := l.Handler(noop)
	w := serve(h, request())
	assert.Equal(t, 503, w.Code)
	assert.Equal(t, "3", w.Header().Get("Retry-After"), "rounded up")
	assert.Contains(t, w.Body.String(), "temporary_reduced_capacity")
	assert.Empty(t, w.Header().Get("RateLimit"), "nothing was counted")

	c.free = 1
	assert.Equal(t, 200, serve(h, request()).Code, "its unit was given back")
	assert.Equal(t, 429, serve(h, request()).Code)
	assert.Equal(t, 2, c.asked, "one that a limit refuses takes no place, and does not wait for one")
	assert.Equal(t, 1, c.left)
	assert.Equal(t, outcomesSeen{middleware.OutcomeShed: 1, middleware.OutcomeAllowed: 1, middleware.OutcomeRefused: 1}, seen)
}

type outcomesSeen map[middleware.Outcome]int

func (s outcomesSeen) Observe(o *middleware.Observation) {
	s[o.Outcome]++
	if o.Outcome == middleware.OutcomeShed && len(o.Rules) > 0 {
		panic("a request that is shed was charged nothing")
	}
}

func TestAPlaceIsHeldUntilTheHandlerReturnsHoweverItDoes(t *testing.T) {
	many := []middleware.Rule{{Name: "many", Limit: limiter.PerHour(1000)}}
	none := []middleware.Rule{{Name: "none", Limit: limiter.PerHour(1), Match: func(*http.Request) bool { return false }}}
	for name, config := range map[string]middleware.Config{
		"a rule": {Rules: many}, "no rule at all": {}, "no rule for it": {Rules: none},
		"no result": {Rules: many, NoResult: true}, "nothing shown": {Rules: many, NoResult: true, Headers: middleware.HeadersNone},
		"shadow": {Rules: one, Shadow: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := &counting{free: 1}
			l := overloaded(t, c, config)
			held := func(do func(http.ResponseWriter, *http.Request)) http.Handler {
				return l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					assert.Zero(t, c.free, "it is held while the handler runs")
					do(w, r)
					assert.Zero(t, c.free)
				}))
			}
			serve(held(func(http.ResponseWriter, *http.Request) {}), request())
			assert.PanicsWithValue(t, http.ErrAbortHandler, func() {
				serve(held(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), request())
			})
			ctx, gone := context.WithCancel(t.Context())
			serve(held(func(http.ResponseWriter, *http.Request) { gone() }), request().WithContext(ctx))
			serve(held(func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() }), request())
			serve(held(func(w http.ResponseWriter, r *http.Request) {
				serve(l.Handler(noop), r) // the same limiter once more
			}), request())
			assert.Equal(t, [4]int{5, 5, 1, 1}, [4]int{c.asked, c.left, c.free, c.flushed})
		})
	}
}

// http.TimeoutHandler answers, and lets the handler run on.
func TestAHandlerThatRunsOnAfterItsAnswerHoldsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counting{free: 1}
		l := overloaded(t, c, middleware.Config{})
		h := http.TimeoutHandler(l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			time.Sleep(time.Minute)
		})), time.Second, "")
		assert.Equal(t, 503, serve(h, request()).Code)
		assert.Zero(t, c.free)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 1, c.free)
	})
}

func TestAClientThatLeavesWhileItWaitsIsNotShed(t *testing.T) {
	c, seen := &counting{free: -1}, outcomesSeen{}
	h := overloaded(t, c, middleware.Config{Rules: one, Observer: seen}).Handler(noop)
	ctx, gone := context.WithCancel(t.Context())
	gone()
	assert.Equal(t, 499, serve(h, request().WithContext(ctx)).Code)
	assert.Zero(t, seen[middleware.OutcomeShed])
	c.free = 1
	assert.Equal(t, 200, serve(h, request()).Code, "what it took was given back")
}

// A request of a leaky bucket waits for its turn before it takes a place.
func TestNoPlaceIsHeldByARequestThatWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counting{free: 2}
		h := overloaded(t, c, middleware.Config{Rules: []middleware.Rule{
			{Name: "queue", Limit: limiter.Limit{Events: 1, Per: time.Second, Burst: 3, Algorithm: limiter.LeakyBucket}},
		}}).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(100 * time.Millisecond) }))
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { assert.Equal(t, 200, serve(h, request()).Code) })
		}
		time.Sleep(500 * time.Millisecond)
		assert.Equal(t, 1, c.asked, "two wait for their turn")
		all.Wait()
		assert.Equal(t, 3, c.left)
	})
}

func TestAPlaceIsGivenBackWhereAnObserverPanics(t *testing.T) {
	c := &counting{free: 1}
	h := overloaded(t, c, middleware.Config{Rules: one, Observer: panics{}}).Handler(noop)
	assert.Panics(t, func() { serve(h, request()) })
	assert.Equal(t, 1, c.free)
}

type panics struct{}

func (panics) Observe(*middleware.Observation) { panic(errors.New("broken")) }

func TestExemptRequestsTakeNoPlace(t *testing.T) {
	c := &counting{}
	h := overloaded(t, c, middleware.Config{Rules: one, Allow: func(*http.Request) bool { return true }}).Handler(noop)
	assert.Equal(t, 200, serve(h, request()).Code)
	assert.Zero(t, c.asked)
}

// What is not told of an end can hold no place.
func TestCheckSaysThatItMeetsNoOverload(t *testing.T) {
	c := &counting{}
	logger, log := logged()
	l := overloaded(t, c, middleware.Config{Rules: one, Logger: logger})
	assert.True(t, l.Check(httptest.NewRecorder(), request()))
	assert.Contains(t, log.String(), "weir-overload-not-applied")
	assert.Zero(t, c.asked)
}

func TestAnOverloadHasToBeComparable(t *testing.T) {
	_, err := middleware.New(middleware.Config{Overload: incomparable{}})
	assert.ErrorContains(t, err, "Config.Overload is a middleware_test.incomparable")
}

type incomparable struct{ _ []int }

func (incomparable) Admit(*http.Request) (middleware.Place, time.Duration) { return nil, 0 }
