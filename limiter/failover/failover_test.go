package failover_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
)

// counted is what is told of a store, without its events and options.
func counted(s *failover.Store) failover.Stats {
	stats := s.Health()
	stats.Events, stats.Replicas = nil, 0
	return stats
}

func TestAHungServerHoldsADecisionUpForTheDeadlineAndThenNotAtAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newServer(t, hung)
		s := wrap(inner, failover.Options{}) // the defaults: five failures of 50 ms
		api := quota(t, "api", limiter.PerMinute(100), limiter.FailLocal)
		for i, want := range []time.Duration{50e6, 50e6, 50e6, 50e6, 50e6, 0, 0, 0} {
			start := time.Now()
			d := decide(t, s, charge(api, "key"))[0]
			assert.Equal(t, want, time.Since(start), "decision %d", i+1)
			assert.True(t, d.Allowed)
			assert.True(t, d.Degraded)
			assert.Equal(t, int64(99-i), d.Remaining, "those that waited are counted too")
		}
		assert.Equal(t, int64(5), inner.calls.Load())
		stats := counted(s)
		assert.ErrorIs(t, stats.LastError, context.DeadlineExceeded)
		stats.LastError = nil
		assert.Equal(t, failover.Stats{Local: 8, Failures: 5, Degraded: true}, stats)
		time.Sleep(time.Second / 2)
		assert.Equal(t, time.Second/2, s.Health().DegradedFor)
	})
}

func TestCallsThatFailTogetherCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newServer(t, hung)
		s := wrap(inner, failover.Options{Failures: 3})
		api := quota(t, "api", limiter.PerMinute(1000), limiter.FailLocal)
		for stall := range 3 {
			assert.False(t, s.Health().Degraded, "degraded by %d stalls, be there many callers: want 3", stall)
			var wg sync.WaitGroup
			for range 64 {
				wg.Go(func() { decide(t, s, charge(api, "key")) })
			}
			wg.Wait()
			time.Sleep(time.Microsecond)
		}
		assert.True(t, s.Health().Degraded, "three in a row, one after the other")
		assert.Equal(t, uint64(3*64), s.Health().Failures)
	})
}

func TestEachCallHasADeadlineUnlessTheStoreKeepsOne(t *testing.T) {
	api := quota(t, "api", limiter.PerMinute(100), limiter.FailLocal)
	all := []limiter.Charge{charge(api, "key")}
	for _, keeps := range []bool{false, true} {
		inner, calls := newServer(t, fine), 0
		inner.is(func(ctx context.Context, kind string, _ []limiter.Charge) error {
			calls++
			deadline, ok := ctx.Deadline()
			assert.Equal(t, !keeps, ok, kind)
			if ok {
				assert.WithinDuration(t, time.Now(), deadline, time.Minute, kind)
			}
			return nil
		})
		var store limiter.Store = inner
		if keeps {
			store = punctual{server: inner}
		}
		s := wrap(store, failover.Options{Deadline: time.Minute})
		require.NoError(t, s.Decide(t.Context(), all))
		require.NoError(t, s.Settle(t.Context(), []limiter.Settlement{{Charge: all[0]}}))
		require.NoError(t, s.Reset(t.Context(), all))
		assert.Equal(t, 3, calls)
		if keeps {
			assert.Equal(t, time.Minute, s.Unwrap().(punctual).deadline)
		}
	}
}

func TestNoFailoverIsAroundAnother(t *testing.T) {
	plain := newServer(t, fine)
	for _, store := range []limiter.Store{plain, wrap(plain, failover.Options{}), wrap(wrap(plain, failover.Options{}), failover.Options{})} {
		s := wrap(store, failover.Options{Deadline: time.Minute})
		assert.Equal(t, plain, s.Unwrap())
	}
	own := punctual{server: plain}
	for _, store := range []limiter.Store{own, wrap(own, failover.Options{}), wrap(wrap(own, failover.Options{}), failover.Options{})} {
		s := wrap(store, failover.Options{Deadline: time.Minute})
		assert.Equal(t, punctual{plain, time.Minute}, s.Unwrap())
	}
	plain.is(downFor("1"))
	s := wrap(wrap(cluster{plain}, failover.Options{}), failover.Options{})
	api := quota(t, "api", limiter.PerMinute(10), limiter.FailLocal)
	breakDown(t, s, charge(api, "1"))
	assert.False(t, decide(t, s, charge(api, "0"))[0].Degraded, "a store that was unwrapped still tells its parts")
}

func TestAProbeFindsTheServersReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, heard := newServer(t, dead), &diary{}
		s := wrap(inner, failover.Options{ProbeEvery: time.Minute, OnDegraded: heard.note})
		api := quota(t, "api", limiter.PerHour(100), limiter.FailLocal)
		breakDown(t, s, charge(api, "key"))

		inner.is(fine)
		time.Sleep(time.Minute)
		before := inner.calls.Load()
		decide(t, s, charge(api, "key"))
		synctest.Wait()
		assert.Equal(t, before, inner.calls.Load(), "it was asked too early")

		time.Sleep(time.Nanosecond)
		assert.True(t, decide(t, s, charge(api, "key"))[0].Degraded, "a request waits for no probe")
		synctest.Wait()
		assert.Zero(t, inner.used(t, api, "key"), "a probe takes nothing")

		d := decide(t, s, charge(api, "key"))[0]
		assert.False(t, d.Degraded)
		assert.Equal(t, int64(99), d.Remaining)
		assert.Equal(t, []failover.Event{
			{Degraded: true, Err: errDown},
			{Err: errDown, For: time.Minute + 1},
		}, heard.read())
		assert.Equal(t, failover.Stats{Decided: 1, Local: 7, Failures: 5, DegradedInAll: time.Minute + 1}, counted(s))
	})
}

func TestAServerThatStaysDownIsAskedOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, heard := newServer(t, hung), &diary{}
		s := wrap(inner, failover.Options{OnDegraded: heard.note})
		api := quota(t, "api", limiter.PerHour(1_000_000), limiter.FailLocal)
		breakDown(t, s, charge(api, "key"))
		inner.calls.Store(0)
		start := time.Now()
		for range 10_000 {
			time.Sleep(time.Millisecond)
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() { decide(t, s, charge(api, "key")) })
			}
			wg.Wait()
		}
		assert.Equal(t, 10*time.Second, time.Since(start), "a request waited for a probe")
		assert.Equal(t, int64(9), inner.calls.Load(), "each second and the deadline of 50ms, one at a time")
		assert.Equal(t, uint64(5+9), s.Health().Failures)
		assert.Len(t, heard.read(), 1, "it is still the same outage")
	})
}

func TestAClientThatGoesAwayDoesNotEndTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newServer(t, dead)
		s := wrap(inner, failover.Options{})
		api := quota(t, "api", limiter.PerHour(100), limiter.FailLocal)
		breakDown(t, s, charge(api, "key"))
		inner.is(func(ctx context.Context, _ string, _ []limiter.Charge) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * time.Millisecond):
				return nil
			}
		})
		time.Sleep(2 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		charges := []limiter.Charge{charge(api, "key")}
		require.NoError(t, s.Decide(ctx, charges))
		cancel()
		charges[0] = limiter.Charge{} // it is the caller's again
		time.Sleep(30 * time.Millisecond)
		assert.False(t, s.Health().Degraded)
	})
}

func TestAClientThatGoesAwayIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newServer(t, hung)
		s := wrap(inner, failover.Options{Deadline: time.Second})
		api := quota(t, "api", limiter.PerHour(100), limiter.FailLocal)
		charges := []limiter.Charge{charge(api, "key")}

		flood := func() {
			for range 20 {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Millisecond, cancel)
				assert.ErrorIs(t, s.Decide(ctx, charges), context.Canceled)
				assert.ErrorIs(t, s.Settle(ctx, []limiter.Settlement{{Charge: charges[0]}}), context.Canceled)
				assert.ErrorIs(t, s.Reset(ctx, charges), context.Canceled)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			assert.Equal(t, context.DeadlineExceeded, s.Decide(ctx, charges),
				"a deadline of the client's own")
		}
		flood()
		assert.Equal(t, failover.Stats{}, counted(s))

		for range 5 {
			assert.False(t, s.Health().Degraded)
			decide(t, s, charges...)
			if !s.Health().Degraded {
				flood() // keeps nothing from being noticed
			}
		}
		assert.True(t, s.Health().Degraded)
		assert.Equal(t, uint64(5), s.Health().Failures)
	})
}

