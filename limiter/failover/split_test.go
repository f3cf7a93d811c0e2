package failover_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/limiter/store"
)

// frank is a cluster whose errors name the charges that failed.
type frank struct{ cluster }

type chargesError struct {
	error
	charges []int
}

func (e chargesError) Charges() []int { return e.charges }
func (e chargesError) Unwrap() error  { return e.error }

func (f frank) Decide(ctx context.Context, charges []limiter.Charge) error {
	var failed []error
	for i := range charges {
		if err := (*f.mood.Load())(ctx, "decide", charges[i:i+1]); err != nil {
			failed = append(failed, chargesError{err, []int{i}})
		}
	}
	if failed != nil {
		f.calls.Add(1)
		return fmt.Errorf("frank: %w", errors.Join(failed...))
	}
	return f.cluster.Decide(ctx, charges)
}

func TestAServerThatIsUpCountsWhileAnotherIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, diary := newServer(t, downFor("1")), &diary{}
		o := diary.options(true)
		o.Failures = 3
		s := wrap(frank{cluster{inner}}, o)
		global := quota(t, "global", limiter.PerHour(10), limiter.FailLocal)
		user := quota(t, "user", limiter.PerHour(1000), limiter.FailLocal)
		admitted := 0
		for i := range 40 { // every other request has a rule on the server that is down
			d := decide(t, s, charge(global, "0"), charge(user, fmt.Sprint(i%2, " user")))
			if d[0].Allowed && d[1].Allowed {
				admitted++
			}
			assert.False(t, d[0].Degraded, "the global rule's server answers")
			assert.Equal(t, i%2 == 1, d[1].Degraded)
		}
		assert.Equal(t, 10, admitted, "a server that is up admits the limit, before the other breaker opens and after it")
		stats := s.Health()
		assert.Equal(t, []uint64{20, 20, 3}, []uint64{stats.Local, stats.Decided, stats.Failures})
		log := diary.logged()
		assert.Contains(t, log, "server 1")
		assert.NotContains(t, log, "server 0", "a server that answered has no failure")
	})
}

func TestAnErrorThatNamesNoChargeIsAboutAllOfThem(t *testing.T) {
	for _, err := range []error{errDown, chargesError{errDown, []int{7, -1}}} {
		inner := newServer(t, func(context.Context, string, []limiter.Charge) error { return err })
		s := wrap(cluster{inner}, failover.Options{Failures: 1, OnDegraded: ignore})
		api := quota(t, "api", limiter.PerHour(10), limiter.FailLocal)
		d := decide(t, s, charge(api, "0"), charge(api, "1"))
		assert.True(t, d[0].Degraded && d[1].Degraded)
		for _, key := range []string{"0", "1"} {
			assert.True(t, s.IsDown([]limiter.Charge{charge(api, key)}))
		}
	}
}

func TestAServerThatAnsweredHasNoFailuresInARow(t *testing.T) {
	inner := newServer(t, fine)
	s := wrap(frank{cluster{inner}}, failover.Options{Failures: 3, OnDegraded: ignore})
	api := quota(t, "api", limiter.PerHour(1000), limiter.FailLocal)
	login := quota(t, "login", limiter.PerHour(1000), limiter.FailClosed)
	for range 3 {
		inner.is(dead)
		decide(t, s, charge(api, "0"))
		decide(t, s, charge(api, "0"))
		inner.is(downFor("1"))
		both := []limiter.Charge{charge(api, "0"), charge(login, "1")}
		require.ErrorIs(t, s.Decide(t.Context(), both), failover.ErrUnavailable)
	}
	assert.True(t, s.IsDown([]limiter.Charge{charge(api, "1")}))
	assert.False(t, s.IsDown([]limiter.Charge{charge(api, "0")}))
}

