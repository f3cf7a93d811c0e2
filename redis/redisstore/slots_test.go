package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
)

func concurrency(t testing.TB, rule string, most int64) *limiter.Quota {
	t.Helper()
	q, err := limiter.NewConcurrency(rule, "", most)
	require.NoError(t, err)
	return q
}

// leases changes how long the leases of a store are, before it is used.
func (s *store) leases(d time.Duration) *store {
	s.slots.lease = d
	return s
}

// isIdle reports whether a store holds nothing, and Redis has confirmed that.
func (s *store) isIdle() bool {
	s.slots.mu.Lock()
	defer s.slots.mu.Unlock()
	return len(s.slots.byName) == 0
}

// silence ends a store's messages, as the end of its process would.
func (s *store) silence() { s.slots.close() }

// end settles an event that took a slot.
func end(t testing.TB, s limiter.Store, q *limiter.Quota, key string, d limiter.Decision) {
	t.Helper()
	require.NoError(t, s.Settle(context.WithoutCancel(t.Context()), []limiter.Settlement{{Charge: limiter.Charge{Quota: q, Key: key, Cost: 1, Decision: d}}}))
}

// A referee counts events that are under way, outside of any store.
type referee struct{ now, most atomic.Int64 }

func (r *referee) begin() {
	now := r.now.Add(1)
	for before := r.most.Load(); now > before && !r.most.CompareAndSwap(before, now); before = r.most.Load() {
	}
}

func (r *referee) end() { r.now.Add(-1) }

// A bad network loses what is sent and what is answered, and brings things twice and late.
type badNetwork struct {
	bad  atomic.Bool
	late sync.WaitGroup
}

var errReset = &net.OpError{Op: "read", Err: os.NewSyscallError("read", errors.New("connection reset by peer"))}

func (n *badNetwork) DialHook(next redis.DialHook) redis.DialHook { return next }

func (n *badNetwork) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		fail := func() error {
			cmd.SetErr(errReset)
			return errReset
		}
		switch r := rand.IntN(100); {
		case !n.bad.Load() || r >= 40:
			return next(ctx, cmd)
		case r < 10: // it does not arrive
			return fail()
		case r < 20: // the answer does not
			_ = next(ctx, cmd)
			return fail()
		case r < 30: // it comes twice
			_ = next(context.Background(), redis.NewCmd(ctx, cmd.Args()...))
			return next(ctx, cmd)
		default: // or when no one waits for it any more
			again := redis.NewCmd(context.Background(), cmd.Args()...)
			n.late.Go(func() {
				time.Sleep(rand.N(30 * time.Millisecond))
				_ = next(context.Background(), again)
			})
			return fail()
		}
	}
}

func (n *badNetwork) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestSlotsAreExactWhateverIsLostOrComesTwiceOrLate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	clock := newServerClock(t) // which stands still, so that no lease ends
	network := &badNetwork{}
	network.bad.Store(true)
	const most, processes, callers, times = 5, 3, 8, 60
	q := concurrency(t, "exports", most)
	other := bounded(t, "api", 1_000_000, limiter.SlidingCounter)
	keys := []string{"a", "b", "c"}
	referees := make([]referee, len(keys))
	var stores []*store
	var wg sync.WaitGroup
	for range processes {
		client := connectWith(t, server, network)
		s := onClock(t, clock, client, Options{}).leases(400 * time.Millisecond)
		stores = append(stores, s)
		for range callers {
			wg.Go(func() {
				for range times {
					i := rand.IntN(len(keys))
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if rand.IntN(4) == 0 { // a caller that leaves
						ctx, cancel = context.WithTimeout(ctx, rand.N(time.Millisecond))
					}
					charges := []limiter.Charge{charge(q, keys[i], 1), charge(other, "user", 1)}
					err := s.Decide(ctx, charges[:1+rand.IntN(2)])
					cancel()
					if err != nil || !charges[0].Decision.Allowed {
						continue
					}
					referees[i].begin()
					runtime.Gosched()
					time.Sleep(rand.N(2 * time.Millisecond))
					referees[i].end()
					_ = s.Settle(t.Context(), []limiter.Settlement{{Charge: charges[0]}})
				}
			})
		}
	}
	wg.Wait()
	network.late.Wait()
	network.bad.Store(false)
	for i := range keys {
		assert.LessOrEqual(t, referees[i].most.Load(), int64(most), "never more than the limit")
		t.Log(keys[i], referees[i].most.Load())
	}
	for i, s := range stores {
		await(t, fmt.Sprint("nothing to be held by process ", i), s.isIdle)
	}
	for _, key := range keys {
		for range most {
			assert.True(t, decideOne(t, stores[0], q, key, 1).Allowed, "all slots are free again")
		}
		assert.False(t, decideOne(t, stores[1], q, key, 1).Allowed)
	}
}

