package middleware_test

import (
	"context"
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

// A counting has free slots, and counts what happens to them.
type counting struct {
	free     atomic.Int32 // below 0: every request waits until its client is gone
	asked    atomic.Int32
	left     atomic.Int32
	flushed  atomic.Int32
	detached atomic.Int32
}

func roomFor(n int32) *counting {
	c := &counting{}
	c.free.Store(n)
	return c
}

func (c *counting) Admit(r *http.Request) (middleware.Slot, time.Duration) {
	c.asked.Add(1)
	switch free := c.free.Load(); {
	case free < 0:
		<-r.Context().Done()
		return nil, time.Second
	case free == 0:
		return nil, 2500 * time.Millisecond
	}
	c.free.Add(-1)
	return counted{c}, 0
}

type counted struct{ *counting }

func (p counted) Leave() { p.left.Add(1); p.free.Add(1) }

func (p counted) Waits(bool) {}

func (p counted) Streams(detached bool) {
	if detached {
		p.detached.Add(1)
	} else {
		p.flushed.Add(1)
	}
}

var one = []middleware.Rule{{Name: "one", Key: keyfunc.Global, Limit: limiter.PerHour(1)}}

func overloaded(t *testing.T, c *counting, config middleware.Config) *middleware.RateLimit {
	config.Overload = c
	l, err := middleware.New(config)
	require.NoError(t, err)
	return l
}

func TestARequestThatIsShedSpendsNothingAndLearnsWhenToComeBack(t *testing.T) {
	c, seen := roomFor(0), outcomesSeen{}
	l := overloaded(t, c, middleware.Config{Rules: one, Observer: seen})
	h := l.Handler(noop)
	w := serve(h, request())
	assert.Equal(t, 503, w.Code)
	assert.Equal(t, "3", w.Header().Get("Retry-After"), "rounded up")
	assert.Contains(t, w.Body.String(), "temporary_reduced_capacity")
	assert.Empty(t, w.Header().Get("X-RateLimit-Limit"), "nothing was counted")

	c.free.Store(1)
	assert.Equal(t, 200, serve(h, request()).Code, "its unit was given back")
	assert.Equal(t, 429, serve(h, request()).Code)
	assert.EqualValues(t, 2, c.asked.Load(), "one that a limit refuses takes no slot, and does not wait for one")
	assert.EqualValues(t, 1, c.left.Load())
	assert.Equal(t, outcomesSeen{middleware.OutcomeShed: 1, middleware.OutcomeAllowed: 1, middleware.OutcomeRefused: 1}, seen)
}

type outcomesSeen map[middleware.Outcome]int

func (s outcomesSeen) Observe(o *middleware.Observation) {
	s[o.Outcome]++
	if o.Outcome == middleware.OutcomeShed && len(o.Rules) > 0 {
		panic("a request that is shed was charged nothing")
	}
}

func TestASlotIsHeldUntilTheHandlerReturnsHoweverItDoes(t *testing.T) {
	many := []middleware.Rule{{Name: "many", Key: keyfunc.Global, Limit: limiter.PerHour(1000)}}
	none := []middleware.Rule{{Name: "none", Key: keyfunc.Global, Limit: limiter.PerHour(1), Match: middleware.MatchFunc(func(*http.Request) bool { return false })}}
	for name, config := range map[string]middleware.Config{
		"a rule": {Rules: many}, "no rule at all": {}, "no rule for it": {Rules: none},
		"results": {Rules: many, Results: true}, "nothing shown": {Rules: many, Headers: middleware.Headers{Send: middleware.HeadersNone}},
		"shadow": {Rules: one, Shadow: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := roomFor(1)
			l := overloaded(t, c, config)
			held := func(do func(http.ResponseWriter, *http.Request)) http.Handler {
				return l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					assert.Zero(t, c.free.Load(), "it is held while the handler runs")
					do(w, r)
					assert.Zero(t, c.free.Load())
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
			assert.Equal(t, [4]int32{5, 5, 1, 1}, [4]int32{c.asked.Load(), c.left.Load(), c.free.Load(), c.flushed.Load()})
		})
	}
}

func TestAClientThatLeavesWhileItWaitsIsNotShed(t *testing.T) {
	c, seen := roomFor(-1), outcomesSeen{}
	h := overloaded(t, c, middleware.Config{Rules: one, Observer: seen}).Handler(noop)
	ctx, gone := context.WithCancel(t.Context())
	gone()
	assert.Equal(t, 499, serve(h, request().WithContext(ctx)).Code)
	assert.Zero(t, seen[middleware.OutcomeShed])
	c.free.Store(1)
	assert.Equal(t, 200, serve(h, request()).Code, "what it took was given back")
}

// A request of a leaky bucket waits for its turn before it takes a slot.
func TestNoSlotIsHeldByARequestThatWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := roomFor(2)
		h := overloaded(t, c, middleware.Config{Rules: []middleware.Rule{
			{Name: "queue", Key: keyfunc.Global, Limit: limiter.Limit{Events: 1, Per: time.Second, Burst: 3, Algorithm: limiter.LeakyBucket}},
		}}).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(100 * time.Millisecond) }))
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { assert.Equal(t, 200, serve(h, request()).Code) })
		}
		time.Sleep(500 * time.Millisecond)
		assert.EqualValues(t, 1, c.asked.Load(), "two wait for their turn")
		all.Wait()
		assert.EqualValues(t, 3, c.left.Load())
	})
}

func TestRequestsWithoutARuleAreObservedWhereTheyTakeASlot(t *testing.T) {
	c, seen := roomFor(1), outcomesSeen{}
	h := overloaded(t, c, middleware.Config{Observer: seen}).Handler(noop)
	assert.Equal(t, 200, serve(h, request()).Code)
	c.free.Store(0)
	assert.Equal(t, 503, serve(h, request()).Code)
	assert.Equal(t, outcomesSeen{middleware.OutcomeAllowed: 1, middleware.OutcomeShed: 1}, seen)
}

func TestExemptRequestsTakeNoSlot(t *testing.T) {
	c := roomFor(0)
	h := overloaded(t, c, middleware.Config{Rules: one, Allow: middleware.MatchFunc(func(*http.Request) bool { return true })}).Handler(noop)
	assert.Equal(t, 200, serve(h, request()).Code)
	assert.Zero(t, c.asked.Load())
}

// Nothing would release the slot.
func TestAllowTakesNoSlot(t *testing.T) {
	c := roomFor(1)
	l := overloaded(t, c, middleware.Config{Rules: one})
	assert.True(t, l.Allow(httptest.NewRecorder(), request(), "one", ""))
	assert.Zero(t, c.asked.Load())
}

type incomparable struct{ _ []int }

func (incomparable) Admit(*http.Request) (middleware.Slot, time.Duration) { return nil, 0 }

// A bansMeanwhile has slots, and bans a client while it waits for one.
type bansMeanwhile struct {
	*counting
	ban func()
}

func (b *bansMeanwhile) Admit(r *http.Request) (middleware.Slot, time.Duration) {
	b.ban()
	return b.counting.Admit(r)
}

func TestASlotIsLeftOnceIfTheObserverPanics(t *testing.T) {
	room := roomFor(1)
	o := &bansMeanwhile{counting: room}
	config := middleware.Config{Rules: one, Overload: o, Observer: observer(func(*middleware.Observation) { panic("boom") })}
	l := limited(t, config)
	o.ban = func() {
		config.Bans.Deny = always
		require.NoError(t, l.Reconfigure(config))
	}
	assert.Panics(t, func() { serve(l.Handler(ok), request()) })
	assert.EqualValues(t, 1, room.left.Load())
}
