package failover_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
)

// settle says what a charge that d was the decision on really cost.
func settle(t testing.TB, s limiter.Store, c limiter.Charge, d limiter.Decision, actual int64) error {
	t.Helper()
	return s.Settle(t.Context(), []limiter.Settlement{{Charge: at(c, d), Actual: actual}})
}

// inUse is how many units of a key the decisions of a process go by in an outage.
func inUse(t testing.TB, s *failover.Store, q *limiter.Quota, key string) int64 {
	t.Helper()
	d := decide(t, s.Local(), limiter.Charge{Quota: s.ShareOf(q), Key: key})[0]
	return d.Limit - d.Remaining
}

func TestWhatAnOpenRuleDidNotCountIsNotSettled(t *testing.T) {
	try(t, fine, failover.Options{}, func(w *trial) {
		c := limiter.Charge{Quota: quota(w, "open", limiter.PerHour(100), limiter.FailOpen), Key: "key", Cost: 10}
		closed := charge(quota(w, "closed", limiter.PerHour(100), limiter.FailClosed), "key")
		counted := decide(w, w.Store, closed)[0]
		w.inner.is(dead)
		w.breakDown()
		d := decide(w, w.Store, c)[0]
		require.NoError(w, settle(w, w.Store, c, d, 50))
		require.NoError(w, settle(w, w.Store, c, d, 5))
		require.ErrorIs(w, settle(w, w.Store, closed, counted, 3), failover.ErrUnavailable)
		require.ErrorIs(w, settle(w, w.Store, closed, limiter.Decision{}, 3), failover.ErrUnavailable, "only the server counts a Closed rule")
		w.comeBack()
		require.NoError(w, settle(w, w.Store, c, d, 50))
		assert.Zero(w, w.inner.used(w, c.Quota, "key"))
		assert.Zero(w, inUse(w, w.Store, quota(w, "open", limiter.PerHour(100), limiter.FailLocal), "key"))
	})
}

func TestWhereItIsNotKnownWhenAnEventWasCountedItIsOwedNow(t *testing.T) {
	try(t, fine, failover.Options{Failures: 1}, func(w *trial) {
		owe := func() error { return settle(w, w.Store, look(w.c), limiter.Decision{}, 7) }
		require.NoError(w, owe())
		assert.Equal(w, int64(7), w.inner.used(w, w.c.Quota, "key"))
		w.inner.is(dead)
		assert.ErrorIs(w, owe(), errDown)
		require.True(w, w.Health().Degraded, "what cannot be owed is a sign too")
		require.NoError(w, owe())
		assert.Equal(w, int64(7), inUse(w, w.Store, w.c.Quota, "key"))
		assert.Equal(w, int64(7), w.inner.used(w, w.c.Quota, "key"))
	})
}

