package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
)

// A fakeRedis takes a batcher's batches: each is in flight until it is told to finish.
type fakeRedis struct{ sent chan *sentBatch }

type sentBatch struct {
	ctx    *batch
	groups []*group
	answer chan struct{}
}

func (w fakeRedis) send(b *batch, finished func()) {
	b.send()
	sent := &sentBatch{b, slices.Clone(b.groups), make(chan struct{})}
	w.sent <- sent
	<-sent.answer
	b.hear()
	finished()
	for _, g := range b.groups {
		g.deliver(answer{now: int64(len(g.items))}, nil)
	}
}

func (w fakeRedis) next(t *testing.T) *sentBatch {
	t.Helper()
	select {
	case c := <-w.sent:
		return c
	case <-time.After(patience):
		t.Fatal("no batch was sent")
		return nil
	}
}

// none says that nothing was sent. What could be was told so before, but for the
// goroutine, which therefore is given time to show itself.
func (w fakeRedis) none(t *testing.T, why string) {
	t.Helper()
	select {
	case c := <-w.sent:
		t.Fatalf("a batch of %d was sent: %s", len(c.groups), why)
	case <-time.After(5 * time.Millisecond):
	}
}

func (s *sentBatch) finish() { close(s.answer) }

func (s *sentBatch) charges() (n int) {
	for _, g := range s.groups {
		n += len(g.items)
	}
	return n
}

// A caller waits for its group.
type caller struct {
	*group
	cancel context.CancelFunc
	result chan bool // what ask returns
}

// startCall lets a caller of so many charges ask a batcher, and returns when its group is in
// flight or waits for that, or has been given up already, where deadlines are short.
func (b *batcher) startCall(t *testing.T, charges int) *caller {
	t.Helper()
	g := &group{done: make(chan struct{}, 1)}
	for range charges {
		g.add("name", &limiter.Charge{Quota: &limiter.Quota{}, Cost: 1})
	}
	ctx, cancel := context.WithCancel(t.Context())
	c := &caller{g, cancel, make(chan bool, 1)}
	go func() { c.result <- b.ask(ctx, g) }()
	await(t, "a caller to be under way", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return slices.Contains(b.waiting, g) || slices.ContainsFunc(b.inFlight, func(f *batch) bool { return slices.Contains(f.groups, g) }) ||
			len(c.result) > 0
	})
	return c
}

func (c *caller) hears(t *testing.T) bool {
	t.Helper()
	select {
	case answered := <-c.result:
		c.cancel()
		return answered
	case <-time.After(patience):
		t.Fatal("a caller hears nothing")
		return false
	}
}

// isAnswered says that a caller is answered, with its own answer.
func (c *caller) isAnswered(t *testing.T) {
	t.Helper()
	require.True(t, c.hears(t), "a caller was not answered")
	require.EqualValues(t, len(c.items), c.answer.now, "a caller got another's answer")
}

// leaves says that a caller's context ends and the caller leaves at once.
func (c *caller) leaves(t *testing.T) {
	t.Helper()
	c.cancel()
	require.False(t, c.hears(t), "a caller whose context has ended was answered")
}

func groupsOf(callers ...*caller) (groups []*group) {
	for _, c := range callers {
		groups = append(groups, c.group)
	}
	return groups
}

// isNear makes the way short for good, however long a test holds up batches.
func (b *batcher) isNear() { b.trip, b.measured, b.long = 0, true, time.Hour }

func (b *batcher) count() (inFlight, waiting int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.inFlight), len(b.waiting)
}

// awaitIdle says that a batcher has nothing left to carry, which it must come to.
func (b *batcher) awaitIdle(t *testing.T) {
	t.Helper()
	await(t, "a batcher without traffic to have nothing on its way", func() bool {
		inFlight, waiting := b.count()
		return inFlight+waiting == 0
	})
}

// bothWays runs a test on a batcher whose batches are led by callers, and on one whose have
// goroutines.
func bothWays(t *testing.T, most int, timeout time.Duration, test func(t *testing.T, b *batcher, w fakeRedis)) {
	for _, led := range []bool{true, false} {
		t.Run(fmt.Sprintf("led=%t", led), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := fakeRedis{make(chan *sentBatch, 1000)}
				b := newBatcher(led, most, 1, timeout, w.send)
				b.isNear()
				test(t, b, w)
				b.awaitIdle(t)
				w.none(t, "there are no calls any more")
			})
		})
	}
}

// longEnough is a timeout that does not matter.
const longEnough = patience

