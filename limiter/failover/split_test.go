package failover

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
)

// frank is a cluster that says which of its parts failed.
type frank struct{ cluster }

type partsError struct {
	error
	parts uint64
}

func (e partsError) Parts() uint64 { return e.parts }

func (f frank) Decide(ctx context.Context, charges []limiter.Charge, decisions []limiter.Decision) error {
	var down uint64
	var cause error
	for i := range charges {
		if err := (*f.mood.Load())(ctx, "decide", charges[i:i+1]); err != nil {
			down |= 1 << f.Part(&charges[i])
			cause = err
		}
	}
	if down != 0 {
		f.calls.Add(1)
		return partsError{cause, down}
	}
	return f.cluster.Decide(ctx, charges, decisions)
}

func TestAServerThatIsUpCountsWhileAnotherIsDown(t *testing.T) {
	inner := newServer(t, downFor("1"))
	s := Must(New(frank{cluster{inner}}, Options{Failures: 3, OnDegraded: func(Event) {}}))
	global := quota(t, "global", limiter.PerHour(10), limiter.FailLocal)
	user := quota(t, "user", limiter.PerHour(1000), limiter.FailLocal)
	admitted := 0
	for i := range 40 {
		// Every other request has a rule on the server that is down.
		d := decide(t, s, charge(global, "0"), charge(user, fmt.Sprint(i%2, " user")))
		if d[0].Allowed && d[1].Allowed {
			admitted++
		}
		assert.False(t, d[0].Degraded, "the global rule's server answers")
		assert.Equal(t, i%2 == 1, d[1].Degraded)
	}
	assert.Equal(t, 10, admitted, "a global rule on a server that is up admits its limit, before the breaker of the other opens and after it")
	stats := s.Stats()
	assert.EqualValues(t, 20, stats.Local)
	assert.EqualValues(t, 20, stats.Decided)
	assert.EqualValues(t, 3, stats.Failures)
	assert.EqualValues(t, 1<<1, s.trouble.Load(), "a part that has answered is not held to have failed")
}

func TestAPartThatFailsIsNotHeldAgainstAnotherThatAnswered(t *testing.T) {
	inner := newServer(t, downFor("1"))
	s := Must(New(frank{cluster{inner}}, Options{Failures: 3, OnDegraded: func(Event) {}}))
	api := quota(t, "api", limiter.PerHour(1000), limiter.FailLocal)
	for range 10 {
		decide(t, s, charge(api, "0"), charge(api, "1"))
	}
	assert.False(t, decide(t, s, charge(api, "0"))[0].Degraded)
	inner.is(dead)
	d := decide(t, s, charge(api, "0"), charge(api, "1"))
	assert.True(t, d[0].Degraded && d[1].Degraded, "with all of them down, the policies decide on all")
	assert.True(t, d[0].Allowed && d[1].Allowed)
}