// Whatever happens to the server in between, the counters have what events cost there.
func TestNoUnitIsLostOrCountedTwiceOverManyOutages(t *testing.T) {
	t.Context().Done() // made outside of the bubble, as it is closed there
	synctest.Test(t, func(*testing.T) {
		rapid.Check(t, func(r *rapid.T) {
			inner := newServer(t, fine)
			var store limiter.Store = inner
			if rapid.Bool().Draw(r, "settles later") { // what it counted, and while it is up
				store = lazySlots{inner}
			}
			s := wrap(store, failover.Options{Failures: 1, OnDegraded: ignore})
			q := quota(t, "tokens", limiter.PerDay(1000).With(limiter.SlidingLog), limiter.FailLocal)
			probe := charge(quota(t, "probe", limiter.PerDay(1000), limiter.FailLocal), "key")
			type event struct {
				limiter.Charge
				degraded bool
			}
			var open []event
			onServer, inProcess, owed, isDown := int64(0), int64(0), int64(0), false
			for range rapid.IntRange(1, 40).Draw(r, "steps") {
				switch rapid.SampledFrom([]string{"reserve", "settle", "fail", "return"}).Draw(r, "step") {
				case "reserve":
					c := limiter.Charge{Quota: q, Key: "key", Cost: rapid.Int64Range(1, 60).Draw(r, "cost")}
					d := decide(t, s, c)[0]
					require.Equal(r, isDown, d.Degraded)
					used := &onServer
					if isDown {
						used = &inProcess
					}
					require.Equal(r, *used+c.Cost <= 1000, d.Allowed)
					if d.Allowed {
						*used += c.Cost
						if isDown {
							owed += c.Cost
						}
						open = append(open, event{at(c, d), isDown})
					}
					if !isDown && owed > 0 && d.Allowed {
						onServer, inProcess, owed = onServer+owed, inProcess+c.Cost, 0
					}
					time.Sleep(time.Second)
				case "settle":
					if len(open) == 0 {
						continue
					}
					i := rapid.IntRange(0, len(open)-1).Draw(r, "event")
					e := open[i]
					open = append(open[:i], open[i+1:]...)
					actual := rapid.Int64Range(0, 80).Draw(r, "actual")
					synctest.Wait() // for a probe
					calls := inner.calls.Load()
					err := s.Settle(t.Context(), []limiter.Settlement{{Charge: e.Charge, Actual: actual}})
					switch {
					case e.degraded:
						require.NoError(r, err)
						inProcess += actual - e.Cost
						owed = max(0, owed+actual-e.Cost)
					case !isDown:
						require.NoError(r, err)
						if onServer += actual - e.Cost; actual > e.Cost && owed > 0 {
							onServer, inProcess, owed = onServer+owed, inProcess+actual-e.Cost, 0
						}
					case actual != e.Cost:
						require.ErrorIs(r, err, failover.ErrUnavailable)
						require.EqualError(r, err, "failover: the store's server is unavailable, so what it counted could not be corrected: connection refused")
					default:
						require.NoError(r, err, "there is nothing to correct")
					}
					if isDown {
						require.Equal(r, calls, inner.calls.Load(), "a server that is down is not waited for")
					}
				case "fail":
					isDown = true
					inner.is(dead)
					decide(t, s, probe)
				case "return":
					isDown = false
					inner.comeBack(t, s, probe)
				}
				require.Equal(r, min(onServer, 1000), inner.used(t, q, "key"), "on the server")
				require.Equal(r, min(inProcess, 1000), inUse(t, s, q, "key"), "in the process")
			}
		})
	})
}

func TestAServerIsNotUpBecauseItTookNoteOfASettlement(t *testing.T) {
	try(t, fine, failover.Options{Failures: 2}, func(w *trial) {
		counted := w.ask()
		w.inner.is(func(_ context.Context, kind string, _ []limiter.Charge) error {
			if kind == "settle" {
				return nil
			}
			return errDown
		})
		w.ask()
		require.NoError(w, settle(w, w.Store, w.c, counted, 5))
		time.Sleep(time.Second)
		w.ask()
		assert.True(w, w.Health().Degraded)
	})
}

// noting is a server that takes note of a settlement at once.
type noting struct{ prompt }

func (noting) Settle(context.Context, []limiter.Settlement) error { return nil }

func (n noting) Within(time.Duration) limiter.Store { return n }

func TestWhatIsSettledLaterDoesNotAllocate(t *testing.T) {
	s := wrap(noting{}, failover.Options{})
	settlements := []limiter.Settlement{{Charge: charge(quota(t, "tokens", limiter.PerHour(100), limiter.FailLocal), "key"), Actual: 5}}
	settlements[0].Decision.Receipt.By = limiter.ByStore
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if err := s.Settle(context.Background(), settlements); err != nil {
			t.Error(err)
		}
	}))
}

