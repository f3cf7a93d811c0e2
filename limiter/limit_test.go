package limiter_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
)

func TestValidateNamesEveryBadFieldAndItsValue(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name string
		l    limiter.Limit
		want []string // one for each problem
	}{
		{"the zero Limit", limiter.Limit{}, []string{"Events is 0", "Per is 0s"}},
		{"no events", limiter.PerSecond(0), []string{"Events is 0: it must be from 1 to 1000000000000"}},
		{"negative events", limiter.PerSecond(-5), []string{"Events is -5"}},
		{"too many events", limiter.Limit{Events: 1e12 + 1, Per: 366 * day}, []string{"Events is 1000000000001"}},
		{"as many events as there are", limiter.PerSecond(math.MaxInt64), []string{"Events is 9223372036854775807"}},
		{"no period", limiter.Limit{Events: 1}, []string{"Per is 0s: it must be more than 0"}},
		{"a negative period", limiter.Limit{Events: 1, Per: -time.Second}, []string{"Per is -1s"}},
		{"a period too long", limiter.Limit{Events: 1, Per: 366*day + 1000}, []string{"at most 366 days"}},
		{"the longest period", limiter.Limit{Events: 1, Per: math.MaxInt64}, []string{"at most 366 days"}},
		{"nanoseconds", limiter.Limit{Events: 1, Per: 1500 * time.Nanosecond}, []string{"Per is 1.5µs: it must be a whole number of microseconds"}},
		{"a rate too high", limiter.Limit{Events: 11, Per: time.Microsecond}, []string{"Events is 11 per 1µs: the rate must be at most 10 million per second"}},
		{"a negative burst", limiter.PerSecond(1).WithBurst(-1), []string{"Burst is -1"}},
		{"a burst too great", limiter.PerSecond(1e7).WithBurst(1e12 + 1), []string{"Burst is 1000000000001"}},
		{"a burst that takes years", limiter.Limit{Events: 1, Per: 30 * day, Burst: 13, Algorithm: limiter.TokenBucket}, []string{"Burst is 13: at 1 per 720h0m0s it would take more than 366 days"}},
		{"a queue that takes years", limiter.Limit{Events: 1, Per: 30 * day, Burst: 13, Algorithm: limiter.LeakyBucket}, []string{"Burst is 13"}},
		{"a burst that overflows", limiter.Limit{Events: 1, Per: 366 * day, Burst: 1e12, Algorithm: limiter.TokenBucket}, []string{"Burst is 1000000000000: at 1 per"}},
		{"a burst of a window", limiter.Limit{Events: 1, Per: time.Second, Burst: 2}, []string{"Burst is 2: sliding-window has no burst"}},
		{"a burst of a fixed window", limiter.Limit{Events: 1, Per: time.Second, Burst: 2, Algorithm: limiter.FixedWindow}, []string{"fixed-window has no burst"}},
		{"a burst of a log", limiter.Limit{Events: 1, Per: time.Second, Burst: 2, Algorithm: limiter.SlidingLog}, []string{"sliding-log has no burst"}},
		{"an unknown algorithm", limiter.PerSecond(1).With(6), []string{"Algorithm is 6: there is no such algorithm"}},
		{"the last unknown algorithm", limiter.PerSecond(1).With(255), []string{"Algorithm is 255"}},
		{"a log too long", limiter.PerDay(10_001).With(limiter.SlidingLog), []string{"Events is 10001: sliding-log remembers every event and takes at most 10000"}},
		{
			"everything at once",
			limiter.Limit{Events: -1, Per: 1500, Burst: -2, Algorithm: 77},
			[]string{"Events is -1", "Per is 1.5µs", "Burst is -2", "Algorithm is 77"},
		},
		{
			"a bad burst of a window without a period",
			limiter.Limit{Events: 20_000_000, Burst: -3},
			[]string{"Per is 0s", "Burst is -3: it must", "Burst is -3: sliding-window has no burst"},
		},
		{
			"too fast and too large",
			limiter.Limit{Events: 1e12, Per: time.Second, Burst: -1, Algorithm: limiter.SlidingLog},
			[]string{"Burst is -1", "sliding-log has no burst"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.l.Validate()
			require.Error(t, err)
			lines := strings.Split(err.Error(), "\n")
			require.Len(t, lines, len(tt.want), "%v", err)
			for i, want := range tt.want {
				assert.Contains(t, lines[i], want)
				assert.True(t, strings.HasPrefix(lines[i], "limiter: "), lines[i])
			}
			_, err = limiter.NewQuota("rule", "", tt.l)
			require.ErrorContains(t, err, tt.want[0], "NewQuota says what Validate says")
			_, err = tt.l.MarshalText()
			require.Error(t, err, "an invalid limit must not be written where it would not be read")
		})
	}
}