func TestRequestsWithLessTimeThanTheDeadlineNoticeAHungServerToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := wrap(newServer(t, hung), failover.Options{})
		api := quota(t, "api", limiter.PerHour(100), limiter.FailLocal)
		for range 5 {
			assert.False(t, s.Health().Degraded)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			charges := []limiter.Charge{charge(api, "key")}
			require.NoError(t, s.Decide(ctx, charges))
			assert.True(t, charges[0].Decision.Degraded, "the policy decides, as for any failure")
			cancel()
		}
		assert.True(t, s.Health().Degraded, "a server that never answers in time is an outage")
	})
}

func TestAServerThatCanBeReadButNotWrittenStaysDown(t *testing.T) {
	for _, isBare := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			inner, heard := newServer(t, dead), &diary{}
			var store limiter.Store = writable{cluster{inner}}
			if isBare {
				store = inner
			}
			s := wrap(store, failover.Options{OnDegraded: heard.note})
			c := charge(quota(t, "login", limiter.PerDay(1), limiter.FailLocal), "key")
			breakDown(t, s, c)

			full := errors.New("OOM")
			inner.is(func(ctx context.Context, kind string, charges []limiter.Charge) error {
				deadline, _ := ctx.Deadline()
				assert.Equal(t, time.Now().Add(s.Options().Deadline), deadline, "it has the deadline of a call")
				isProbe := charges[0].Quota.Rule() != c.Quota.Rule()
				if kind == "decide" && !isProbe {
					assert.Equal(t, []limiter.Charge{look(c)}, charges)
					return nil
				}
				assert.Equal(t, isBare, isProbe)
				return full
			})
			for range 3 {
				failures := s.Health().Failures
				time.Sleep(2 * time.Second)
				decide(t, s, c)
				synctest.Wait()
				assert.True(t, s.Health().Degraded)
				assert.Equal(t, failures+1, s.Health().Failures)
			}
			inner.comeBack(t, s, c)
			assert.False(t, s.Health().Degraded)
			endOutage(t, s, c)
			events := heard.read()
			require.Len(t, events, 2)
			assert.Equal(t, full, events[1].Err, "what the server said last")
		})
	}
}

func TestAServerThatFailsNowAndThenIsAskedEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, d := newServer(t, fine), &diary{}
		s := wrap(inner, d.options(true))
		c := charge(quota(t, "api", limiter.PerHour(10_000), limiter.FailLocal), "key")
		for i := range 1000 {
			inner.is(dead)
			if i%5 == 4 {
				inner.is(fine)
			}
			assert.Equal(t, i%5 != 4, decide(t, s, c)[0].Degraded)
			time.Sleep(time.Second)
		}
		assert.Equal(t, failover.Stats{Decided: 200, Local: 800, Failures: 800}, counted(s))
		assert.EqualValues(t, 1000, inner.used(t, c.Quota, "key"), "what this process counted is owed to the server")
		endOutage(t, s, c)
		assert.Empty(t, d.read(), "no breaker opened")
		assert.Equal(t, "level=WARN code=weir-call-failed error=\"connection refused\"\nlevel=INFO code=weir-recovered after_seconds=999\n", d.logged())
	})
}

func TestAServerThatIsUpAndDownByTurnsIsOneOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, d := newServer(t, fine), &diary{}
		s := wrap(inner, d.options(true))
		c := charge(quota(t, "api", limiter.PerHour(100_000), limiter.FailLocal), "key")
		for range 100 {
			inner.is(dead)
			breakDown(t, s, c)
			inner.comeBack(t, s, c)
			assert.False(t, s.Health().Degraded)
		}
		assert.Len(t, d.read(), 1)
		endOutage(t, s, c)
		assert.Equal(t, []failover.Event{{Degraded: true, Err: errDown}, {Err: errDown, For: 200 * time.Second}}, d.read())
	})
}

func TestTheFirstResetAfterAnOutageReachesTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newServer(t, fine)
		s := wrap(inner, failover.Options{})
		c := charge(quota(t, "api", limiter.PerHour(100), limiter.FailLocal), "key")
		decide(t, s, c)
		inner.is(dead)
		breakDown(t, s, c)
		inner.is(fine)
		time.Sleep(2 * time.Second)
		require.NoError(t, s.Reset(t.Context(), []limiter.Charge{c}))
		assert.Zero(t, inner.used(t, c.Quota, "key"))
		assert.Zero(t, inUse(t, s, c.Quota, "key"))
	})
}