func TestTheFirstTwoLeaveAtOnceAndTheRestTogether(t *testing.T) {
	bothWays(t, 256, longEnough, func(t *testing.T, b *batcher, w fakeRedis) {
		var all []*caller
		for range 10 {
			all = append(all, b.startCall(t, 3))
		}
		first, second := w.next(t), w.next(t)
		assert.Len(t, first.groups, 1, "the first caller does not wait")
		assert.Len(t, second.groups, 1, "the second caller does not wait")
		w.none(t, "two batches are on their way already")
		first.finish()
		third := w.next(t)
		assert.Equal(t, groupsOf(all[2:]...), third.groups, "groups that came meanwhile leave together, in the order they came")
		w.none(t, "two batches are on their way already")
		second.finish()
		w.none(t, "no caller waits any more")

		third.finish()
		for _, c := range all {
			c.isAnswered(t)
		}
	})
}

func TestABatchHasNoMoreChargesThanItMay(t *testing.T) {
	bothWays(t, 10, longEnough, func(t *testing.T, b *batcher, w fakeRedis) {
		var all []*caller
		for _, charges := range []int{1, 1 /* wait: */, 4, 5, 1, 1, 10, 9, 25, 3, 7} {
			all = append(all, b.startCall(t, charges))
		}
		first, second := w.next(t), w.next(t)
		second.finish()
		for _, want := range []struct {
			groups, charges int
			why             string
		}{
			{3, 10, "4, 5 and 1 fill a batch"},
			{1, 1, "with 1 and 10 it would be too full"},
			{1, 10, ""},
			{1, 9, ""},
			{1, 25, "a group is not divided, however large"},
			{2, 10, "3 and 7 fill a batch"},
		} {
			c := w.next(t)
			assert.Len(t, c.groups, want.groups, want.why)
			assert.Equal(t, want.charges, c.charges(), want.why)
			c.finish()
		}
		first.finish()
		for _, c := range all {
			c.isAnswered(t)
		}
	})
}

func TestWithAMaxBatchOfOneEachTravelsAloneAndAtOnce(t *testing.T) {
	bothWays(t, 1, longEnough, func(t *testing.T, b *batcher, w fakeRedis) {
		var all []*caller
		var trips []*sentBatch
		for range 10 {
			all = append(all, b.startCall(t, 2))
			trips = append(trips, w.next(t))
			assert.Len(t, trips[len(trips)-1].groups, 1, "a batch has one group")
		}
		for i := range trips {
			trips[i].finish()
			all[i].isAnswered(t)
		}
	})
}

func TestACallerThatHasLeftIsNotInABatch(t *testing.T) {
	bothWays(t, 2, longEnough, func(t *testing.T, b *batcher, w fakeRedis) {
		var all []*caller
		for range 7 {
			all = append(all, b.startCall(t, 1))
		}
		first, second := w.next(t), w.next(t)
		for _, i := range []int{2, 3, 5} {
			all[i].leaves(t)
		}
		second.finish()
		third := w.next(t)
		assert.Equal(t, groupsOf(all[4], all[6]), third.groups, "a caller that left takes no place in a batch")
		all[4].leaves(t) // in flight
		x := b.startCall(t, 1)
		x.leaves(t)
		third.finish()
		first.finish()
		w.none(t, "all who waited have left")
		for _, i := range []int{0, 1, 6} {
			all[i].isAnswered(t)
		}
	})
}

func TestABatchThatHangsIsGivenUpAndOthersGoOn(t *testing.T) {
	const timeout = 400 * time.Millisecond
	bothWays(t, 256, timeout, func(t *testing.T, b *batcher, w fakeRedis) {
		start := time.Now()
		hung := []*caller{b.startCall(t, 1), b.startCall(t, 1)}
		first, second := w.next(t), w.next(t)
		time.Sleep(timeout / 2)
		next := []*caller{b.startCall(t, 1), b.startCall(t, 1)}
		third := w.next(t)
		assert.InDelta(t, timeout, time.Since(start), float64(timeout/lateness), "batches are given up in time")
		assert.Equal(t, groupsOf(next...), third.groups, "groups that waited leave when the batches before them are given up")
		await(t, "both to be given up", func() bool { return first.ctx.Err() != nil && second.ctx.Err() != nil })
		if !b.led {
			for _, c := range hung {
				assert.False(t, c.hears(t), "callers leave when their time is up, whatever becomes of their batch")
			}
		}
		x, z := b.startCall(t, 1), b.startCall(t, 1)
		fourth := w.next(t)
		first.finish()
		second.finish()
		y := b.startCall(t, 1)
		w.none(t, "batches that finish late make no room for a third")
		third.finish()
		fourth.finish()
		w.next(t).finish()
		if b.led {
			next = append(next, hung...)
		}
		for _, c := range append(next, x, y, z) {
			c.isAnswered(t)
		}
	})
}

func TestAnAnswerThatIsThereIsTakenHoweverLate(t *testing.T) {
	b := newBatcher(false, 256, 2, time.Hour, nil)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 { // as select picks at random
		g := newGroup(take)
		g.deliver(answer{now: 7}, nil)
		require.True(t, b.await(gone, g), "what was charged is reported as a failure, though the answer is there")
		require.EqualValues(t, 7, g.answer.now)
		g.free()
	}
}

