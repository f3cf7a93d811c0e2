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

func TestAHungServerHoldsADecisionUpForTheDeadlineAndThenNotAtAll(t *testing.T) {
	try(t, hung, failover.Options{}, func(w *trial) { // the defaults: five failures of 50 ms
		for i, want := range []time.Duration{50e6, 50e6, 50e6, 50e6, 50e6, 0, 0, 0} {
			start := time.Now()
			d := w.ask()
			assert.Equal(w, want, time.Since(start), "decision %d", i+1)
			assert.True(w, d.Allowed && d.Degraded)
			assert.Equal(w, int64(99-i), d.Remaining, "those that waited are counted too")
		}
		assert.Equal(w, int64(5), w.inner.calls.Load())
		stats := counted(w.Store)
		assert.ErrorIs(w, stats.LastError, context.DeadlineExceeded)
		stats.LastError = nil
		assert.Equal(w, failover.Stats{Local: 8, Failures: 5, Degraded: true}, stats)
		time.Sleep(time.Second / 2)
		assert.Equal(w, time.Second/2, w.Health().DegradedFor)
	})
}

func TestCallsThatFailTogetherCountOnce(t *testing.T) {
	try(t, hung, failover.Options{Failures: 3}, func(w *trial) {
		for stall := range 3 {
			assert.False(w, w.Health().Degraded, "degraded by %d stalls, be there many callers: want 3", stall)
			var wg sync.WaitGroup
			for range 64 {
				wg.Go(func() { w.ask() })
			}
			wg.Wait()
			time.Sleep(time.Microsecond)
		}
		assert.True(w, w.Health().Degraded, "three in a row, one after the other")
		assert.Equal(w, uint64(3*64), w.Health().Failures)
	})
}

func TestEachCallHasADeadlineUnlessTheStoreKeepsOne(t *testing.T) {
	all := []limiter.Charge{charge(quota(t, "api", limiter.PerMinute(100), limiter.FailLocal), "key")}
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
	}
}

func TestNoFailoverIsAroundAnother(t *testing.T) {
	plain := newServer(t, downFor("1"))
	for inner, want := range map[limiter.Store]limiter.Store{plain: plain, punctual{server: plain}: punctual{plain, time.Minute}, cluster{plain}: cluster{plain}} {
		for range 3 {
			s := wrap(inner, failover.Options{Deadline: time.Minute})
			assert.Equal(t, want, s.Unwrap())
			inner = s
		}
	}
	s := wrap(wrap(cluster{plain}, failover.Options{}), failover.Options{})
	api := quota(t, "api", limiter.PerMinute(10), limiter.FailLocal)
	breakDown(t, s, charge(api, "1"))
	assert.False(t, decide(t, s, charge(api, "0"))[0].Degraded, "a store that was unwrapped still tells its parts")
}

func TestAProbeFindsTheServersReturn(t *testing.T) {
	try(t, dead, failover.Options{ProbeEvery: time.Minute}, func(w *trial) {
		w.breakDown()
		w.inner.is(fine)
		time.Sleep(time.Minute)
		before := w.inner.calls.Load()
		w.ask()
		synctest.Wait()
		assert.Equal(w, before, w.inner.calls.Load(), "it was asked too early")

		time.Sleep(time.Nanosecond)
		assert.True(w, w.ask().Degraded, "a request waits for no probe")
		synctest.Wait()
		assert.Zero(w, w.inner.used(w, w.c.Quota, "key"), "a probe takes nothing")

		d := w.ask()
		assert.False(w, d.Degraded)
		assert.Equal(w, int64(99), d.Remaining)
		assert.Equal(w, []failover.Event{{Degraded: true, Err: errDown}, {Err: errDown, For: time.Minute + 1}}, w.diary.read())
		assert.Equal(w, failover.Stats{Decided: 1, Local: 7, Failures: 5, DegradedInAll: time.Minute + 1}, counted(w.Store))
	})
}

func TestAServerThatStaysDownIsAskedOnceInAWhile(t *testing.T) {
	try(t, hung, failover.Options{}, func(w *trial) {
		w.breakDown()
		w.inner.calls.Store(0)
		start := time.Now()
		for range 10_000 {
			time.Sleep(time.Millisecond)
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() { w.ask() })
			}
			wg.Wait()
		}
		assert.Equal(w, 10*time.Second, time.Since(start), "a request waited for a probe")
		assert.Equal(w, int64(9), w.inner.calls.Load(), "each second and the deadline of 50ms, one at a time")
		assert.Equal(w, uint64(5+9), w.Health().Failures)
		assert.Len(w, w.diary.read(), 1, "it is still the same outage")
	})
}