func TestABatchOnServersUpAndDownIsTakenAllOrNone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		memory, err := limiter.NewMemory(limiter.MemoryOptions{})
		require.NoError(t, err)
		inner := &server{Memory: memory}
		inner.is(downFor("1", "3"))
		s := wrap(frank{cluster{inner}}, failover.Options{Failures: 2, OnDegraded: ignore, ProbeEvery: time.Hour})
		policies := []limiter.Outage{limiter.FailLocal, limiter.FailOpen, limiter.FailClosed}
		quotas := make([]*limiter.Quota, 6)
		for i := range quotas {
			quotas[i], err = limiter.NewQuota(fmt.Sprint("rule ", i), "", limiter.Limit{Events: 4, Per: 300 * 24 * time.Hour, Algorithm: limiter.TokenBucket})
			require.NoError(t, err)
			quotas[i].OnOutage = policies[i%3]
		}
		slots, err := limiter.NewConcurrency("slots", "", 4)
		require.NoError(t, err)
		quotas = append(quotas, slots)
		used := func(c limiter.Charge) [2]int64 {
			server, local := []limiter.Charge{{Quota: c.Quota, Key: c.Key}}, []limiter.Charge{{Quota: c.Quota, Key: c.Key}}
			require.NoError(t, inner.Memory.Decide(context.Background(), server))
			require.NoError(t, s.Local().Decide(context.Background(), local))
			return [2]int64{4 - server[0].Decision.Remaining, 4 - local[0].Decision.Remaining}
		}
		for i, q := range quotas { // of an earlier outage of the servers that are up now
			earlier := []limiter.Charge{{Quota: q, Key: []string{"0", "2"}[i%2], Cost: 1}}
			require.NoError(t, s.Local().Decide(context.Background(), earlier))
		}
		stopped := uint64(0)
		for range rapid.IntRange(1, 30).Draw(t, "batches") {
			var charges []limiter.Charge
			for i := range quotas {
				if rapid.Bool().Draw(t, "is in") {
					charges = append(charges, limiter.Charge{
						Quota: quotas[i], Key: string(rune('0' + rapid.IntRange(0, 3).Draw(t, "part"))), Cost: rapid.Int64Range(0, 5).Draw(t, "cost"), Optional: rapid.IntRange(0, 3).Draw(t, "optional") == 0,
					})
				}
			}
			before := make([][2]int64, len(charges))
			isClosed, fits := false, true
			for i, c := range charges {
				before[i] = used(c)
				down := c.Key == "1" || c.Key == "3"
				switch {
				case c.Optional:
				case !down:
					fits = fits && before[i][0]+c.Cost <= 4
				case c.Quota.OnOutage == limiter.FailLocal:
					fits = fits && before[i][1]+c.Cost <= 4
				case c.Quota.OnOutage == limiter.FailClosed:
					isClosed = true
				}
			}
			err := s.Decide(context.Background(), charges)
			if isClosed {
				require.ErrorIs(t, err, failover.ErrUnavailable, "a Closed rule whose server is down stops the batch")
				stopped++
			} else {
				require.NoError(t, err)
				require.Equal(t, fits, store.Taken(charges), "a batch is taken if all of it fits")
			}
			for i, c := range charges {
				want := before[i]
				down := c.Key == "1" || c.Key == "3"
				if fits && !isClosed {
					switch {
					case c.Optional && !c.Decision.Allowed:
						closed := down && c.Quota.OnOutage == limiter.FailClosed
						require.True(t, closed || !down && want[0]+c.Cost > 4 || down && want[1]+c.Cost > 4, "an optional charge that fits is taken: %+v", c)
					case !down:
						want[0] += c.Cost
					case c.Quota.OnOutage == limiter.FailLocal:
						want[1] += c.Cost
					}
				}
				require.Equal(t, want, used(c), "charge %d is taken where it belongs, or nothing is", i)
				if isClosed {
					continue
				}
				require.Equal(t, down, c.Decision.Degraded, "what the server decided is not degraded, and the rest is")
				left := 4 - want[0]
				if down {
					left = 4 - want[1]
				}
				require.True(t, !c.Decision.Counted() || c.Decision.Remaining == left, "charge %d has %d left: %v", i, left, c.Decision)
			}
			require.Equal(t, stopped, s.Health().Closed)
		}
	})
}