// A reservation that is larger than this process's share takes all of that in an outage, and is
// settled by what it took.
func TestAReservationIsNoLargerThanTheShareInAnOutage(t *testing.T) {
	for i, actual := range []int64{0, 10, 25, 30, 90} {
		cost := []int64{50, 100}[i%2]
		synctest.Test(t, func(t *testing.T) {
			inner := newServer(t, dead)
			s := wrap(inner, failover.Options{Replicas: 4, OnDegraded: ignore})
			q := quota(t, "tokens", limiter.PerHour(100).With(limiter.FixedWindow), limiter.FailLocal)
			plain := charge(quota(t, "plain", limiter.PerHour(100).With(limiter.FixedWindow), limiter.FailLocal), "key")
			q.Settles = true
			breakDown(t, s, plain)
			plain.Cost = 50
			assert.False(t, decide(t, s, plain)[0].Allowed, "what is not settled costs what it costs")
			c := limiter.Charge{Quota: q, Key: "key", Cost: 101}
			assert.False(t, decide(t, s, c)[0].Allowed, "more than the limit")
			c.Cost = cost
			d := decide(t, s, c)[0]
			require.True(t, d.Allowed)
			require.Zero(t, d.Remaining)
			next := decide(t, s, c)[0]
			require.False(t, next.Allowed)
			assert.NotEqual(t, limiter.Never, next.RetryAfter)
			require.NoError(t, settle(t, s, c, d, actual))
			assert.Equal(t, min(25, actual), inUse(t, s, q, "key"), "of 25, when %d were used", actual)
		})
	}
}

// Of an event that is charged afterwards only a look is decided on, and its settlement changes the counter.
func TestWhatIsChargedAfterwardsIsOwedToo(t *testing.T) {
	try(t, dead, failover.Options{}, func(w *trial) {
		w.c.Cost = 0
		require.NoError(w, settle(w, w.Store, w.c, w.ask(), 7))
		w.inner.is(fine)
		d := w.ask()
		assert.EqualValues(w, 100, d.Remaining)
		require.NoError(w, settle(w, w.Store, w.c, d, 1))
		assert.EqualValues(w, 8, w.inner.used(w, w.c.Quota, "key"))
	})
}

func TestDebtsAreBoundedAndForgottenWhenTheyCountNoMore(t *testing.T) {
	try(t, dead, failover.Options{}, func(w *trial) {
		w.c.Quota = quota(w, "api", limiter.PerSecond(10).With(limiter.TokenBucket), limiter.FailLocal)
		for i := range 65_536 + 1000 {
			w.c.Key = fmt.Sprint("key ", i)
			w.ask()
		}
		assert.EqualValues(w, 65_536, w.Owing())
		assert.EqualValues(w, 1000, w.Health().Forgiven)
		time.Sleep(2 * time.Minute)
		w.c.Key = "key"
		w.comeBack()
		w.ask()
		assert.Zero(w, w.Owing(), "a store that is well again looks for no debts")
	})
}

// Otherwise the server would forgive what it cannot owe, and each process would admit its debt anew.
func TestADebtWaitsUntilTheServerHasRoomForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newServer(t, fine)
		c := charge(quota(t, "api", limiter.PerSecond(60).With(limiter.TokenBucket), limiter.FailLocal), "key")
		var fleet []*failover.Store
		for range 2 {
			fleet = append(fleet, wrap(inner, failover.Options{Failures: 1000, OnDegraded: ignore}))
		}
		admitted, asked := 0, 0
		ask := func() { // the processes in turn
			if asked++; decide(t, fleet[asked%2], c)[0].Allowed {
				admitted++
			}
		}
		for range 100 {
			ask()
		}
		inner.is(dead)
		for range 200 {
			ask()
		}
		require.Equal(t, 60+2*60, admitted, "each process owes a burst")
		inner.is(fine)
		admitted = 0
		for range 2000 {
			ask()
			time.Sleep(time.Millisecond)
		}
		assert.Positive(t, admitted)
		assert.LessOrEqual(t, admitted, 4, "in 2 seconds two bursts are paid")
	})
}

func TestTheShareOfAKeyThatOwesCountsWhatTheServerAllows(t *testing.T) {
	try(t, dead, failover.Options{Replicas: 4, Failures: 1000}, func(w *trial) {
		w.c.Quota = quota(w, "api", limiter.PerSecond(60).With(limiter.TokenBucket), limiter.FailLocal)
		retryAfter := func() time.Duration {
			for {
				if d := w.ask(); !d.Allowed {
					return d.RetryAfter
				}
			}
		}
		for range 30 { // the share is 15 a second
			time.Sleep(retryAfter())
		}
		before := retryAfter()
		w.inner.is(fine)
		require.True(w, w.ask().Allowed, "the server has room")
		w.inner.is(dead)
		assert.InDelta(w, before+time.Second/15, retryAfter(), float64(time.Microsecond), "for one unit more")
	})
}