// Redis counts a slot then that nobody has, until it is told so.
func TestASlotIsFreeSoonThoughTheAnswerToItsTakerIsLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	clock := newServerClock(t) // which stands still: no lease ends
	var loses atomic.Bool
	link := &redistest.Link{Lose: loses.Load}
	client := closeAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr, Dialer: link.Dial}))
	s, other := onClock(t, clock, client, forgetting), onClock(t, clock, connect(t, server), forgetting)
	q := concurrency(t, "exports", 3)
	decideOne(t, s, q, "another key", 0)
	loses.Store(true)
	require.Error(t, s.Decide(t.Context(), []limiter.Charge{charge(q, "key", 1)}))
	loses.Store(false)
	await(t, "the slot to be free", func() bool { return decideOne(t, other, q, "key", 0).Remaining == 3 })
}

func TestAResetReleasesNoSlots(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := connect(t, server)
	one, other := New(client, patient), New(client, patient)
	q := concurrency(t, "slots", 5)
	decideOne(t, one, q, "key", 2)
	decideOne(t, other, q, "key", 1)
	charges := []limiter.Charge{{Quota: q, Key: "key"}}
	require.NoError(t, other.Reset(t.Context(), charges))
	assert.EqualValues(t, 2, decideOne(t, other, q, "key", 0).Remaining, "events in flight go on, in every process")

	name := one.names.Name(one.names.Digest("foreign"), q)
	server.MustDo("SET", name, "no counter of slots")
	charges[0].Key = "foreign"
	assert.True(t, decideOne(t, one, q, "foreign", 1).Degraded, "nobody knows which slots are held")
	require.NoError(t, other.Reset(t.Context(), charges))
	assert.False(t, decideOne(t, other, q, "foreign", 1).Degraded, "a reset makes it a counter")
	require.NoError(t, one.Close())
	require.NoError(t, other.Close())
}

func TestARefusedSlotIsForgottenInTime(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	clock := newServerClock(t)
	here, there := onClock(t, clock, connect(t, server), Options{}), onClock(t, clock, connect(t, server), Options{})
	q := concurrency(t, "exports", 1)
	d := decideOne(t, there, q, "key", 1)
	require.False(t, decideOne(t, here, q, "key", 1).Allowed)
	before, began := roundTrips(t, server), time.Now()
	for range 10_000 {
		require.False(t, decideOne(t, here, q, "key", 1).Allowed)
	}
	asked := roundTrips(t, server) - before
	assert.LessOrEqual(t, asked, 1+int(time.Since(began)/askEvery), "a flood of refused requests does not reach Redis")
	end(t, there, q, "key", d)
	await(t, "the process to hear of it", func() bool { return decideOne(t, here, q, "key", 1).Allowed })
}

func TestCloseTellsOfWhatWasReturnedAndRenewsNoMore(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := New(connect(t, server), patient)
	other := New(connect(t, server), patient)
	q := concurrency(t, "exports", 3)
	d := decideOne(t, s, q, "key", 1)
	decideOne(t, s, q, "key", 1)
	end(t, s, q, "key", d)
	require.NoError(t, s.Close())
	assert.EqualValues(t, 2, decideOne(t, other, q, "key", 0).Remaining, "what was returned is known, and what is held is not returned")
	end(t, s, q, "key", d)
	await(t, "a slot that is returned after it to be free", func() bool {
		return decideOne(t, other, q, "key", 0).Remaining == 3
	})
	require.NoError(t, s.Close())
	require.NoError(t, other.Close())
}

func TestWhatCountsSlotsExpires(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := New(connect(t, server), patient)
	q := concurrency(t, "exports", 3)
	end(t, s, q, "key", decideOne(t, s, q, "key", 1))
	require.NoError(t, s.Close())
	name := s.names.Name(s.names.Digest("key"), q)
	life := server.MustDo("PTTL", name)
	var ms int
	_, err := fmt.Sscan(life, &ms)
	require.NoError(t, err)
	assert.LessOrEqual(t, ms, int(slotLease/time.Millisecond*3/2)+1)
	assert.Greater(t, ms, 0)
}

func TestAbortedEventsLeaveNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := New(connect(t, server), patient)
	q := concurrency(t, "exports", 100)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for i := range 300 {
				key := fmt.Sprint(i)
				ctx, cancel := context.WithCancel(t.Context())
				if i%3 == 0 {
					go cancel()
				}
				charges := []limiter.Charge{charge(q, key, 1)}
				err := s.Decide(ctx, charges)
				cancel()
				if d := charges[0].Decision; err == nil && d.Allowed {
					end(t, s, q, key, d)
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, s.Close())
	await(t, "nothing to be left", s.bounded[0].isIdle)
}

// renewNow makes all renewals due.
func (h *slots) renewNow() {
	h.mu.Lock()
	for _, of := range h.byName {
		of.renewed = time.Time{}
	}
	h.mu.Unlock()
	h.tend()
	for isDone := false; !isDone; time.Sleep(time.Millisecond) {
		h.mu.Lock()
		isDone = true
		for _, of := range h.byName {
			isDone = isDone && of.asked.IsZero()
		}
		h.mu.Unlock()
	}
}