func TestAClientThatGoesAwayDoesNotEndTheProbe(t *testing.T) {
	try(t, dead, failover.Options{}, func(w *trial) {
		w.breakDown()
		w.inner.is(func(ctx context.Context, _ string, _ []limiter.Charge) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * time.Millisecond):
				return nil
			}
		})
		time.Sleep(2 * time.Second)
		ctx, cancel := context.WithCancel(w.Context())
		charges := []limiter.Charge{w.c}
		require.NoError(w, w.Decide(ctx, charges))
		cancel()
		charges[0] = limiter.Charge{} // it is the caller's again
		time.Sleep(30 * time.Millisecond)
		assert.False(w, w.Health().Degraded)
	})
}

func TestAClientThatGoesAwayIsNoOutage(t *testing.T) {
	try(t, hung, failover.Options{Deadline: time.Second}, func(w *trial) {
		charges := []limiter.Charge{w.c}
		flood := func() {
			for range 20 {
				ctx, cancel := context.WithCancel(w.Context())
				time.AfterFunc(time.Millisecond, cancel)
				assert.ErrorIs(w, w.Decide(ctx, charges), context.Canceled)
				assert.ErrorIs(w, w.Settle(ctx, []limiter.Settlement{{Charge: w.c}}), context.Canceled)
				assert.ErrorIs(w, w.Reset(ctx, charges), context.Canceled)
			}
			ctx, cancel := context.WithTimeout(w.Context(), time.Millisecond)
			defer cancel()
			assert.Equal(w, context.DeadlineExceeded, w.Decide(ctx, charges), "a deadline of the client's own")
		}
		flood()
		assert.Equal(w, failover.Stats{}, counted(w.Store))
		for range 5 {
			assert.False(w, w.Health().Degraded)
			if w.ask(); !w.Health().Degraded {
				flood() // keeps nothing from being noticed
			}
		}
		assert.True(w, w.Health().Degraded)
		assert.Equal(w, uint64(5), w.Health().Failures)
	})
}

func TestRequestsWithLessTimeThanTheDeadlineNoticeAHungServerToo(t *testing.T) {
	try(t, hung, failover.Options{}, func(w *trial) {
		for range 5 {
			assert.False(w, w.Health().Degraded)
			ctx, cancel := context.WithTimeout(w.Context(), 30*time.Millisecond)
			charges := []limiter.Charge{w.c}
			require.NoError(w, w.Decide(ctx, charges))
			assert.True(w, charges[0].Decision.Degraded, "the policy decides, as for any failure")
			cancel()
		}
		assert.True(w, w.Health().Degraded, "a server that never answers in time is an outage")
	})
}

func TestAServerThatCanBeReadButNotWrittenStaysDown(t *testing.T) {
	for _, isBare := range []bool{false, true} {
		tryAround(t, dead, failover.Options{}, func(inner *server) limiter.Store {
			if isBare {
				return inner
			}
			return writable{cluster{inner}}
		}, func(w *trial) {
			w.breakDown()
			full := errors.New("OOM")
			w.inner.is(func(ctx context.Context, kind string, charges []limiter.Charge) error {
				deadline, _ := ctx.Deadline()
				assert.Equal(w, time.Now().Add(w.Options().Deadline), deadline, "it has the deadline of a call")
				isProbe := charges[0].Quota.Rule() != w.c.Quota.Rule()
				if kind == "decide" && !isProbe {
					assert.Equal(w, []limiter.Charge{look(w.c)}, charges)
					return nil
				}
				assert.Equal(w, isBare, isProbe)
				return full
			})
			for range 3 {
				failures := w.Health().Failures
				time.Sleep(2 * time.Second)
				w.ask()
				synctest.Wait()
				assert.True(w, w.Health().Degraded)
				assert.Equal(w, failures+1, w.Health().Failures)
			}
			w.comeBack()
			assert.False(w, w.Health().Degraded)
			w.endOutage()
			events := w.diary.read()
			require.Len(w, events, 2)
			assert.Equal(w, full, events[1].Err, "what the server said last")
		})
	}
}

func TestAServerThatFailsNowAndThenIsAskedEachTime(t *testing.T) {
	try(t, fine, failover.Options{}, func(w *trial) {
		w.c.Quota = quota(w, "api", limiter.PerHour(10_000), limiter.FailLocal)
		for i := range 1000 {
			w.inner.is(dead)
			if i%5 == 4 {
				w.inner.is(fine)
			}
			assert.Equal(w, i%5 != 4, w.ask().Degraded)
			time.Sleep(time.Second)
		}
		assert.Equal(w, failover.Stats{Decided: 200, Local: 800, Failures: 800}, counted(w.Store))
		assert.EqualValues(w, 1000, w.inner.used(w, w.c.Quota, "key"), "what this process counted is owed to the server")
		w.endOutage()
		assert.Empty(w, w.diary.read(), "no breaker opened")
		assert.Equal(w, "level=WARN code=weir-call-failed error=\"connection refused\"\nlevel=INFO code=weir-recovered after_seconds=999\n", w.diary.logged())
	})
}

