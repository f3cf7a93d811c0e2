package limiter

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/phase"
)

func TestValidateNamesEveryBadFieldAndItsValue(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name string
		l    Limit
		want []string // one for each problem
	}{
		{"the zero Limit", Limit{}, []string{"Events is 0", "Per is 0s"}},
		{"no events", PerSecond(0), []string{"Events is 0: it must be from 1 to 1000000000000"}},
		{"negative events", PerSecond(-5), []string{"Events is -5"}},
		{"too many events", Limit{Events: 1e12 + 1, Per: 366 * day}, []string{"Events is 1000000000001"}},
		{"as many events as there are", PerSecond(math.MaxInt64), []string{"Events is 9223372036854775807"}},
		{"no period", Limit{Events: 1}, []string{"Per is 0s: it must be more than 0"}},
		{"a negative period", Limit{Events: 1, Per: -time.Second}, []string{"Per is -1s"}},
		{"a period too long", Limit{Events: 1, Per: 366*day + 1000}, []string{"at most 366 days"}},
		{"the longest period", Limit{Events: 1, Per: math.MaxInt64}, []string{"at most 366 days"}},
		{"nanoseconds", Limit{Events: 1, Per: 1500 * time.Nanosecond}, []string{"Per is 1.5µs: it must be a whole number of microseconds"}},
		{"a rate too high", Limit{Events: 11, Per: time.Microsecond}, []string{"Events is 11 per 1µs: the rate must be at most 10 million per second"}},
		{"a negative burst", PerSecond(1).WithBurst(-1), []string{"Burst is -1"}},
		{"a burst too great", PerSecond(1e7).WithBurst(1e12 + 1), []string{"Burst is 1000000000001"}},
		{"a burst that takes years", Limit{Events: 1, Per: 30 * day, Burst: 13, Algorithm: TokenBucket}, []string{"Burst is 13: at 1 per 720h0m0s it would take more than 366 days"}},
		{"a queue that takes years", Limit{Events: 1, Per: 30 * day, Burst: 13, Algorithm: LeakyBucket}, []string{"Burst is 13"}},
		{"a burst that overflows", Limit{Events: 1, Per: 366 * day, Burst: 1e12, Algorithm: TokenBucket}, []string{"Burst is 1000000000000: at 1 per"}},
		{"a burst of a window", Limit{Events: 1, Per: time.Second, Burst: 2}, []string{"Burst is 2: sliding-window has no burst"}},
		{"a burst of a fixed window", Limit{Events: 1, Per: time.Second, Burst: 2, Algorithm: FixedWindow}, []string{"fixed-window has no burst"}},
		{"a burst of a log", Limit{Events: 1, Per: time.Second, Burst: 2, Algorithm: SlidingLog}, []string{"sliding-log has no burst"}},
		{"an unknown algorithm", PerSecond(1).With(6), []string{"Algorithm is 6: there is no such algorithm"}},
		{"the last unknown algorithm", PerSecond(1).With(255), []string{"Algorithm is 255"}},
		{"a log too long", PerDay(10_001).With(SlidingLog), []string{"Events is 10001: sliding-log remembers every event and takes at most 10000"}},
		{
			"everything at once",
			Limit{Events: -1, Per: 1500, Burst: -2, Algorithm: 77},
			[]string{"Events is -1", "Per is 1.5µs", "Burst is -2", "Algorithm is 77"},
		},
		{
			"a bad burst of a window without a period",
			Limit{Events: 20_000_000, Burst: -3},
			[]string{"Per is 0s", "Burst is -3: it must", "Burst is -3: sliding-window has no burst"},
		},
		{
			"too fast and too large",
			Limit{Events: 1e12, Per: time.Second, Burst: -1, Algorithm: SlidingLog},
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
			_, err = NewQuota("rule", "", tt.l)
			require.ErrorContains(t, err, tt.want[0], "NewQuota says what Validate says")
			_, err = tt.l.MarshalText()
			require.Error(t, err, "an invalid limit must not be written where it would not be read")
		})
	}
}