// Callers come, wait, leave and hang at random. Each is answered once or has left, and
// that is all that is ever seen.
func TestEveryGroupIsAnsweredOrHasLeft(t *testing.T) {
	for _, led := range []bool{true, false} {
		for _, most := range []int{1, 2, 7, 256} {
			t.Run(fmt.Sprintf("led=%t, at most %d", led, most), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const timeout = 4 * time.Millisecond
					var b *batcher
					b = newBatcher(led, most, 1, timeout, func(f *batch, finished func()) {
						f.send()
						charges, batch := 0, f.groups
						for _, g := range batch {
							charges += len(g.items)
						}
						assert.False(t, charges > most && len(batch) > 1, "a batch has %d charges, more than %d", charges, most)
						if inFlight, _ := b.count(); most > 1 && inFlight > 2 {
							t.Errorf("%d batches are on their way", inFlight)
						}
						if rand.IntN(20) == 0 {
							<-f.Done()
							time.Sleep(time.Millisecond)
						} else {
							time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
						}
						f.hear()
						finished()
						for _, g := range batch {
							g.deliver(answer{now: int64(len(g.items))}, nil)
						}
					})
					b.isNear()
					var wg sync.WaitGroup
					var answered, gone atomic.Int64
					const callers, calls = 32, 150
					for range callers {
						wg.Go(func() {
							for range calls {
								ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(2000))*time.Microsecond)
								n := 1 + rand.IntN(4)
								g := &group{done: make(chan struct{}, 1)} // none of the pool, which is of other bubbles
								for range n {
									g.add("name", &limiter.Charge{Quota: &limiter.Quota{}, Cost: 1})
								}
								if b.ask(ctx, g) {
									assert.Equal(t, int64(n), g.answer.now, "a caller got another's answer")
									answered.Add(1)
								} else {
									gone.Add(1)
								}
								cancel()
							}
						})
					}
					wg.Wait()
					b.awaitIdle(t)
					time.Sleep(time.Second) // batches that were given up end
					assert.EqualValues(t, callers*calls, answered.Load()+gone.Load())
					assert.NotZero(t, answered.Load())
					assert.True(t, gone.Load() > 0 || led && most == 1, "nobody has left")
				})
			})
		}
	}
}

// A gate is before Redis: it counts the round trips of scripts, and can hold them up, on
// their way there or back.
type gate struct {
	mu          sync.Mutex
	shut        chan struct{} // nil: open
	shutBehind  chan struct{} // the same, for what Redis has answered
	trips, cmds int
}

func (h *gate) shutIt() (open func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	shut := make(chan struct{})
	h.shut = shut
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		close(shut)
		h.shut = nil
	})
}

// holdNextAnswer keeps the next answer back. answered is closed when Redis has given it.
func (h *gate) holdNextAnswer() (answered chan struct{}, release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	answered = make(chan struct{})
	h.shutBehind = make(chan struct{})
	behind := h.shutBehind
	h.shut = nil
	go func() {
		behind <- struct{}{}
		close(answered)
		<-behind
	}()
	return answered, func() { close(behind) }
}

func (h *gate) pass(cmds []redis.Cmder) (behind chan struct{}) {
	scripts := 0
	h.mu.Lock()
	for _, cmd := range cmds {
		if name := cmd.Name(); name == "evalsha" || name == "eval" {
			scripts++
		}
	}
	shut := h.shut
	if scripts > 0 {
		h.trips++
		h.cmds += scripts
		behind, h.shutBehind = h.shutBehind, nil
	}
	h.mu.Unlock()
	if scripts > 0 && shut != nil {
		<-shut
	}
	return behind
}

func (h *gate) count() (trips int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.trips
}

func (h *gate) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trips, h.cmds = 0, 0
}

func (h *gate) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		behind := h.pass([]redis.Cmder{cmd})
		err := next(ctx, cmd)
		if behind != nil {
			<-behind
			<-behind
		}
		return err
	}
}

func (h *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.pass(cmds)
		return next(ctx, cmds)
	}
}

// gated is a store on a server, with nothing between them but a gate and a long deadline.
func gated(t *testing.T) (*store, *gate, *redistest.Server) {
	t.Helper()
	server := redistest.Start(t)
	g := &gate{}
	s := newStore(connectWith(t, server, g), Options{}).Within(longEnough).(*store)
	s.batchers[0].isNear()
	for _, a := range []limiter.Algorithm{limiter.SlidingWindow, limiter.TokenBucket} { // so that Redis knows the scripts
		one, two := bounded(t, "one", 1000, a), bounded(t, "two", 1000, a)
		decideOne(t, s, one, "", 1)
		require.NoError(t, s.Decide(t.Context(), []limiter.Charge{charge(one, "", 1), charge(two, "", 1)}, make([]limiter.Decision, 2)))
	}
	s.batchers[0].awaitIdle(t)
	g.forget()
	return s, g, server
}

