package failover_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
)

func TestAnOpenRulePassesUncounted(t *testing.T) {
	s := wrap(newServer(t, dead), failover.Options{})
	search := quota(t, "search", limiter.PerMinute(2), limiter.FailOpen)
	for range 10 {
		assert.Equal(t, []limiter.Decision{{Allowed: true, Degraded: true, Receipt: limiter.Receipt{By: limiter.ByNobody}}}, decide(t, s, charge(search, "key")))
	}
	assert.Equal(t, uint64(10), s.Health().Open)
	assert.Zero(t, s.Health().Local)
}

func TestALocalRuleCountsThisProcesssShare(t *testing.T) {
	s := wrap(newServer(t, dead), failover.Options{Replicas: 3})
	api := quota(t, "api", limiter.PerMinute(10), limiter.FailLocal)
	for i, want := range []bool{true, true, true, false, false} {
		d := decide(t, s, charge(api, "key"))[0]
		assert.Equal(t, want, d.Allowed, "event %d", i+1)
		assert.Equal(t, int64(3), d.Limit)
		assert.Equal(t, time.Minute, d.Window)
		assert.LessOrEqual(t, d.Remaining, d.Limit)
		assert.True(t, d.Degraded, "event %d", i+1)
	}
	gold, err := limiter.NewQuota("api", "gold", limiter.PerMinute(10))
	require.NoError(t, err)
	assert.True(t, decide(t, s, charge(gold, "key"))[0].Allowed, "tiers are counted apart")

	rare := quota(t, "rare", limiter.PerMinute(2), limiter.FailLocal)
	slow := decide(t, s, charge(rare, "key"))[0]
	assert.Equal(t, int64(1), slow.Limit)
	assert.Equal(t, 90*time.Second, slow.Window, "one event in the time that a third of the limit takes for it")
	whole := wrap(newServer(t, dead), failover.Options{})
	assert.Zero(t, decide(t, whole, charge(api, "key"))[0].Window, "it is the rule's own")

	month := quota(t, "month", limiter.Monthly(100), limiter.FailLocal)
	d := decide(t, s, charge(month, "key"))[0]
	start, end := month.WindowAt(d.Receipt.At)
	assert.Equal(t, []int64{33, end - start}, []int64{d.Limit, d.Window.Microseconds()}, "a share of this month")

	d = decide(t, s, limiter.Charge{Quota: api, Key: "other", Cost: 4})[0]
	assert.Equal(t, limiter.Never, d.RetryAfter, "of no share is there so much")
}

func TestAClosedRuleStopsTheWholeBatch(t *testing.T) {
	inner := newServer(t, dead)
	s := wrap(inner, failover.Options{})
	login := quota(t, "login", limiter.PerMinute(10), limiter.FailClosed)
	search := quota(t, "search", limiter.PerMinute(10), limiter.FailOpen)
	api := quota(t, "api", limiter.PerMinute(10), limiter.FailLocal)
	for i := range 10 { // failing calls first, then none
		for _, charges := range [][]limiter.Charge{
			{charge(login, "key")},
			{charge(search, "key"), charge(api, "key"), charge(login, "key")},
			{{Quota: login, Key: "key"}},
		} {
			err := s.Decide(t.Context(), charges)
			require.ErrorIs(t, err, failover.ErrUnavailable)
			require.ErrorIs(t, err, errDown)
			assert.EqualError(t, err, `failover: the store's server is unavailable, and rule "login" is closed meanwhile: connection refused`)
			assert.Zero(t, charges[0].Decision, "batch %d", i+1)
		}
	}
	assert.Equal(t, uint64(30), s.Health().Closed)
	assert.Equal(t, int64(9), decide(t, s, charge(api, "key"))[0].Remaining, "nothing was taken")
}

func TestABatchOfAnyLengthIsDecided(t *testing.T) {
	s := wrap(newServer(t, dead), failover.Options{Replicas: 2, Failures: 1})
	for n := range limiter.MaxCharges + 1 {
		var charges []limiter.Charge
		for i := range n {
			q := quota(t, fmt.Sprint("rule ", i), limiter.PerMinute(int64(1000+2*i)), limiter.Outage(i%2))
			charges = append(charges, charge(q, fmt.Sprint("key ", n)))
		}
		for i, d := range decide(t, s, charges...) {
			want := int64(1000+2*i)/2 - 1
			if charges[i].Quota.OnOutage == limiter.FailOpen {
				want = 0
			}
			assert.Equal(t, want > 0, d.Counted())
			assert.Equal(t, want, d.Remaining, "charge %d of %d", i+1, n)
		}
	}
}

func TestAProbeAsksOnlyThePartWhoseTurnItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, heard := newServer(t, downFor("1", "2")), &diary{}
		s := wrap(cluster{inner}, failover.Options{OnDegraded: heard.note})
		api := quota(t, "api", limiter.PerMinute(1000), limiter.FailLocal)
		breakDown(t, s, charge(api, "1"))
		time.Sleep(700 * time.Millisecond)
		breakDown(t, s, charge(api, "2"))
		inner.is(downFor("2"))
		time.Sleep(700 * time.Millisecond) // part 2 has not been down for a second yet

		batch := []limiter.Charge{charge(api, "0 a"), charge(api, "1 a"), charge(api, "2 a"), charge(api, "1 b")}
		calls := inner.calls.Load()
		decide(t, s, batch...)
		synctest.Wait()
		assert.Equal(t, calls+3, inner.calls.Load(), "one for part 0, and the probe's two")
		for key, want := range map[string]int64{"0 a": 1, "1 a": 0, "1 b": 0, "2 a": 0} {
			assert.Equal(t, want, inner.used(t, api, key), "key %q", key)
		}
		assert.False(t, decide(t, s, charge(api, "1"))[0].Degraded, "part 2, which is down, is not held against it")
		assert.True(t, decide(t, s, charge(api, "2"))[0].Degraded)
		assert.True(t, s.Health().Degraded)

		time.Sleep(time.Second)
		inner.is(fine)
		decide(t, s, batch...)
		synctest.Wait()
		assert.False(t, s.Health().Degraded)
		assert.Equal(t, int64(2), inner.used(t, api, "1 a"), "part 1 was up, and counts, with what this process counted before")
		endOutage(t, s, charge(api, "1"))
		assert.Equal(t, []failover.Event{
			{Degraded: true, Server: "server 1", Err: errDown},
			{Server: "server 1", Err: errDown, For: 2400 * time.Millisecond},
		}, heard.read())
	})
}