// After an outage in which no request came, the first ones need no second try.
func TestABatchWithAClosedRuleWaitsForTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(ctx context.Context, _ string, _ []limiter.Charge) error {
			time.Sleep(10 * time.Millisecond)
			return nil
		}
		inner := newServer(t, dead)
		s := wrap(inner, failover.Options{})
		login := charge(quota(t, "login", limiter.PerHour(100), limiter.FailClosed), "key")
		api := charge(quota(t, "api", limiter.PerHour(100), limiter.FailLocal), "key")
		ask := func() error {
			return s.Decide(t.Context(), []limiter.Charge{login})
		}
		breakDown(t, s, login)
		inner.is(slow)
		time.Sleep(2 * time.Second)
		var wg sync.WaitGroup
		wg.Go(func() { assert.True(t, decide(t, s, api)[0].Degraded, "a request that need not wait does not") })
		for range 10 {
			wg.Go(func() { assert.NoError(t, ask()) })
		}
		wg.Wait()
		assert.EqualValues(t, 10, inner.used(t, login.Quota, "key"))

		inner.is(hung)
		breakDown(t, s, login)
		time.Sleep(2 * time.Second)
		start := time.Now()
		assert.ErrorIs(t, ask(), failover.ErrUnavailable)
		assert.Equal(t, s.Options().Deadline, time.Since(start), "it waits no longer than for any call")
		assert.ErrorIs(t, ask(), failover.ErrUnavailable)
		assert.Equal(t, s.Options().Deadline, time.Since(start), "the next waits for nothing")
		time.Sleep(2 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		start = time.Now()
		assert.Error(t, s.Decide(ctx, []limiter.Charge{login}))
		assert.Equal(t, time.Millisecond, time.Since(start), "or than its client")
		time.Sleep(time.Second)
	})
}

func TestAMistakeIsTheCallersAndNoOutage(t *testing.T) {
	inner := newServer(t, fine)
	api := quota(t, "api", limiter.PerHour(100), limiter.FailLocal)
	negative := []limiter.Charge{{Quota: api, Key: "key", Cost: -1}}
	refusing := fmt.Errorf("%w: the key is too long", limiter.ErrCharges)
	for _, m := range []struct {
		name string
		mood mood
	}{
		{"fine", fine},
		{"dead", dead},
		{"down", dead},
		{"picky", func(context.Context, string, []limiter.Charge) error { return refusing }},
	} {
		inner.is(m.mood)
		s := wrap(cluster{inner}, failover.Options{Failures: 1})
		if m.name == "down" {
			breakDown(t, s, charge(api, "0"))
		}
		before := counted(s)
		for _, charges := range [][]limiter.Charge{negative, {{}}} {
			assert.ErrorIs(t, s.Decide(t.Context(), charges), limiter.ErrCharges, m.name)
			assert.ErrorIs(t, s.Settle(t.Context(), []limiter.Settlement{{Charge: charges[0]}}), limiter.ErrCharges, m.name)
			assert.ErrorIs(t, s.Reset(t.Context(), charges), limiter.ErrCharges, m.name)
		}
		after := counted(s)
		before.DegradedFor, after.DegradedFor = 0, 0
		before.DegradedInAll, after.DegradedInAll = 0, 0
		assert.Equal(t, before, after, m.name)
	}
	s := wrap(inner, failover.Options{})
	assert.Equal(t, refusing, s.Decide(t.Context(), []limiter.Charge{charge(api, "key")}))
}

func TestAPanicOfTheStoreIsItsCallersAndWedgesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newServer(t, fine)
		s := wrap(inner, failover.Options{})
		api := quota(t, "api", limiter.PerHour(100), limiter.FailLocal)
		furious := func(context.Context, string, []limiter.Charge) error { panic("oh no") }
		for range 2 { // well, and in trouble
			inner.is(furious)
			for range 10 {
				assert.Panics(t, func() { decide(t, s, charge(api, "key")) })
			}
			inner.is(fine)
			assert.False(t, decide(t, s, charge(api, "key"))[0].Degraded)
			inner.is(dead)
			decide(t, s, charge(api, "key"))
		}

		breakDown(t, s, charge(api, "key"))
		inner.is(furious)
		for range 3 {
			time.Sleep(2 * time.Second)
			decide(t, s, charge(api, "key"))
			synctest.Wait()
			assert.ErrorContains(t, s.Health().LastError, "failover: the store panicked: oh no", "nobody recovers from it in a probe")
		}
		inner.comeBack(t, s, charge(api, "key"))
		assert.False(t, decide(t, s, charge(api, "key"))[0].Degraded)
	})
}