func TestValidateAcceptsTheBounds(t *testing.T) {
	const day = 24 * time.Hour
	for _, l := range []Limit{
		{Events: 1, Per: time.Microsecond},
		{Events: 10, Per: time.Microsecond},
		{Events: 1, Per: 366 * day},
		{Events: 1e12, Per: 366 * day},
		{Events: 1e12, Per: 100_000 * time.Second},
		{Events: 1, Per: 366 * day, Algorithm: LeakyBucket},
		{Events: 1, Per: 30 * day, Burst: 12, Algorithm: TokenBucket},
		{Events: 10_000_000, Per: time.Second, Burst: 1e12, Algorithm: LeakyBucket},
		{Events: 10_000, Per: 366 * day, Algorithm: SlidingLog},
	} {
		assert.NoError(t, l.Validate(), "%v", l)
	}
}

func TestWithBurstMakesABucketOfTheDefaultOnly(t *testing.T) {
	assert.Equal(t, TokenBucket, PerSecond(10).WithBurst(20).Algorithm)
	assert.Equal(t, LeakyBucket, PerSecond(10).With(LeakyBucket).WithBurst(20).Algorithm)
	assert.Equal(t, LeakyBucket, PerSecond(10).WithBurst(20).With(LeakyBucket).Algorithm)
	assert.Error(t, PerSecond(10).With(FixedWindow).WithBurst(20).Validate())
}

func TestABurstDefaultsToTheEvents(t *testing.T) {
	for _, tt := range []struct {
		l    Limit
		want int64
	}{
		{PerSecond(10), 10},
		{PerSecond(10).With(FixedWindow), 10},
		{PerSecond(10).With(SlidingLog), 10},
		{PerSecond(10).With(TokenBucket), 10},
		{PerSecond(10).WithBurst(3), 3},
		{PerSecond(10).With(LeakyBucket), 11},
		{PerSecond(10).With(LeakyBucket).WithBurst(3), 4},
	} {
		assert.Equal(t, tt.want, mustQuota(t, tt.l).Capacity(), "%v", tt.l)
	}
}

func TestEveryGeneratedLimitIsValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		require.NoError(t, anyLimit().Draw(t, "limit").Validate())
	})
}

func TestEveryLimitIsEitherRefusedOrCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Limit{
			Events:    rapid.OneOf(rapid.Int64(), magnitude(1, math.MaxInt64)).Draw(t, "events"),
			Per:       time.Duration(rapid.OneOf(rapid.Int64(), rapid.Map(magnitude(1, 4e13), func(n int64) int64 { return n * 1000 })).Draw(t, "per")),
			Burst:     rapid.OneOf(rapid.Just(int64(0)), rapid.Int64(), magnitude(1, math.MaxInt64)).Draw(t, "burst"),
			Algorithm: Algorithm(rapid.IntRange(0, 6).Draw(t, "algorithm")),
		}
		q, err := NewQuota("rule", "", l)
		if err != nil {
			require.Nil(t, q)
			return
		}
		now := anyStart().Draw(t, "now")
		s, ok := q.Take(State{}, now, q.capacity)
		require.True(t, ok)
		after, ok := q.Take(s, now, 1)
		require.False(t, ok)
		checkFuture(t, q, after, now, 1, q.Describe(after, now, 1, false))
	})
}

func TestMulDivUpRoundsUpAndSaturates(t *testing.T) {
	for _, tt := range []struct{ a, b, c, want int64 }{
		{6, 7, 2, 21},
		{6, 7, 4, 11},
		{1, 1, math.MaxInt64, 1},
		{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64},
		{math.MaxInt64, 2, 1, math.MaxInt64},
		{math.MaxInt64, math.MaxInt64, 1, math.MaxInt64},
		{1 << 62, 4, 2, math.MaxInt64},
	} {
		assert.Equal(t, tt.want, mulDivUp(tt.a, tt.b, tt.c), "%d*%d/%d", tt.a, tt.b, tt.c)
	}
}

