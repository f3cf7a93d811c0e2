package limiter_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
)

func TestAQuotaKnowsWhatItWasMadeOf(t *testing.T) {
	l := limiter.PerSecond(10).WithBurst(20)
	q, err := limiter.NewQuota("api", "gold", l)
	require.NoError(t, err)
	assert.Equal(t, "api", q.Rule())
	assert.Equal(t, "gold", q.Tier())
	assert.Equal(t, l, q.Limit())
	assert.Equal(t, int64(20), q.Capacity())
	assert.Equal(t, 2*time.Second, q.Window())
	assert.Equal(t, time.Minute, mustQuota(t, limiter.PerMinute(5)).Window())
}

func TestNamesArePrintableAndOfSomeLength(t *testing.T) {
	l := limiter.PerSecond(1)
	for _, name := range []string{"a", "search", "GET /search", `with "quotes"`, "~!", strings.Repeat("n", 128)} {
		_, err := limiter.NewQuota(name, name, l)
		assert.NoError(t, err, "%q", name)
	}
	for _, tt := range []struct{ name, want string }{
		{"", "the rule name is empty"},
		{" ", "begins or ends with a space"},
		{" a", "begins or ends with a space"},
		{"a ", "begins or ends with a space"},
		{"a\n", "outside printable ASCII"},
		{"a\x00b", "outside printable ASCII"},
		{"\x7f", "outside printable ASCII"},
		{"größe", "outside printable ASCII"},
		{"\xff", "outside printable ASCII"},
		{strings.Repeat("n", 145), "has 145 characters: at most 1"},
		{strings.Repeat("n", 1<<20), "at most 1"},
	} {
		q, err := limiter.NewQuota(tt.name, "", l)
		require.ErrorContains(t, err, tt.want, "%.20q", tt.name)
		assert.Less(t, len(err.Error()), 200)
		assert.Nil(t, q)
		if tt.name != "" {
			_, err = limiter.NewQuota("rule", tt.name, l)
			require.ErrorContains(t, err, strings.ReplaceAll(tt.want, "rule", "tier"))
		}
	}
}

func TestTheCountersOfTheLongestNameHaveNames(t *testing.T) {
	longest := strings.Repeat("n", 128)
	odd := limiter.Limit{Events: 5, Per: 366*24*time.Hour - time.Microsecond} // its suffix has 16 characters
	quotas, err := limiter.NewQuotas(longest, longest, limiter.All(limiter.PerSecond(1), odd, limiter.AtOnce(1)))
	require.NoError(t, err)
	assert.Equal(t, longest+".31622399.999999", quotas[1].Rule())
	assert.Equal(t, longest+".concurrent", quotas[2].Rule())
	_, err = limiter.NewQuotas(longest+"n", "", limiter.PerSecond(1))
	require.ErrorContains(t, err, "has 129 characters: at most 128")
	_, err = limiter.NewQuotas("rule", longest+"n", limiter.PerSecond(1))
	require.ErrorContains(t, err, "has 129 characters: at most 128")
}

func TestNewAndNewQuotaReportEverythingAtOnce(t *testing.T) {
	_, err := limiter.NewQuota("", "\n", limiter.Limit{Burst: -1})
	for _, want := range []string{"rule name is empty", "tier name", "Events is 0", "Per is 0s", "Burst is -1"} {
		assert.ErrorContains(t, err, want)
	}
	_, err = limiter.New(limiter.Config{Limit: limiter.Limit{Burst: -1}})
	for _, want := range []string{"rule name is empty", "Events is 0", "Per is 0s", "Burst is -1"} {
		assert.ErrorContains(t, err, want)
	}
}

func TestTakeRefusesWhatMakesNoSense(t *testing.T) {
	for _, a := range everyAlgorithm {
		q := mustQuota(t, limiter.PerSecond(10).With(a))
		for _, cost := range []int64{-1, math.MinInt64, q.Capacity() + 1, math.MaxInt64} {
			s, ok := q.Take(limiter.State{}, 1, cost)
			assert.False(t, ok, "%v, cost %d", a, cost)
			assert.Zero(t, s)
			assert.Equal(t, limiter.Never, q.Describe(s, 1, cost, false).RetryAfter, "%v, cost %d", a, cost)
		}
	}
}