func TestALoneDecisionIsOneRoundTripWhateverTheNumberOfRules(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(connect(t, server), forgetting).Within(patience)
	for _, rules := range []int{1, 2, 5, limiter.MaxCharges} {
		var charges []limiter.Charge
		for i := range rules {
			q := bounded(t, fmt.Sprint("rule ", i), 10, everyAlgorithm[i%len(everyAlgorithm)])
			charges = append(charges, limiter.Charge{Quota: q, Key: fmt.Sprint("key ", rules, i%3), Cost: 1})
		}
		decisions := make([]limiter.Decision, rules)
		require.NoError(t, s.Decide(t.Context(), charges, decisions)) // Redis learns the scripts
		require.NoError(t, s.Refund(t.Context(), charges))
		before := roundTrips(t, server)
		for range 12 { // 10 taken, 2 refused
			require.NoError(t, s.Decide(t.Context(), charges, decisions))
		}
		assert.Equal(t, 12, roundTrips(t, server)-before, "12 decisions about %d rules are 12 round trips", rules)
		require.NoError(t, s.Refund(t.Context(), charges))
		require.NoError(t, s.Reset(t.Context(), charges))
		assert.Equal(t, 14, roundTrips(t, server)-before, "giving back is one round trip, and so is a reset")
	}
}

func TestASlowServerIsAskedFarLessOftenThanItIsNeeded(t *testing.T) {
	server := redistest.Start(t)
	client := connectWith(t, server, slowly(time.Millisecond))
	s := New(client, Options{})
	q := bounded(t, "rule", 1_000_000, limiter.SlidingWindow)
	const callers, calls = 64, 50
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range calls {
				if d := decideOne(t, s, q, "key", 1); d.Degraded {
					return // on a machine so busy that 50 ms pass
				}
			}
		})
	}
	wg.Wait()
	decided := int(s.Stats().Decided)
	assert.Less(t, roundTrips(t, server), decided/8, "%d decisions of %d callers share round trips", decided, callers)
	again := roundTrips(t, server) - int(s.Stats().Batches)
	assert.True(t, 1 <= again && again <= 4, "Batches counts round trips, but for the %d with the script's source", again)
}

// slowly is a hook under which a round trip takes at least so long.
type slowly time.Duration

func (d slowly) DialHook(next redis.DialHook) redis.DialHook { return next }
func (d slowly) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(time.Duration(d))
		return next(ctx, cmd)
	}
}
func (d slowly) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestADecisionThatIsTooLateIsNotAskedFor(t *testing.T) {
	s, gate, _ := gated(t)
	q := bounded(t, "rule", 100, limiter.TokenBucket)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	charges := []limiter.Charge{{Quota: q, Key: "key", Cost: 1}}
	assert.ErrorIs(t, s.Decide(ctx, charges, make([]limiter.Decision, 1)), context.Canceled)
	assert.ErrorIs(t, s.Refund(ctx, charges), context.Canceled)
	assert.ErrorIs(t, s.Reset(ctx, charges), context.Canceled)
	trips := gate.count()
	assert.Zero(t, trips, "a caller that has left already reaches nobody")
}

// Every kind of deployment, each with servers of its own.
var deployments = []struct {
	name string
	// start returns what makes clients.
	start func(t *testing.T) func() redis.UniversalClient
}{
	{"a single server", func(t *testing.T) func() redis.UniversalClient {
		server := redistest.Start(t)
		return func() redis.UniversalClient { return connect(t, server) }
	}},
	{"a Cluster", func(t *testing.T) func() redis.UniversalClient {
		nodes := redistest.Cluster(t)
		return func() redis.UniversalClient {
			return closeAfter(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes)}))
		}
	}},
	{"a Ring", func(t *testing.T) func() redis.UniversalClient {
		one, two := redistest.Start(t), redistest.Start(t)
		return func() redis.UniversalClient {
			return closeAfter(t, redis.NewRing(&redis.RingOptions{
				Addrs:              map[string]string{"one": one.Addr, "two": two.Addr},
				HeartbeatFrequency: time.Minute, // a busy machine is no reason to move keys
			}))
		}
	}},
	{"Sentinel", func(t *testing.T) func() redis.UniversalClient {
		sentinel := redistest.Sentinels(t)
		return func() redis.UniversalClient {
			return closeAfter(t, redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName: sentinel.Name, SentinelAddrs: redistest.Addrs(sentinel.Sentinels),
			}))
		}
	}},
}