func TestAServerThatIsUpAndDownByTurnsIsOneOutage(t *testing.T) {
	try(t, fine, failover.Options{}, func(w *trial) {
		for range 100 {
			w.inner.is(dead)
			w.breakDown()
			w.comeBack()
			assert.False(w, w.Health().Degraded)
		}
		assert.Len(w, w.diary.read(), 1)
		w.endOutage()
		assert.Equal(w, []failover.Event{{Degraded: true, Err: errDown}, {Err: errDown, For: 200 * time.Second}}, w.diary.read())
	})
}

// After an outage in which no request came, the first ones need no second try.
func TestABatchWithAClosedRuleWaitsForTheProbe(t *testing.T) {
	try(t, dead, failover.Options{}, func(w *trial) {
		login := charge(quota(t, "login", limiter.PerHour(100), limiter.FailClosed), "key")
		ask := func(ctx context.Context) error { return w.Decide(ctx, []limiter.Charge{login}) }
		w.breakDown()
		w.inner.is(func(context.Context, string, []limiter.Charge) error {
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		time.Sleep(2 * time.Second)
		var wg sync.WaitGroup
		wg.Go(func() { assert.True(w, w.ask().Degraded, "a request that need not wait does not") })
		for range 10 {
			wg.Go(func() { assert.NoError(w, ask(w.Context())) })
		}
		wg.Wait()
		assert.EqualValues(w, 10, w.inner.used(w, login.Quota, "key"))

		w.inner.is(hung)
		w.breakDown()
		time.Sleep(2 * time.Second)
		for _, wait := range []time.Duration{w.Options().Deadline, 0} {
			start := time.Now()
			assert.ErrorIs(w, ask(w.Context()), failover.ErrUnavailable)
			assert.Equal(w, wait, time.Since(start), "it waits no longer than for any call, and the next for nothing")
		}
		time.Sleep(2 * time.Second)
		ctx, cancel := context.WithTimeout(w.Context(), time.Millisecond)
		defer cancel()
		start := time.Now()
		assert.Error(w, ask(ctx))
		assert.Equal(w, time.Millisecond, time.Since(start), "or than its client")
		time.Sleep(time.Second)
	})
}

func TestAMistakeIsTheCallersAndNoOutage(t *testing.T) {
	api := quota(t, "api", limiter.PerHour(100), limiter.FailLocal)
	for name, m := range map[string]mood{"fine": fine, "dead": dead, "down": dead} {
		s := wrap(cluster{newServer(t, m)}, failover.Options{Failures: 1})
		if name == "down" {
			breakDown(t, s, charge(api, "0"))
		}
		before := s.Health().Failures
		for _, charges := range [][]limiter.Charge{{{Quota: api, Key: "key", Cost: -1}}, {{}}} {
			assert.ErrorIs(t, s.Decide(t.Context(), charges), limiter.ErrCharges, name)
			assert.ErrorIs(t, s.Settle(t.Context(), []limiter.Settlement{{Charge: charges[0]}}), limiter.ErrCharges, name)
			assert.ErrorIs(t, s.Reset(t.Context(), charges), limiter.ErrCharges, name)
		}
		assert.Equal(t, before, s.Health().Failures, name)
	}
	refusing := fmt.Errorf("%w: the key is too long", limiter.ErrCharges)
	s := wrap(newServer(t, func(context.Context, string, []limiter.Charge) error { return refusing }), failover.Options{})
	assert.Equal(t, refusing, s.Decide(t.Context(), []limiter.Charge{charge(api, "key")}))
	assert.Zero(t, counted(s))
}

func TestAPanicOfTheStoreIsItsCallersAndWedgesNothing(t *testing.T) {
	try(t, fine, failover.Options{}, func(w *trial) {
		furious := func(context.Context, string, []limiter.Charge) error { panic("oh no") }
		for range 2 { // well, and in trouble
			w.inner.is(furious)
			for range 10 {
				assert.Panics(w, func() { w.ask() })
			}
			w.inner.is(fine)
			assert.False(w, w.ask().Degraded)
			w.inner.is(dead)
			w.ask()
		}
		w.breakDown()
		w.inner.is(furious)
		for range 3 {
			time.Sleep(2 * time.Second)
			w.ask()
			synctest.Wait()
			assert.ErrorContains(w, w.Health().LastError, "failover: the store panicked: oh no", "nobody recovers from it in a probe")
		}
		w.comeBack()
		assert.False(w, w.ask().Degraded)
	})
}

func TestACallThatBeganBeforeTheOutageDoesNotEndIt(t *testing.T) {
	slow := func(context.Context, string, []limiter.Charge) error { time.Sleep(10 * time.Second); return nil }
	try(t, slow, failover.Options{Deadline: time.Minute}, func(w *trial) {
		var wg sync.WaitGroup
		wg.Go(func() { w.ask() })
		synctest.Wait()
		w.inner.is(dead)
		w.breakDown()
		wg.Wait() // by now it is time for a probe
		assert.True(w, w.Health().Degraded)
	})
}

func TestAnOutageIsNoticedOnceHoweverManyNoticeIt(t *testing.T) {
	try(t, fine, failover.Options{Deadline: time.Millisecond, ProbeEvery: 5 * time.Millisecond}, func(w *trial) {
		quotas := make([]*limiter.Quota, 3)
		for o := range quotas {
			quotas[o] = quota(t, fmt.Sprint(o), limiter.PerHour(1_000_000), limiter.Outage(o))
		}
		const callers, times, outages = 20, 500, 4
		var wg sync.WaitGroup
		for i := range callers * outages {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 1))
				time.Sleep(2 * time.Minute * time.Duration(i/callers))
				if i%callers == 0 {
					w.inner.is(fine)
					_ = w.Decide(w.Context(), []limiter.Charge{charge(quotas[0], "key")}) // may start a probe
					time.Sleep(time.Second)
				}
				for range times {
					time.Sleep(time.Duration(random.IntN(5000)) * time.Microsecond)
					if random.IntN(200) == 0 {
						w.inner.is([]mood{fine, dead, hung}[random.IntN(3)])
					}
					q := quotas[random.IntN(3)]
					charges := []limiter.Charge{charge(q, "key")}
					err := w.Decide(w.Context(), charges)
					if q.OnOutage == limiter.FailClosed && err != nil {
						assert.ErrorIs(w, err, failover.ErrUnavailable)
					} else {
						assert.NoError(w, err)
						assert.True(w, charges[0].Decision.Allowed)
					}
				}
			})
		}
		wg.Wait()
		stats := w.Health()
		assert.Equal(w, uint64(callers*times*outages+outages), stats.Decided+stats.Local+stats.Open+stats.Closed)
		events := w.diary.read()
		assert.GreaterOrEqual(w, len(events), 2*(outages-1)+1, "the server did not flap")
		for i, e := range events {
			assert.Equal(w, i%2 == 0, e.Degraded, "event %d", i+1)
			assert.Equal(w, e.Degraded, e.For == 0, "event %d", i+1)
		}
	})
}

