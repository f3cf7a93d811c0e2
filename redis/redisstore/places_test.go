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
	for _, b := range s.batchers {
		b.holdings.lease = d
	}
	return s
}

// end settles an event that took a place.
func end(t testing.TB, s limiter.Store, q *limiter.Quota, key string, d limiter.Decision) {
	t.Helper()
	require.NoError(t, limiter.Settle(context.WithoutCancel(t.Context()), s, []limiter.Settlement{{Charge: limiter.Charge{Quota: q, Key: key, Cost: 1, At: d.At}}}))
}

// isIdle reports whether a store holds nothing, and has told Redis.
func (s *store) isIdle() bool {
	for _, b := range s.batchers {
		b.mu.Lock()
		idle := len(b.holdings.byName) == 0 && b.holdings.pending == 0
		b.mu.Unlock()
		if !idle {
			return false
		}
	}
	return true
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

func TestPlacesAreExactWhateverIsLostOrComesTwiceOrLate(t *testing.T) {
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
					d := make([]limiter.Decision, 2)
					err := s.Decide(ctx, charges[:1+rand.IntN(2)], d)
					cancel()
					if err != nil || !d[0].Allowed {
						continue
					}
					referees[i].begin()
					runtime.Gosched()
					time.Sleep(rand.N(2 * time.Millisecond))
					referees[i].end()
					charges[0].At = d[0].At
					if rand.IntN(2) == 0 {
						_ = s.Refund(t.Context(), charges[:1])
					} else {
						_ = s.Settle(t.Context(), []limiter.Settlement{{Charge: charges[0]}})
					}
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
			assert.True(t, decideOne(t, stores[0], q, key, 1).Allowed, "all places are free again")
		}
		assert.False(t, decideOne(t, stores[1], q, key, 1).Allowed)
	}
}

// Of two keys one is always in flight, as long as other groups come that need one of the two.
func TestAGroupThatNeedsSeveralPlacesIsNotOvertakenForGood(t *testing.T) {
	t.Parallel()
	b := newBatcher(false, 256, 2, time.Hour, nil)
	of := func(rules ...string) *group {
		g := &group{done: make(chan struct{}, 1), since: time.Now()}
		for _, rule := range rules {
			c := charge(concurrency(t, rule, 5), "user", 1)
			g.add(rule, &c)
		}
		return g
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holdings.closed = true // what is lost is not told again
	begin := func(groups ...*group) *batch {
		t.Helper()
		b.waiting = append(b.waiting, groups...)
		next := b.next()
		if next == nil {
			return nil
		}
		batch := b.start(next, false, time.Now())
		b.watch.Stop()
		return batch
	}
	end := func(batch *batch) {
		require.True(t, b.finish(batch))
		b.holdings.lose(batch)
	}

	first := begin(of("x"))
	both := of("x", "y")
	assert.Nil(t, begin(both), "a message about one of its keys is in flight")
	later := of("y")
	assert.Nil(t, begin(later), "another waits for that key, and came before")
	other := begin(of("z"))
	require.NotNil(t, other, "whom nobody waits for")
	end(first)
	then := begin()
	require.NotNil(t, then)
	assert.Equal(t, []*group{both, later}, then.groups)
	end(other)
	end(then)
}