func TestACallThatBeganBeforeTheOutageDoesNotEndIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newServer(t, fine)
		s := wrap(inner, failover.Options{Deadline: time.Minute})
		api := quota(t, "api", limiter.PerHour(100), limiter.FailLocal)
		inner.is(func(context.Context, string, []limiter.Charge) error {
			time.Sleep(10 * time.Second)
			return nil
		})
		var wg sync.WaitGroup
		wg.Go(func() { decide(t, s, charge(api, "slow")) })
		synctest.Wait()
		inner.is(dead)
		breakDown(t, s, charge(api, "key"))
		wg.Wait() // by now it is time for a probe
		assert.True(t, s.Health().Degraded)
	})
}

func TestAnOutageIsNoticedOnceHoweverManyNoticeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, heard := newServer(t, fine), &diary{}
		s := wrap(inner, failover.Options{OnDegraded: heard.note, Deadline: time.Millisecond, ProbeEvery: 5 * time.Millisecond})
		local := quota(t, "local", limiter.PerHour(1_000_000), limiter.FailLocal)
		open := quota(t, "open", limiter.PerHour(1_000_000), limiter.FailOpen)
		closed := quota(t, "closed", limiter.PerHour(1_000_000), limiter.FailClosed)

		const callers, times, outages = 20, 500, 4
		var wg sync.WaitGroup
		for i := range callers * outages {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 1))
				time.Sleep(2 * time.Minute * time.Duration(i/callers))
				if i%callers == 0 {
					inner.is(fine)
					_ = s.Decide(t.Context(), []limiter.Charge{charge(local, "key")}) // may start a probe
					time.Sleep(time.Second)
				}
				for range times {
					time.Sleep(time.Duration(random.IntN(5000)) * time.Microsecond)
					if random.IntN(200) == 0 {
						inner.is([]mood{fine, dead, hung}[random.IntN(3)])
					}
					q := []*limiter.Quota{local, open, closed}[random.IntN(3)]
					charges := []limiter.Charge{charge(q, "key")}
					err := s.Decide(t.Context(), charges)
					if q == closed && err != nil {
						assert.ErrorIs(t, err, failover.ErrUnavailable)
					} else {
						assert.NoError(t, err)
						assert.True(t, charges[0].Decision.Allowed)
					}
				}
			})
		}
		wg.Wait()
		synctest.Wait()

		stats := s.Health()
		assert.Equal(t, uint64(callers*times*outages+outages), stats.Decided+stats.Local+stats.Open+stats.Closed)
		events := heard.read()
		assert.GreaterOrEqual(t, len(events), 2*(outages-1)+1, "the server did not flap")
		for i, e := range events {
			assert.Equal(t, i%2 == 0, e.Degraded, "event %d", i+1)
			assert.Equal(t, e.Degraded, e.For == 0, "event %d", i+1)
		}
	})
}

// at is c as a refund of what d took.
func at(c limiter.Charge, d limiter.Decision) limiter.Charge {
	c.Decision = d
	return c
}

func look(c limiter.Charge) limiter.Charge {
	c.Cost = 0
	return c
}

func TestResetReachesBothCountersOrSaysThatItDidNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newServer(t, fine)
		s := wrap(inner, failover.Options{})
		api := quota(t, "api", limiter.PerHour(100), limiter.FailLocal)
		c := charge(api, "key")
		decide(t, s, c)
		inner.is(dead)
		assert.Equal(t, errDown, s.Reset(t.Context(), []limiter.Charge{c}))
		breakDown(t, s, c)

		inner.calls.Store(0)
		err := s.Reset(t.Context(), []limiter.Charge{c})
		assert.ErrorIs(t, err, failover.ErrUnavailable)
		assert.ErrorIs(t, err, errDown)
		assert.EqualError(t, err, "failover: the store's server is unavailable, so its counters could not be reset: connection refused")
		assert.Zero(t, inner.calls.Load())
		assert.Equal(t, int64(99), decide(t, s, c)[0].Remaining, "the local counter is reset")

		inner.comeBack(t, s, c)
		decide(t, s, c)
		require.Equal(t, int64(4), inner.used(t, api, "key"), "two that the server counted, and two that this process counted after the reset")
		require.NoError(t, s.Reset(t.Context(), []limiter.Charge{c}))
		assert.Zero(t, inner.used(t, api, "key"))
		inner.is(dead)
		assert.Equal(t, int64(99), decide(t, s, c)[0].Remaining, "the local counter is reset while all is well")
	})
}