func TestExactlyTheLimitIsAdmittedOfManyConcurrentRequests(t *testing.T) {
	t.Parallel()
	for _, at := range deployments {
		t.Run(at.name, func(t *testing.T) {
			t.Parallel()
			client := at.start(t)
			for _, o := range []Options{{}, forgetting, {MaxBatch: 1, ForgetRefusals: true}, {MaxBatch: 3}} {
				var stores []limiter.Store
				for range 5 {
					stores = append(stores, newStore(client(), o).Within(patience))
				}
				for _, a := range everyAlgorithm {
					q := bounded(t, fmt.Sprintf("%v %d %t", a, o.MaxBatch, o.ForgetRefusals), 100, a)
					capacity := q.Capacity()
					var admitted atomic.Int64
					var wg sync.WaitGroup
					for i := range 40 {
						wg.Go(func() {
							for range 10 {
								if decideOne(t, stores[i%len(stores)], q, "key", 1).Allowed {
									admitted.Add(1)
								}
							}
						})
					}
					wg.Wait()
					assert.Equal(t, capacity, admitted.Load(), "%v admits exactly %d of 400 requests with %+v", a, capacity, o)
				}
			}
		})
	}
}

func TestExactlyTheLimitIsAdmittedByBatchesOfSeveralRules(t *testing.T) {
	t.Parallel()
	for _, at := range deployments {
		t.Run(at.name, func(t *testing.T) {
			t.Parallel()
			client := at.start(t)
			var stores []limiter.Store
			for range 4 {
				stores = append(stores, newStore(client(), forgetting).Within(patience))
			}
			// Of one key, so that they are decided together everywhere. The tightest binds.
			wide := bounded(t, "wide", 500, limiter.TokenBucket)
			tight := bounded(t, "tight", 70, limiter.SlidingWindow)
			middle := bounded(t, "middle", 80, limiter.SlidingLog)
			var admitted atomic.Int64
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					charges := []limiter.Charge{{Quota: wide, Key: "key", Cost: 2}, {Quota: tight, Key: "key", Cost: 1}, {Quota: middle, Key: "key", Cost: 1}}
					decisions := make([]limiter.Decision, len(charges))
					for range 10 {
						if assert.NoError(t, stores[i%4].Decide(t.Context(), charges, decisions)) && allowed(decisions) {
							admitted.Add(1)
						}
					}
				})
			}
			wg.Wait()
			assert.EqualValues(t, 70, admitted.Load(), "the tightest rule admits exactly its limit")
			for q, want := range map[*limiter.Quota]int64{wide: 500 - 2*70, tight: 0, middle: 10} {
				assert.Equal(t, want, decideOne(t, stores[0], q, "key", 0).Remaining, "refused batches took nothing of %q", q.Rule())
			}
		})
	}
}

func allowed(decisions []limiter.Decision) bool {
	return !slices.ContainsFunc(decisions, func(d limiter.Decision) bool { return !d.Allowed })
}