func TestABatchOnServersUpAndDownIsTakenAllOrNone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		memory, err := limiter.NewMemory(limiter.MemoryOptions{})
		require.NoError(t, err)
		inner := &server{Memory: memory}
		inner.is(downFor("1", "3"))
		s := Must(New(frank{cluster{inner}}, Options{Failures: 2, OnDegraded: func(Event) {}, ProbeEvery: time.Hour}))
		policies := []limiter.Outage{limiter.FailLocal, limiter.FailOpen, limiter.FailClosed}
		quotas := make([]*limiter.Quota, 6)
		for i := range quotas {
			quotas[i], err = limiter.NewQuota(fmt.Sprint("rule ", i), "", limiter.Limit{Events: 4, Per: 300 * 24 * time.Hour, Algorithm: limiter.TokenBucket})
			require.NoError(t, err)
			quotas[i].OnOutage = policies[i%3]
		}
		used := func(c limiter.Charge) [2]int64 {
			var server, local [1]limiter.Decision
			look := []limiter.Charge{{Quota: c.Quota, Key: c.Key}}
			require.NoError(t, inner.Memory.Decide(context.Background(), look, server[:]))
			require.NoError(t, s.local.Decide(context.Background(), look, local[:]))
			return [2]int64{4 - server[0].Remaining, 4 - local[0].Remaining}
		}
		for range rapid.IntRange(1, 30).Draw(t, "batches") {
			var charges []limiter.Charge
			for i := range quotas {
				if rapid.Bool().Draw(t, "is in") {
					charges = append(charges, limiter.Charge{
						Quota: quotas[i], Key: string(rune('0' + rapid.IntRange(0, 3).Draw(t, "part"))), Cost: rapid.Int64Range(0, 5).Draw(t, "cost"),
					})
				}
			}
			before := make([][2]int64, len(charges))
			isClosed, fits := false, true
			for i, c := range charges {
				before[i] = used(c)
				down := c.Key == "1" || c.Key == "3"
				isClosed = isClosed || down && c.Quota.OnOutage == limiter.FailClosed
				switch {
				case !down:
					fits = fits && before[i][0]+c.Cost <= 4
				case c.Quota.OnOutage == limiter.FailLocal:
					fits = fits && before[i][1]+c.Cost <= 4
				}
			}
			decisions := make([]limiter.Decision, len(charges))
			err := s.Decide(context.Background(), charges, decisions)
			if isClosed {
				require.ErrorIs(t, err, ErrUnavailable, "a Closed rule whose server is down stops the batch")
			} else {
				require.NoError(t, err)
				taken := true
				for _, d := range decisions {
					taken = taken && d.Allowed
				}
				require.Equal(t, fits, taken, "a batch is taken if all of it fits")
			}
			for i, c := range charges {
				want := before[i]
				down := c.Key == "1" || c.Key == "3"
				if fits && !isClosed {
					switch {
					case !down:
						want[0] += c.Cost
					case c.Quota.OnOutage == limiter.FailLocal:
						want[1] += c.Cost
					}
				}
				require.Equal(t, want, used(c), "charge %d is taken where it belongs, or nothing is", i)
				require.True(t, isClosed || decisions[i].Degraded == down, "what the server decided is not degraded, and the rest is")
			}
		}
	})
}

func TestUnitsReturnWhereTheyWereCountedOnServersUpAndDown(t *testing.T) {
	inner := newServer(t, fine)
	s := Must(New(cluster{inner}, Options{OnDegraded: func(Event) {}}))
	api := quota(t, "api", limiter.PerHour(10), limiter.FailLocal)
	inner.is(downFor("1"))
	breakDown(t, s, charge(api, "1"))
	both := []limiter.Charge{charge(api, "0"), charge(api, "1")}
	decide(t, s, both...)
	assert.EqualValues(t, 1, inner.used(t, api, "0"))
	require.NoError(t, s.Refund(t.Context(), both))
	assert.Zero(t, inner.used(t, api, "0"), "the server that is up has its units back")
	assert.EqualValues(t, 10-5, decide(t, s, limiter.Charge{Quota: api, Key: "1"})[0].Remaining, "and so has this process")
	decide(t, s, both...)
	require.ErrorIs(t, s.Reset(t.Context(), both), ErrUnavailable)
	assert.Zero(t, inner.used(t, api, "0"), "what can be reset is")
}

// unsteady is the mood of a server that fails at every n-th call.
func unsteady(n int) mood {
	calls := 0
	return func(context.Context, string, []limiter.Charge) error {
		if calls++; calls%n == 0 {
			return errDown
		}
		return nil
	}
}

func TestAnOutageThatIsNotTotalIsToldAndSoIsItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, heard := newServer(t, unsteady(10)), &diary{}
		s := Must(New(inner, Options{OnDegraded: heard.note}))
		api := quota(t, "api", limiter.PerSecond(1_000_000), limiter.FailLocal)
		run := func(d time.Duration) {
			for range d / (10 * time.Millisecond) {
				decide(t, s, charge(api, "key"))
				time.Sleep(10 * time.Millisecond)
			}
		}
		start := time.Now()
		run(5 * time.Minute)
		events := heard.read()
		require.Len(t, events, 1, "the hook is called once, however long it lasts")
		assert.True(t, events[0].Degraded && events[0].Partly)
		assert.ErrorIs(t, events[0].Err, errDown)
		assert.InDelta(t, 0.1, events[0].Share, 0.02)
		assert.True(t, s.Stats().Partly)
		assert.False(t, s.Stats().Degraded, "no breaker is open")

		inner.is(fine)
		run(2 * partialEvery)
		events = heard.read()
		require.Len(t, events, 2)
		assert.True(t, events[1].Partly && !events[1].Degraded, "its end is told")
		assert.InDelta(t, time.Since(start), events[1].For, float64(4*partialEvery))
		assert.False(t, s.Stats().Partly)
	})
}