func TestValidateAcceptsTheBounds(t *testing.T) {
	const day = 24 * time.Hour
	for _, l := range []limiter.Limit{
		{Events: 1, Per: time.Microsecond},
		{Events: 10, Per: time.Microsecond},
		{Events: 1, Per: 366 * day},
		{Events: 1e12, Per: 366 * day},
		{Events: 1e12, Per: 100_000 * time.Second},
		{Events: 1, Per: 366 * day, Algorithm: limiter.LeakyBucket},
		{Events: 1, Per: 30 * day, Burst: 12, Algorithm: limiter.TokenBucket},
		{Events: 10_000_000, Per: time.Second, Burst: 1e12, Algorithm: limiter.LeakyBucket},
		{Events: 10_000, Per: 366 * day, Algorithm: limiter.SlidingLog},
	} {
		assert.NoError(t, l.Validate(), "%v", l)
	}
}

func TestABurstMakesABucketOfTheDefaultAndDefaultsToTheEvents(t *testing.T) {
	for _, tt := range []struct {
		l        limiter.Limit
		a        limiter.Algorithm
		capacity int64
	}{
		{limiter.PerSecond(10), limiter.SlidingWindow, 10},
		{limiter.PerSecond(10).With(limiter.FixedWindow), limiter.FixedWindow, 10},
		{limiter.PerSecond(10).With(limiter.SlidingLog), limiter.SlidingLog, 10},
		{limiter.PerSecond(10).With(limiter.TokenBucket), limiter.TokenBucket, 10},
		{limiter.PerSecond(10).WithBurst(3), limiter.TokenBucket, 3},
		{limiter.PerSecond(10).With(limiter.LeakyBucket), limiter.LeakyBucket, 11},
		{limiter.PerSecond(10).With(limiter.LeakyBucket).WithBurst(3), limiter.LeakyBucket, 4},
		{limiter.PerSecond(10).WithBurst(3).With(limiter.LeakyBucket), limiter.LeakyBucket, 4},
	} {
		assert.Equal(t, tt.a, tt.l.Algorithm)
		assert.Equal(t, tt.capacity, mustQuota(t, tt.l).Capacity(), "%v", tt.l)
	}
	assert.Error(t, limiter.PerSecond(10).With(limiter.FixedWindow).WithBurst(20).Validate())
}

func TestEveryLimitIsEitherRefusedOrCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := limiter.Limit{
			Events:    rapid.OneOf(rapid.Int64(), magnitude(1, math.MaxInt64)).Draw(t, "events"),
			Per:       time.Duration(rapid.OneOf(rapid.Int64(), rapid.Map(magnitude(1, 4e13), func(n int64) int64 { return n * 1000 })).Draw(t, "per")),
			Burst:     rapid.OneOf(rapid.Just(int64(0)), rapid.Int64(), magnitude(1, math.MaxInt64)).Draw(t, "burst"),
			Algorithm: limiter.Algorithm(rapid.IntRange(0, 6).Draw(t, "algorithm")),
		}
		q, err := limiter.NewQuota("rule", "", l)
		if err != nil {
			require.Nil(t, q)
			return
		}
		now := anyStart().Draw(t, "now")
		s, ok := q.Take(limiter.State{}, now, q.Capacity())
		require.True(t, ok)
		after, ok := q.Take(s, now, 1)
		require.False(t, ok)
		checkFuture(t, q, after, now, 1, q.Describe(after, now, 1, false))
	})
}

func TestValidateJoinsErrorsThatCanBeTakenApart(t *testing.T) {
	joined, ok := limiter.Limit{Events: -1, Burst: -1}.Validate().(interface{ Unwrap() []error })
	require.True(t, ok)
	require.Len(t, joined.Unwrap(), 4)
	require.False(t, errors.Is(limiter.Limit{}.Validate(), limiter.ErrCharges))
}