func TestResetReachesBothCountersOrSaysThatItDidNot(t *testing.T) {
	try(t, fine, failover.Options{}, func(w *trial) {
		reset := func() error { return w.Reset(w.Context(), []limiter.Charge{w.c}) }
		w.ask()
		w.inner.is(dead)
		assert.Equal(w, errDown, reset())
		w.breakDown()

		w.inner.calls.Store(0)
		err := reset()
		assert.ErrorIs(w, err, failover.ErrUnavailable)
		assert.EqualError(w, err, "failover: the store's server is unavailable, so its counters could not be reset: connection refused")
		assert.Zero(w, w.inner.calls.Load())
		assert.Equal(w, int64(99), w.ask().Remaining, "the local counter is reset")

		w.comeBack()
		w.ask()
		require.Equal(w, int64(4), w.inner.used(w, w.c.Quota, "key"), "two that the server counted, and two that this process counted after the reset")
		require.NoError(w, reset())
		assert.Zero(w, w.inner.used(w, w.c.Quota, "key"))
		w.inner.is(dead)
		assert.Equal(w, int64(99), w.ask().Remaining, "the local counter is reset while all is well")

		w.breakDown()
		w.inner.is(fine)
		time.Sleep(2 * time.Second)
		require.NoError(w, reset(), "it waits for the probe")
		assert.Zero(w, w.inner.used(w, w.c.Quota, "key"))
		assert.Zero(w, inUse(w, w.Store, w.c.Quota, "key"))
	})
}

func TestADecisionDoesNotAllocate(t *testing.T) {
	api := quota(t, "api", limiter.PerSecond(1_000_000).With(limiter.FixedWindow), limiter.FailLocal)
	free := quota(t, "free", limiter.PerSecond(1_000_000).With(limiter.FixedWindow), limiter.FailOpen)
	charges := []limiter.Charge{charge(api, "key"), charge(free, "key"), charge(api, "other")}
	for name, m := range map[string]mood{"well": fine, "in an outage": dead} {
		t.Run(name, func(t *testing.T) {
			s := wrap(punctual{server: newServer(t, m)}, failover.Options{Replicas: 2, Failures: 1, ProbeEvery: time.Hour})
			require.NoError(t, s.Decide(context.Background(), charges))
			assert.Zero(t, testing.AllocsPerRun(1000, func() { _ = s.Decide(context.Background(), charges) }))
			assert.Equal(t, name != "well", charges[0].Decision.Degraded)
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