func TestADecisionDoesNotAllocate(t *testing.T) {
	api := quota(t, "api", limiter.PerSecond(1_000_000).With(limiter.FixedWindow), limiter.FailLocal)
	free := quota(t, "free", limiter.PerSecond(1_000_000).With(limiter.FixedWindow), limiter.FailOpen)
	charges := []limiter.Charge{charge(api, "key"), charge(free, "key"), charge(api, "other")}
	ctx := context.Background()

	for _, tt := range []struct {
		name     string
		mood     mood
		degraded bool
	}{{"well", fine, false}, {"in an outage", dead, true}} {
		t.Run(tt.name, func(t *testing.T) {
			s := wrap(punctual{server: newServer(t, tt.mood)}, failover.Options{
				Replicas: 2, Failures: 1, ProbeEvery: time.Hour, OnDegraded: ignore,
			})
			require.NoError(t, s.Decide(ctx, charges))
			allocs := testing.AllocsPerRun(1000, func() {
				if err := s.Decide(ctx, charges); err != nil {
					panic(err)
				}
			})
			assert.Zero(t, allocs)
			assert.Equal(t, tt.degraded, charges[0].Decision.Degraded)
		})
	}
}

func TestEverythingThatIsWrongIsNamed(t *testing.T) {
	_, err := failover.New(nil, failover.Options{Replicas: -1})
	require.ErrorContains(t, err, "failover: New needs a store")
	require.ErrorContains(t, err, "failover: Replicas is -1: it must be from 1 to 100000, or 0 for 1")
	assert.Panics(t, func() { failover.Must(failover.New(nil, failover.Options{})) })
	require.NoError(t, failover.Options{}.Validate())
	require.NoError(t, failover.Options{Deadline: time.Minute, Replicas: 100_000, Failures: 1_000_000, ProbeEvery: time.Hour, MaxKeys: 1}.Validate())
	assert.EqualError(t, failover.Options{Deadline: -1, Replicas: -2, Failures: -3, ProbeEvery: -4, MaxKeys: -5}.Validate(), ""+
		"failover: Deadline is -1ns: it must be from 1ms to 1m0s, or 0 for 50ms\n"+
		"failover: Replicas is -2: it must be from 1 to 100000, or 0 for 1\n"+
		"failover: Failures is -3: it must be from 1 to 1000000, or 0 for 5\n"+
		"failover: ProbeEvery is -4ns: it must be more than 0 and at most 1h0m0s, or 0 for 1s\n"+
		"failover: limiter: MaxKeys is -5: it must be from 1 to 2147483648, or 0 for 1000000")
	err = failover.Options{Deadline: time.Minute + 1, Replicas: 100_001, Failures: 1_000_001, ProbeEvery: time.Hour + 1}.Validate()
	for _, field := range []string{"Deadline is 1m0", "Replicas is 100001", "Failures is 1000001", "ProbeEvery is 1h0m0"} {
		assert.ErrorContains(t, err, field)
	}
}

// aboutOneKey is the error of a server that cannot decide on a key.
type aboutOneKey struct{ error }

func (aboutOneKey) OfOneKey() bool { return true }

func TestAKeyThatCannotBeDecidedIsNoOutageAndKeepsNoneUp(t *testing.T) {
	for _, answer := range []error{aboutOneKey{errors.New("key holds something else")}, limiter.ErrCharges} {
		synctest.Test(t, func(t *testing.T) {
			inner, d := newServer(t, dead), &diary{}
			s := wrap(inner, d.options(true))
			c := charge(quota(t, "login", limiter.PerDay(1000), limiter.FailLocal), "key")
			breakDown(t, s, c)
			for _, written := range []error{errDown, nil} {
				inner.is(func(_ context.Context, _ string, charges []limiter.Charge) error {
					if charges[0].Quota == c.Quota {
						return answer
					}
					return written
				})
				time.Sleep(2 * time.Second)
				decide(t, s, c) // is the probe, which is answered
				synctest.Wait()
				assert.Equal(t, written != nil, s.Health().Degraded)
			}
			for range 100 { // all fail, for minutes
				_ = s.Decide(t.Context(), []limiter.Charge{c})
				time.Sleep(2 * time.Second)
			}
			assert.False(t, s.Health().Degraded)
			inner.is(fine)
			endOutage(t, s, c)
			assert.Len(t, d.read(), 2)
		})
	}
}