// Each caller has keys, limits and costs that are like nobody else's, so that an answer
// that went astray would be noticed.
func TestEachCallerGetsItsOwnAnswers(t *testing.T) {
	t.Parallel()
	for _, at := range deployments[:3] {
		t.Run(at.name, func(t *testing.T) {
			t.Parallel()
			s := newStore(at.start(t)(), Options{MaxBatch: 50}).Within(patience)
			var wg sync.WaitGroup
			for caller := range 48 {
				wg.Go(func() {
					random := rand.New(rand.NewPCG(1, uint64(caller)))
					var counters []limiter.Charge
					remaining := map[*limiter.Quota]int64{}
					for i := range 6 {
						q := bounded(t, fmt.Sprintf("rule %d of %d", i, caller), int64(50+10*caller+i), everyAlgorithm[(caller+i)%5])
						remaining[q] = q.Capacity()
						counters = append(counters, limiter.Charge{Quota: q, Key: fmt.Sprintf("key %d of %d", i/2, caller)})
					}
					for range 25 {
						var charges []limiter.Charge
						all := true
						for _, i := range random.Perm(len(counters))[:1+random.IntN(4)] {
							c := counters[i]
							c.Cost = random.Int64N(40)
							all = all && c.Cost <= remaining[c.Quota]
							charges = append(charges, c)
						}
						decisions := make([]limiter.Decision, len(charges))
						if !assert.NoError(t, s.Decide(t.Context(), charges, decisions)) {
							return
						}
						for i, c := range charges {
							fits := c.Cost <= remaining[c.Quota]
							if all {
								remaining[c.Quota] -= c.Cost
							}
							got, want := decisions[i], remaining[c.Quota]
							if got.Limit != c.Quota.Capacity() || got.Remaining != want || got.Allowed != fits {
								t.Errorf("caller %d charged %d to %v and was answered %+v, want %d remaining and allowed = %t",
									caller, c.Cost, c.Quota.Limit(), got, want, fits)
								return
							}
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// scattered is keys with one on each node of a cluster, and how a store names their
// counters under q.
func scattered(t *testing.T, nodes []*redistest.Server, s *store, q *limiter.Quota) (keys, names []string) {
	t.Helper()
	for _, node := range nodes {
		for i := 0; ; i++ {
			key := fmt.Sprint("key ", len(keys), " ", i)
			if name := s.names.Name(s.names.Tag(key), q); redistest.Owner(nodes, name) == node {
				keys, names = append(keys, key), append(names, name)
				break
			}
		}
	}
	return keys, names
}

func TestChargesOnSeveralNodesAreTakenAllOrNone(t *testing.T) {
	t.Parallel()
	nodes := redistest.Cluster(t)
	clock := newSteadyClock(t)
	client := closeAfter(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes)}))
	s := onClock(t, clock, client, forgetting)
	for _, a := range everyAlgorithm {
		t.Run(a.String(), func(t *testing.T) {
			q := quotaOf(t, "rule "+a.String(), limiter.PerMinute(10).With(a))
			keys, names := scattered(t, nodes, s, q)
			other := quotaOf(t, "other "+a.String(), limiter.PerMinute(10).With(a))
			charges := []limiter.Charge{charge(q, keys[0], 2), charge(q, keys[1], 3), charge(other, keys[0], 4), charge(q, keys[2], 1)}
			decisions := make([]limiter.Decision, len(charges))
			require.NoError(t, s.Decide(t.Context(), charges, decisions))
			for i, want := range []int64{8, 7, 6, 9} {
				assert.Equal(t, q.Capacity()-10+want, decisions[i].Remaining, "charge %d is taken where it belongs", i)
				assert.True(t, decisions[i].Allowed)
			}

			clock.sleep(123 * time.Millisecond)
			decideOne(t, s, q, keys[2], q.Capacity()-1) // exhausts the last
			looks := func() []limiter.Decision {
				t.Helper()
				d := make([]limiter.Decision, len(charges))
				free := slices.Clone(charges)
				for i := range free {
					free[i].Cost = 0
				}
				require.NoError(t, s.Decide(t.Context(), free, d))
				return d
			}
			before := looks()
			values := func() (v []string) {
				for _, name := range names {
					v = append(v, redistest.Owner(nodes, name).MustDo("GET", name))
				}
				return v
			}
			require.NoError(t, s.Decide(t.Context(), charges, decisions))
			alone := decideOne(t, s, q, keys[2], 1)
			assert.False(t, alone.Allowed)
			assert.Equal(t, alone, decisions[3], "what stood in the way says so, and since when")
			assert.Equal(t, before[:3], decisions[:3], "the others are described as looks")
			assert.Equal(t, before, looks(), "what others took is given back: the state is as before")

			// Given back at the instant it was taken, what is stored is the same too, but for
			// the time it was stored.
			first := values()
			require.NoError(t, s.Decide(t.Context(), charges, decisions))
			assert.Equal(t, first, values(), "a refusal changes no state")
		})
	}
}

func TestWhatANodeTookIsGivenBackIfAnotherFails(t *testing.T) {
	t.Parallel()
	one, two := redistest.Start(t), redistest.Start(t)
	servers := []*redistest.Server{one, two}
	client := closeAfter(t, redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"one": one.Addr, "two": two.Addr}, HeartbeatFrequency: time.Minute,
	}))
	s := newStore(client, forgetting).Within(patience).(*store)
	q := bounded(t, "rule", 10, limiter.SlidingWindow)
	var keys [2]string // on each
	for i := 0; keys[0] == "" || keys[1] == ""; i++ {
		key := fmt.Sprint("key ", i)
		decideOne(t, s, q, key, 1)
		for at, server := range servers {
			if server.MustDo("EXISTS", s.names.Name(s.names.Tag(key), q)) == "1" {
				keys[at] = key
			}
		}
	}
	two.MustDo("ACL", "SETUSER", "default", "-eval", "-evalsha")
	for _, charges := range [][]limiter.Charge{
		{charge(q, keys[0], 5), charge(q, keys[1], 5)},
		{charge(q, keys[1], 5), charge(q, keys[0], 5)},
	} {
		err := s.Decide(t.Context(), charges, make([]limiter.Decision, 2))
		require.ErrorContains(t, err, "NOPERM", "an error of one server is an error of the decision")
		assert.EqualValues(t, 9, decideOne(t, s, q, keys[0], 0).Remaining, "what the other server took is given back")
	}
	assert.Error(t, s.Refund(t.Context(), []limiter.Charge{charge(q, keys[1], 1), charge(q, keys[0], 1)}))
	assert.EqualValues(t, 10, decideOne(t, s, q, keys[0], 0).Remaining, "what can be given back is, though another server fails")
	two.MustDo("ACL", "SETUSER", "default", "+eval", "+evalsha")
	assert.EqualValues(t, 9, decideOne(t, s, q, keys[1], 0).Remaining)
}

// While a slot moves, a script on two counters of a key has to be tried again until both
// are on one node. Others that went out with it are not to be run again.
func TestAScriptThatIsTriedAgainDisturbsNoOther(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t)
	client := closeAfter(t, redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: redistest.Addrs(nodes), MaxRedirects: 1000, MinRetryBackoff: time.Millisecond, MaxRetryBackoff: 10 * time.Millisecond,
	}))
	h := &gate{}
	client.AddHook(h)
	s := newStore(client, forgetting).Within(patience).(*store)
	one, two := bounded(t, "one", 10, limiter.SlidingWindow), bounded(t, "two", 10, limiter.SlidingWindow)
	var keys []string
	for i := 0; len(keys) < 4; i++ { // of one batcher, and on one node
		if key := fmt.Sprint("key ", i); s.part(s.names.Tag(key)) == 0 {
			keys = append(keys, key)
		}
	}
	moves, stays := keys[0], keys[1]
	from := redistest.Owner(nodes, s.names.Name(s.names.Tag(stays), one))
	to := nodes[(slices.Index(nodes, from)+1)%3]
	type result struct {
		d   []limiter.Decision
		err error
	}
	send := func(charges ...limiter.Charge) chan result {
		inFlight, waiting := s.batchers[0].count()
		c := make(chan result, 1)
		go func() {
			d := make([]limiter.Decision, len(charges))
			c <- result{d, s.Decide(context.Background(), charges, d)}
		}()
		await(t, "a caller to be under way", func() bool {
			f, w := s.batchers[0].count()
			return f+w == inFlight+waiting+1
		})
		return c
	}
	receive := func(c chan result, remaining int64) {
		t.Helper()
		select {
		case r := <-c:
			require.NoError(t, r.err)
			for _, d := range r.d {
				assert.Equal(t, remaining, d.Remaining, "what was charged once is counted once")
			}
		case <-time.After(patience):
			t.Fatal("a script that has to be tried again got no answer")
		}
	}
	var remaining int64 = 10
	for _, first := range []bool{true, false} {
		for range 2 { // both counters have to be there when their slot begins to move
			remaining--
			decideOne(t, s, one, moves, 1)
			decideOne(t, s, two, moves, 1)
			decideOne(t, s, one, stays, 1)
		}
		s.batchers[0].awaitIdle(t)
		finish := redistest.BeginMove(nodes, s.names.Name(s.names.Tag(moves), one), to)
		open := h.shutIt()
		defer open()
		before := []chan result{send(charge(one, keys[2], 0)), send(charge(one, keys[3], 0))}
		var split, whole chan result
		if first {
			split = send(charge(one, moves, 1), charge(two, moves, 1))
		}
		whole = send(charge(one, stays, 1))
		if !first {
			split = send(charge(one, moves, 1), charge(two, moves, 1))
		}
		open()
		remaining--
		for _, c := range before {
			receive(c, 10)
		}
		finish()
		receive(whole, remaining)
		receive(split, remaining)
		s.batchers[0].awaitIdle(t)
		to = from
	}
}