func TestAPartialOutageOfFewRequestsIsToldToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, heard := newServer(t, unsteady(6)), &diary{}
		s := Must(New(inner, Options{OnDegraded: heard.note}))
		api := quota(t, "api", limiter.PerSecond(1_000_000), limiter.FailLocal)
		for range 120 {
			decide(t, s, charge(api, "key"))
			time.Sleep(time.Second)
		}
		require.Len(t, heard.read(), 1)
		time.Sleep(time.Hour)
		require.Len(t, heard.read(), 2, "without requests it ends")
	})
}

func TestAPartialOutageIsToldOnceHoweverManyCallsSucceedInARow(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			inner, heard := newServer(t, func(context.Context, string, []limiter.Charge) error {
				if r.IntN(10) == 0 {
					return errDown
				}
				return nil
			}), &diary{}
			s := Must(New(inner, Options{Failures: 100, OnDegraded: heard.note}))
			api := quota(t, "api", limiter.PerSecond(1_000_000), limiter.FailLocal)
			for range 3600 {
				decide(t, s, charge(api, "key"))
				time.Sleep(time.Second)
			}
			require.Len(t, heard.read(), 1, "a tenth fails all the time")
			time.Sleep(time.Hour)
			require.Len(t, heard.read(), 2)
		})
	}
}

func TestNoTimerRunsWhileAServerIsDownAndNobodyAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newServer(t, dead)
		s := Must(New(inner, Options{OnDegraded: func(Event) {}}))
		breakDown(t, s, charge(quota(t, "api", limiter.PerMinute(1000), limiter.FailLocal), "key"))
		time.Sleep(time.Hour)
		s.partial.mu.Lock()
		defer s.partial.mu.Unlock()
		assert.False(t, s.partial.running, "it would keep a store that is not used any more")
	})
}

// One that was told of goes on through a whole outage, and ends after it.
func TestAPartialOutageEndsThoughAWholeOneCameBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, heard := newServer(t, unsteady(10)), &diary{}
		s := Must(New(inner, Options{OnDegraded: heard.note}))
		c := charge(quota(t, "api", limiter.PerSecond(1_000_000), limiter.FailLocal), "key")
		for _, m := range []mood{unsteady(10), dead, fine} {
			inner.is(m)
			for range 3000 {
				decide(t, s, c)
				time.Sleep(10 * time.Millisecond)
			}
		}
		time.Sleep(time.Hour)
		var told []string
		for _, e := range heard.read() {
			told = append(told, fmt.Sprintf("degraded %t, partly %t", e.Degraded, e.Partly))
		}
		assert.Equal(t, []string{"degraded true, partly true", "degraded true, partly false", "degraded false, partly false", "degraded false, partly true"}, told)
		assert.False(t, s.Stats().Partly)
		assert.False(t, s.partial.running)
	})
}

func TestAFewFailuresAndAWholeOutageAreNoPartialOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, heard := newServer(t, unsteady(200)), &diary{}
		s := Must(New(inner, Options{OnDegraded: heard.note}))
		api := quota(t, "api", limiter.PerSecond(1_000_000), limiter.FailLocal)
		for range 20_000 {
			decide(t, s, charge(api, "key"))
			time.Sleep(10 * time.Millisecond)
		}
		assert.Empty(t, heard.read(), "a failure in 200 is not told")
		inner.is(dead)
		for range 1000 {
			decide(t, s, charge(api, "key"))
			time.Sleep(10 * time.Millisecond)
		}
		inner.is(fine)
		for range 3000 {
			decide(t, s, charge(api, "key"))
			time.Sleep(10 * time.Millisecond)
		}
		require.Len(t, heard.read(), 2)
		for _, e := range heard.read() {
			assert.False(t, e.Partly, "a whole outage is told as one")
		}
	})
}