func TestValidateJoinsErrorsThatCanBeTakenApart(t *testing.T) {
	joined, ok := Limit{Events: -1, Burst: -1}.Validate().(interface{ Unwrap() []error })
	require.True(t, ok)
	require.Len(t, joined.Unwrap(), 4)
	require.False(t, errors.Is(Limit{}.Validate(), ErrCharges))
}

func TestALimitThatImpliesAnotherIsStricter(t *testing.T) {
	for _, c := range []struct {
		limit, other Limit
		implies      bool
	}{
		{PerSecond(100), PerMinute(10_000), true},
		{PerSecond(100), PerMinute(6_000), false}, // a counter passes a little more around a boundary
		{PerSecond(10), PerMinute(610), true},     // a log does not, and a counter also counts a share of the minute before
		{PerSecond(10), PerMinute(609), false},
		{PerSecond(10), PerMinute(600).With(SlidingLog), true},
		{PerSecond(10), PerMinute(599).With(SlidingLog), false},
		{PerMinute(100), PerMinute(100), true},
		{PerMinute(101), PerMinute(100), false},
		{PerHour(1000), PerSecond(3002), true},
		{PerHour(1000), PerSecond(3001), false},
		{PerMinute(10_000), PerSecond(100), false},
		{PerSecond(1).WithBurst(5), PerMinute(1000), true},
		{PerSecond(1).WithBurst(5), PerMinute(69), false},
		{PerMinute(60).WithBurst(5), PerSecond(1).WithBurst(5), true}, // the same rate
		{PerMinute(60).WithBurst(6), PerSecond(1).WithBurst(5), false},
		{PerMinute(61).WithBurst(5), PerSecond(1).WithBurst(5), false},
		{PerMinute(60), PerMinute(1000).With(LeakyBucket), false}, // which also delays
		{Limit{}, PerMinute(1000), false},
	} {
		assert.Equal(t, c.implies, c.limit.Implies(c.other), "%v, %v", c.limit, c.other)
	}
}

// No traffic, such as bursts around a boundary, shows that there is another limit.
func TestWhatPassesALimitPassesTheLimitsThatItImplies(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		seed := rand.Uint64()
		t.Logf("seed: %d", seed)
		random := rand.New(rand.NewPCG(1, seed))
		draw := func(most int64) Limit {
			l := Limit{Events: 1 + random.Int64N(most), Per: []time.Duration{time.Second, 2 * time.Second, 7 * time.Second}[random.IntN(3)]}
			l.Algorithm = []Algorithm{SlidingWindow, SlidingCounter, SlidingLog, FixedWindow, TokenBucket, LeakyBucket}[random.IntN(6)]
			if l.Algorithm == TokenBucket && random.IntN(2) == 0 {
				l.Burst = 1 + random.Int64N(most)
			}
			return l
		}
		for implied := 0; implied < 200; {
			l, other := draw(15), draw(60)
			if !l.Implies(other) {
				continue
			}
			implied++
			first, second := Must(New(Config{Name: "limit", Limit: l})), Must(New(Config{Name: "other", Limit: other}))
			pauses := []time.Duration{0, 0, 0, 0, 0, time.Microsecond, l.Per / 15, l.Per / 2, l.Per - time.Microsecond, l.Per, other.Per - time.Microsecond, other.Per}
			for range 100 {
				time.Sleep(pauses[random.IntN(len(pauses))])
				if d, err := first.Allow(t.Context(), "k"); err != nil || !d.Allowed {
					require.NoError(t, err)
					continue
				}
				d, err := second.Allow(t.Context(), "k")
				require.NoError(t, err)
				require.True(t, d.Allowed, "%v passed what %v refused", l, other)
			}
		}
	})
}