// Charges on several nodes hold each other's units for a moment, so fewer than the limit
// may pass; never more, and nothing is lost.
func TestConcurrentBatchesOverNodesNeitherAdmitTooMuchNorLoseUnits(t *testing.T) {
	t.Parallel()
	nodes := redistest.Cluster(t)
	var stores []*store
	for range 3 {
		client := closeAfter(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes)}))
		stores = append(stores, newStore(client, forgetting).Within(patience).(*store))
	}
	for _, a := range everyAlgorithm {
		q := bounded(t, "rule "+a.String(), 60, a)
		keys, _ := scattered(t, nodes, stores[0], q)
		var used [3]atomic.Int64
		var wg sync.WaitGroup
		for i := range 24 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(a), uint64(i)))
				for range 12 {
					var charges []limiter.Charge
					order := random.Perm(3)[:2+random.IntN(2)]
					for _, k := range order {
						charges = append(charges, limiter.Charge{Quota: q, Key: keys[k], Cost: 1})
					}
					decisions := make([]limiter.Decision, len(charges))
					if assert.NoError(t, stores[i%3].Decide(t.Context(), charges, decisions)) && allowed(decisions) {
						for _, k := range order {
							used[k].Add(1)
						}
					}
				}
			})
		}
		wg.Wait()
		for k := range keys {
			assert.LessOrEqual(t, used[k].Load(), q.Capacity(), "%v admits no more than its limit", a)
			if a == limiter.LeakyBucket { // a turn that others are behind drains
				continue
			}
			assert.Equal(t, q.Capacity()-used[k].Load(), decideOne(t, stores[0], q, keys[k], 0).Remaining,
				"%v: what refused batches took is given back to the last unit", a)
		}
	}
}

