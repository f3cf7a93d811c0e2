package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	b.flight.Write()
	sent := &sentBatch{b, slices.Clone(b.groups), make(chan struct{})}
	w.sent <- sent
	<-sent.answer
	b.flight.Hear()
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

// The timer may be about to run for something else.
func TestWhatLingersIsSentAfterAMoment(t *testing.T) {
	bothWays(t, 256, longEnough, func(t *testing.T, b *batcher, w fakeRedis) {
		b.mu.Lock()
		b.holdings.arm(time.Now().Add(linger / 2))
		b.mu.Unlock()
		g := &group{done: make(chan struct{}, 1), tells: true}
		g.add("name", &limiter.Charge{Quota: &limiter.Quota{}, Cost: 1})
		begun := time.Now()
		b.settle(g)
		w.next(t).finish()
		assert.LessOrEqual(t, time.Since(begun), 2*linger)
	})
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
		await(t, "both to be given up", func() bool { return first.ctx.flight.Err() != nil && second.ctx.flight.Err() != nil })
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

// begin starts a batch of the groups that wait, with these behind them, if there is one to start. b
// is locked.
func (b *batcher) begin(groups ...*group) *batch {
	b.waiting = append(b.waiting, groups...)
	next := b.next()
	if next == nil {
		return nil
	}
	batch := b.start(next, false, time.Now())
	b.watch.Stop()
	return batch
}

func TestADecisionWaitsForASettlementOfItsCounterInFlight(t *testing.T) {
	b := newBatcher(false, 256, 2, time.Hour, func(*batch, func()) {})
	of := func(name string, ended func(*group)) *group {
		g := &group{done: make(chan struct{}, 1), ended: ended}
		g.add(name, &limiter.Charge{Quota: &limiter.Quota{}, Cost: 1})
		return g
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	first := b.begin(of("a", func(*group) {}), of("a", func(*group) {}))
	require.Len(t, first.groups, 2)
	waits, other := of("a", nil), of("b", nil)
	second := b.begin(waits, other)
	require.NotNil(t, second)
	assert.Equal(t, []*group{other}, second.groups, "batches may overtake each other")
	require.True(t, b.finish(second))
	assert.Nil(t, b.begin())
	require.True(t, b.finish(first))
	assert.Equal(t, []*group{waits}, b.begin().groups)
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
						f.flight.Write()
						charges, batch := 0, f.groups
						for _, g := range batch {
							charges += len(g.items)
						}
						assert.False(t, charges > most && len(batch) > 1, "a batch has %d charges, more than %d", charges, most)
						if inFlight, _ := b.count(); inFlight > 2 {
							t.Errorf("%d batches are on their way", inFlight)
						}
						if rand.IntN(20) == 0 {
							<-f.flight.Done()
							time.Sleep(time.Millisecond)
						} else {
							time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
						}
						f.flight.Hear()
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

func TestALoneDecisionIsOneRoundTripWhateverTheNumberOfRules(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(connect(t, server), forgetting).Within(patience)
	for _, rules := range []int{1, 2, 5, limiter.MaxCharges} {
		var charges []limiter.Charge
		for i := range rules {
			q := bounded(t, fmt.Sprint("rule ", i), 10, everyAlgorithm[i%len(everyAlgorithm)])
			charges = append(charges, limiter.Charge{Quota: q, Key: fmt.Sprint("key ", rules, i%3), Cost: 1})
		}
		require.NoError(t, s.Decide(t.Context(), charges)) // Redis learns the scripts
		require.NoError(t, s.(*store).change(t.Context(), settle, refunds(charges...)))
		before := roundTrips(t, server)
		for range 12 { // 10 taken, 2 refused
			require.NoError(t, s.Decide(t.Context(), charges))
		}
		assert.Equal(t, 12, roundTrips(t, server)-before, "12 decisions about %d rules are 12 round trips", rules)
		require.NoError(t, s.(*store).change(t.Context(), settle, refunds(charges...)))
		require.NoError(t, s.Reset(t.Context(), charges))
		assert.Equal(t, 14, roundTrips(t, server)-before, "giving back is one round trip, and so is a reset")
	}
}

func TestExactlyTheLimitIsAdmittedByBatchesOfSeveralRules(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(t *testing.T) redis.UniversalClient{
		"a single server": func(t *testing.T) redis.UniversalClient { return connect(t, redistest.Start(t)) },
		"a Cluster": func(t *testing.T) redis.UniversalClient {
			return closeAfter(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(redistest.Cluster(t))}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := connect(t)
			var stores []limiter.Store
			for range 4 {
				stores = append(stores, newStore(client, forgetting).Within(patience))
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
					for range 10 {
						if assert.NoError(t, stores[i%4].Decide(t.Context(), charges)) && allowed(decisionsOf(charges)) {
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

// scattered is keys with one on each node of a cluster, and how a store names their
// counters under q.
func scattered(t *testing.T, nodes []*redistest.Server, s *store, q *limiter.Quota) (keys, names []string) {
	t.Helper()
	for _, node := range nodes {
		for i := 0; ; i++ {
			key := fmt.Sprint("key ", len(keys), " ", i)
			if name := s.names.Name(s.names.Digest(key), q); redistest.Owner(nodes, name) == node {
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
			decisions := decide(t, s, charges...)
			for i, want := range []int64{8, 7, 6, 9} {
				assert.Equal(t, q.Capacity()-10+want, decisions[i].Remaining, "charge %d is taken where it belongs", i)
				assert.True(t, decisions[i].Allowed)
			}

			clock.sleep(123 * time.Millisecond)
			decideOne(t, s, q, keys[2], q.Capacity()-1) // exhausts the last
			looks := func() []limiter.Decision {
				t.Helper()
				free := slices.Clone(charges)
				for i := range free {
					free[i].Cost = 0
				}
				return decide(t, s, free...)
			}
			before := looks()
			values := func() (v []string) {
				for _, name := range names {
					v = append(v, redistest.Owner(nodes, name).MustDo("GET", name))
				}
				return v
			}
			decisions = decide(t, s, charges...)
			alone := decideOne(t, s, q, keys[2], 1)
			assert.False(t, alone.Allowed)
			assert.Equal(t, alone, decisions[3], "what stood in the way says so, and since when")
			assert.Equal(t, before[:3], decisions[:3], "the others are described as looks")
			assert.Equal(t, before, looks(), "what others took is given back: the state is as before")

			// Given back at the instant it was taken, what is stored is the same too, but for
			// the time it was stored.
			first := values()
			decide(t, s, charges...)
			assert.Equal(t, first, values(), "a refusal changes no state")
		})
	}
}

func TestWhatANodeTookIsGivenBackIfAnotherFails(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t)[:2]
	two := servers[1]
	client := closeAfter(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(servers)}))
	s := newStore(client, forgetting).Within(patience).(*store)
	q := bounded(t, "rule", 10, limiter.SlidingWindow)
	var keys [2]string // on each
	for i := 0; keys[0] == "" || keys[1] == ""; i++ {
		key := fmt.Sprint("key ", i)
		decideOne(t, s, q, key, 1)
		for at, server := range servers {
			if found, _ := server.Do("EXISTS", s.names.Name(s.names.Digest(key), q)); found == "1" {
				keys[at] = key
			}
		}
	}
	two.MustDo("ACL", "SETUSER", "default", "-eval", "-evalsha")
	for _, charges := range [][]limiter.Charge{
		{charge(q, keys[0], 5), charge(q, keys[1], 5)},
		{charge(q, keys[1], 5), charge(q, keys[0], 5)},
	} {
		err := s.Decide(t.Context(), charges)
		require.ErrorContains(t, err, "NOPERM", "an error of one server is an error of the decision")
		assert.EqualValues(t, 9, decideOne(t, s, q, keys[0], 0).Remaining, "what the other server took is given back")
	}
	assert.Error(t, s.change(t.Context(), settle, refunds(charge(q, keys[1], 1), charge(q, keys[0], 1))))
	assert.EqualValues(t, 10, decideOne(t, s, q, keys[0], 0).Remaining, "what can be given back is, though another server fails")
	two.MustDo("ACL", "SETUSER", "default", "+eval", "+evalsha")
	assert.EqualValues(t, 9, decideOne(t, s, q, keys[1], 0).Remaining)
}

// Charges on several nodes hold each other's units for a moment, so fewer than the limit
// may pass; never more, and nothing is lost.
func TestConcurrentBatchesOverNodesKeepTheLimitAndLoseNothing(t *testing.T) {
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
					if assert.NoError(t, stores[i%3].Decide(t.Context(), charges)) && allowed(decisionsOf(charges)) {
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