func TestTimeBeforeTheEpochIsTheEpoch(t *testing.T) {
	for _, a := range everyAlgorithm {
		q := mustQuota(t, limiter.PerSecond(10).With(a))
		s, ok := q.Take(limiter.State{}, -1_000_000, q.Capacity())
		require.True(t, ok)
		_, ok = q.Take(s, -1, 1)
		assert.False(t, ok, "%v", a)
		s, ok = q.Take(s, 10_000_000, 1)
		assert.True(t, ok, "%v", a)
		assert.Equal(t, int64(10_000_000), s.Last)
	}
}

// Slots would otherwise learn how long the event was in flight.
func TestAnUndoneChargeLeavesNoTrace(t *testing.T) {
	slots, err := limiter.NewConcurrency("rule", "", 10)
	require.NoError(t, err)
	quotas := []*limiter.Quota{slots}
	for _, a := range everyAlgorithm {
		quotas = append(quotas, mustQuota(t, limiter.PerMinute(10).With(a)))
	}
	for _, q := range quotas {
		const now = 1_700_000_000_000_000
		before, ok := q.Take(limiter.State{}, now, 7)
		require.True(t, ok)
		before = q.Settle(before, now+1e7, returned(1, now)) // held for a while
		taken, ok := q.Take(before, now+1e7, 2)
		require.True(t, ok)
		d := q.Describe(taken, now+1e7, 2, true)
		undone := q.Settle(taken, now+1e7+3000, returned(2, q.Undo(&d).At))
		assert.Equal(t, q.Describe(before, now+1e7+3000, 0, true), q.Describe(undone, now+1e7+3000, 0, true), "%v", q.Limit())
	}
}

// What was used stays used under a changed limit, and what is owed stays owed; and however often
// the limit changes, none admits more than it would alone.
func TestAChangedLimitKeepsWhatWasUsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quotas := []*limiter.Quota{mustQuota(t, anyLimit().Draw(t, "one")), mustQuota(t, anyLimit().Draw(t, "other"))}
		var s limiter.State
		now := anyStart().Draw(t, "start")
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			q := rapid.SampledFrom(quotas).Draw(t, "quota")
			converted := q.Used(s, now)
			if from := s.Quota; from != nil && len(s.Others) == 0 {
				used := from.Used(s, now)
				most := min(used, from.Capacity(), q.Capacity()) + min(max(0, used-from.Capacity()), q.Capacity())
				switch {
				case q.HasShapeOf(from):
					require.Equal(t, used, converted, "%v with %d used is under %v", from.Limit(), used, q.Limit())
				case q.Span() >= from.Span():
					require.Equal(t, most, converted, "%v with %d used becomes %v", from.Limit(), used, q.Limit())
				default:
					require.LessOrEqual(t, converted, most, "%v with %d used becomes %v", from.Limit(), used, q.Limit())
				}
			}
			if rapid.IntRange(0, 3).Draw(t, "owes") == 0 {
				n := anyOwed(q.Capacity()).Draw(t, "owed")
				least := min(n, 2*q.Capacity())
				if s.Quota != nil && len(s.Others) == 0 && q.HasShapeOf(s.Quota) {
					least += converted
				}
				s = q.Settle(clone(s), now, limiter.Settlement{Actual: n})
				if s.Last <= now { // or the clock may be further back than a period of q
					require.GreaterOrEqual(t, q.Used(s, now), min(least, 2*q.Capacity()))
				}
				continue
			}
			d := q.Describe(s, now, 0, true)
			cost := anyCost(q.Capacity(), d.Remaining).Draw(t, "cost")
			var ok bool
			s, ok = q.Take(s, now, cost)
			require.Equal(t, cost <= d.Remaining, ok)
			now = max(0, now+anyStep(q, d).Draw(t, "step"))
		}
	})
}

// A store's server knows a calendar no further than the window behind that of a state.
func TestADebtAfterACalendarsWindowIsUnderTheNewLimit(t *testing.T) {
	from, q := mustQuota(t, limiter.Daily(10)), mustQuota(t, limiter.Daily(30))
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	s := from.Settle(limiter.State{}, now.UnixMicro(), limiter.Settlement{Actual: 15})
	next := now.Add(24 * time.Hour).UnixMicro()
	after := q.Settle(s, next, limiter.Settlement{Actual: 1})
	require.Same(t, q, after.Quota)
	require.EqualValues(t, 6, q.Used(after, next))
}