func TestADecisionKeepsItsDeadlineWhileTheServerHangs(t *testing.T) {
	// Not parallel: it looks for goroutines.
	server := redistest.Start(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent(), goleak.Cleanup(func(int) {}))
	for _, timeout := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond} {
		client := redis.NewClient(&redis.Options{Addr: server.Addr, ReadTimeout: time.Hour}) // which ends no call
		s := New(client, Options{}).Within(timeout)
		q := bounded(t, "rule", 1000, limiter.SlidingWindow)
		answers := func() bool {
			return s.Decide(t.Context(), []limiter.Charge{{Quota: q, Key: "key"}}, make([]limiter.Decision, 1)) == nil
		}
		await(t, "a decision", answers) // which may be late at first, on a busy machine
		server.Pause()
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for range 5 {
					start := time.Now()
					charges := []limiter.Charge{{Quota: q, Key: "key", Cost: 1}}
					err := s.Decide(t.Context(), charges, make([]limiter.Decision, 1))
					assert.Error(t, err)
					assert.GreaterOrEqual(t, time.Since(start), timeout, "it waits for the server as long as it may: %v", err)
				}
			})
		}
		wg.Wait()
		assert.Error(t, s.Refund(t.Context(), []limiter.Charge{{Quota: q, Key: "key", Cost: 1}}), "Refund keeps the deadline too")

		server.Resume()
		await(t, "decisions after the server has come back", answers)
		require.NoError(t, client.Close())
	}
}

// unanswered is a sendFunc to a server that never answers.
func unanswered(b *batch, finished func()) {
	b.send()
	deadline, _ := b.Deadline()
	select {
	case <-time.After(time.Until(deadline)):
	case <-b.Done():
	}
	finished()
	for _, g := range b.groups {
		g.deliver(answer{}, context.DeadlineExceeded)
	}
}

// aGroup has one charge.
func aGroup() *group {
	g := &group{done: make(chan struct{}, 1)}
	g.add("name", &limiter.Charge{Quota: &limiter.Quota{}, Cost: 1})
	return g
}

// A caller may lead only after it has waited for another to be given up.
func TestADecisionKeepsItsDeadlineWheneverItComes(t *testing.T) {
	for _, led := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			const timeout = time.Second
			b := newBatcher(led, 256, 1, timeout, unanswered)
			b.isNear()
			bound := b.patience() + timeout/lateness
			var wg sync.WaitGroup
			for n := range time.Duration(10) {
				wg.Go(func() {
					time.Sleep(n * timeout / 10)
					start := time.Now()
					b.ask(t.Context(), aGroup())
					assert.LessOrEqual(t, time.Since(start), bound, "a caller that came %v after the first waits too long", n*timeout/10)
				})
			}
			wg.Wait()
			b.awaitIdle(t)
		})
	}
}

func TestADecisionKeepsItsDeadlineWhereOneNodeOfSeveralHangs(t *testing.T) {
	t.Parallel()
	const timeout = 50 * time.Millisecond
	nodes := redistest.StartCluster(t)
	client := closeAfter(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes), ReadTimeout: time.Hour}))
	s := newStore(client, forgetting).Within(timeout).(*store)
	q := bounded(t, "rule", 1000, limiter.SlidingWindow)
	keys, _ := scattered(t, nodes, s, q)
	charges := []limiter.Charge{charge(q, keys[0], 1), charge(q, keys[1], 1), charge(q, keys[2], 1)}
	decisions := make([]limiter.Decision, 3)
	await(t, "a first answer", func() bool { return s.Decide(t.Context(), charges, decisions) == nil })
	await(t, "the same on every key", func() bool {
		ok := true
		for _, key := range keys {
			var d [1]limiter.Decision
			ok = ok && s.Decide(t.Context(), []limiter.Charge{{Quota: q, Key: key}}, d[:]) == nil
		}
		return ok
	})
	nodes[1].Pause()
	defer nodes[1].Resume()
	before := decideOne(t, s, q, keys[0], 0).Remaining
	for range 5 {
		assert.ErrorIs(t, s.Decide(t.Context(), charges, decisions), context.DeadlineExceeded)
	}
	assert.Equal(t, before, decideOne(t, s, q, keys[0], 0).Remaining, "what live nodes took meanwhile is given back")
	var failed error
	for _, key := range []string{keys[0], keys[2]} {
		var d [1]limiter.Decision
		failed = errors.Join(failed, s.Decide(t.Context(), []limiter.Charge{{Quota: q, Key: key, Cost: 1}}, d[:]))
	}
	assert.NoError(t, failed, "keys on other nodes do not wait for the one that hangs")
}