func TestUnitsReturnWhereTheyWereCountedOnServersUpAndDown(t *testing.T) {
	inner := newServer(t, fine)
	s := wrap(cluster{inner}, failover.Options{OnDegraded: ignore})
	api := quota(t, "api", limiter.PerHour(10), limiter.FailLocal)
	both := []limiter.Charge{charge(api, "0"), charge(api, "1")}
	before := decide(t, s, both...)
	inner.is(downFor("1"))
	breakDown(t, s, charge(api, "1"))
	require.ErrorIs(t, s.Settle(t.Context(), []limiter.Settlement{{Charge: at(both[0], before[0])}, {Charge: at(both[1], before[1])}}), failover.ErrUnavailable)
	assert.Zero(t, inner.used(t, api, "0"), "what can be settled is")
	assert.EqualValues(t, 1, inner.used(t, api, "1"))
	decide(t, s, both...)
	assert.EqualValues(t, 1, inner.used(t, api, "0"))
	require.NoError(t, s.Settle(t.Context(), []limiter.Settlement{{Charge: both[0]}, {Charge: both[1]}}))
	assert.Zero(t, inner.used(t, api, "0"), "the server that is up has its units back")
	assert.EqualValues(t, 10-5, decide(t, s, limiter.Charge{Quota: api, Key: "1"})[0].Remaining, "and so has this process")
	decide(t, s, both...)
	require.ErrorIs(t, s.Reset(t.Context(), both), failover.ErrUnavailable)
	assert.Zero(t, inner.used(t, api, "0"), "what can be reset is")
}

func TestTimeWithTwoPartsDownCountsOnce(t *testing.T) {
	tryAround(t, fine, failover.Options{Failures: 1}, func(inner *server) limiter.Store { return cluster{inner} }, func(w *trial) {
		for i, step := range []struct {
			down   []string
			inAll  time.Duration
			lasted time.Duration
		}{
			{[]string{"0"}, 2 * time.Second, 2 * time.Second}, // until 6 s
			{[]string{"0", "1"}, 4 * time.Second, 4 * time.Second},
			{[]string{"1"}, 6 * time.Second, 6 * time.Second}, // for one server at least
			{nil, 6 * time.Second, 0},
			{[]string{"1"}, 8 * time.Second, 2 * time.Second},
		} {
			w.inner.is(downFor(step.down...))
			for _, w.c.Key = range []string{"0", "1"} {
				w.ask()
			}
			time.Sleep(2 * time.Second)
			health := w.Health()
			assert.Equal(w, step.inAll, health.DegradedInAll, "step %d", i)
			assert.Equal(w, step.lasted, health.DegradedFor, "step %d", i)
		}
	})
}

func TestAKeyThatCannotBeReadConcernsItsOwnRuleAlone(t *testing.T) {
	for outage, want := range map[limiter.Outage]int{limiter.FailLocal: 2, limiter.FailOpen: 3, limiter.FailClosed: 0} { // admitted of 10
		foreign := func(_ context.Context, _ string, charges []limiter.Charge) error {
			if charges[0].Key == "0 foreign" {
				return aboutOneKey{errors.New("no counter")}
			}
			return nil
		}
		around := func(inner *server) limiter.Store { return frank{cluster{inner}} }
		tryAround(t, foreign, failover.Options{Replicas: 2}, around, func(w *trial) {
			broken := charge(quota(w, "broken", limiter.PerHour(4), outage), "0 foreign")
			other := charge(quota(w, "other", limiter.PerHour(3), limiter.FailOpen), "0")
			too := charge(quota(w, "broken too", limiter.PerHour(100), limiter.FailLocal), "0 foreign")
			admitted := 0
			for range 10 {
				charges := []limiter.Charge{broken, other, too}
				if err := w.Decide(w.Context(), charges); err != nil {
					assert.ErrorIs(w, err, failover.ErrUnavailable)
					continue
				}
				assert.True(w, charges[0].Decision.Degraded && charges[2].Decision.Degraded)
				assert.False(w, charges[1].Decision.Degraded, "the store decides")
				if store.Taken(charges) {
					admitted++
				}
			}
			assert.Equal(w, want, admitted)
			assert.EqualValues(w, want, w.inner.used(w, other.Quota, "0"))
			assert.Zero(w, w.Health().Failures)
			assert.Empty(w, w.diary.logged(), "it is no outage")
		})
	}
}
