package race

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// steady takes so long for a decision.
func steady(name string, took time.Duration) Contestant {
	return Contestant{Name: name, Caller: func() Call {
		return func(context.Context, string) (bool, error) {
			time.Sleep(took)
			return true, nil
		}
	}}
}

func TestARaceMeasuresEveryoneInEveryCaseAndRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resets, used := 0, 0.0
		plan := &Plan{
			Contestants: []Contestant{steady("fast", time.Millisecond), steady("slow", 2*time.Millisecond)},
			Cases:       []Case{{Goroutines: 1, Keys: 1}, {Goroutines: 4, Keys: 100}},
			Rounds:      3,
			Slice:       time.Second,
			Meters:      []Meter{{Metric: "fuel", Read: func() (float64, error) { used += 500; return used, nil }}},
			Reset:       func(context.Context) error { resets++; return nil },
		}
		results, err := plan.Run(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 12, resets)
		for _, c := range plan.Cases {
			assert.Len(t, results.rounds[place{"fast", c}], 3)
			for m, want := range map[Metric]float64{PerSecond: 1000 * float64(c.Goroutines), P50: 1000, P99: 1000, Errors: 0, Refused: 0, "fuel": 0.5 / float64(c.Goroutines)} {
				got, ran := results.Figure("fast", c, m)
				assert.True(t, ran)
				assert.InEpsilon(t, want+1, got+1, 0.005, "%s in %v", m, c)
			}
			ratio, ok := results.Ratio("fast", "slow", c, PerSecond)
			assert.True(t, ok)
			assert.InDelta(t, 2, ratio.Value, 0.01)
		}
		_, ok := results.Ratio("fast", "absent", plan.Cases[0], PerSecond)
		assert.False(t, ok)
	})
}

func TestErrorsAndRefusalsAreCountedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		plan := &Plan{
			Contestants: []Contestant{{Name: "moody", Caller: func() Call {
				calls := 0
				return func(context.Context, string) (bool, error) {
					time.Sleep(time.Millisecond)
					calls++
					switch calls % 4 {
					case 0:
						return true, broken
					case 1:
						return false, nil
					}
					return true, nil
				}
			}}},
			Cases:  []Case{{Goroutines: 1, Keys: 1}},
			Rounds: 2,
			Slice:  400 * time.Millisecond,
		}
		results, err := plan.Run(t.Context())
		require.NoError(t, err)
		for m, want := range map[Metric]float64{PerSecond: 750, Errors: 200, Refused: 200} {
			got, _ := results.Figure("moody", plan.Cases[0], m)
			assert.InDelta(t, want, got, 1, "an error is no decision, a refusal is one: %s", m)
		}
		assert.Equal(t, broken, results.Complaint("moody"))
	})
}

func TestASliceBeginsWhenTheContestantIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := time.Now().Add(3 * time.Second)
		plan := &Plan{
			Contestants: []Contestant{{Name: "late", Caller: func() Call {
				return func(context.Context, string) (bool, error) {
					time.Sleep(time.Millisecond)
					if time.Now().Before(up) {
						return false, errors.New("not yet")
					}
					return true, nil
				}
			}}},
			Cases:  []Case{{Goroutines: 2, Keys: 10}},
			Rounds: 1,
			Slice:  100 * time.Millisecond,
		}
		results, err := plan.Run(t.Context())
		require.NoError(t, err)
		require.NoError(t, results.Complaint("late"))
	})
}

func TestARaceEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	plan := &Plan{
		Contestants: []Contestant{{Name: "endless", Caller: func() Call {
			return func(ctx context.Context, _ string) (bool, error) {
				cancel()
				return true, ctx.Err()
			}
		}}},
		Cases:  []Case{{Goroutines: 1, Keys: 1}},
		Rounds: 1_000_000,
		Slice:  time.Millisecond,
	}
	_, err := plan.Run(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestAQuantileIsOffByLessThanOnePercent(t *testing.T) {
	assert.Zero(t, new(Histogram).Quantile(0.5))
	random := rand.New(rand.NewPCG(1, 2))
	var h, other Histogram
	var all []time.Duration
	for i := range 100_000 {
		d := time.Duration(math.Exp(random.Float64() * 25)) // 1 ns to a minute and more
		all = append(all, d)
		if i%3 == 0 {
			other.Add(d)
		} else {
			h.Add(d)
		}
	}
	h.Merge(&other)
	slices.Sort(all)
	for _, part := range []float64{0.0001, 0.01, 0.5, 0.9, 0.99, 0.9999, 1} {
		want := all[int(math.Ceil(part*float64(len(all))))-1]
		assert.InEpsilon(t, float64(want), float64(h.Quantile(part)), 0.01, "quantile %g", part)
	}
}

func TestEveryDurationHasABucket(t *testing.T) {
	var h Histogram
	for _, d := range []time.Duration{-1, 0, 1, 127, 128, 255, 256, 257, longest - 1, longest, longest + 1, math.MaxInt64} {
		h.Add(d)
	}
	assert.Equal(t, len(h.buckets)-1, bucketOf(math.MaxInt64))
	for i := range h.buckets {
		assert.Equal(t, i, bucketOf(middle(i)))
	}
}

func TestTheMedianOfAnEvenNumberIsBetweenTheMiddleTwo(t *testing.T) {
	assert.InDelta(t, 2.0, median([]float64{3, 1, 2}), 0)
	assert.InDelta(t, 2.5, median([]float64{4, 1, 3, 2}), 0)
}

// twoRounds has figures as by hand.
func twoRounds() *Results {
	r := newResults(&Plan{
		Contestants: []Contestant{{Name: "a"}, {Name: "b"}, {Name: "c"}},
		Cases:       []Case{{Goroutines: 64, Keys: 10_000}, {Goroutines: 1, Keys: 1}},
	})
	for i, perSecond := range []float64{30_000, 50_000} {
		r.add("a", Case{Goroutines: 64, Keys: 10_000}, Figures{PerSecond: perSecond, P50: 12.34, P99: 1234.5, Errors: 1}, errors.New("no luck"))
		r.add("b", Case{Goroutines: 64, Keys: 10_000}, Figures{PerSecond: float64(80_000 + i), P50: 0.5, P99: 99}, nil)
	}
	return r
}

func TestARatioIsTheMedianOfThoseOfSingleRounds(t *testing.T) {
	r := newResults(&Plan{Contestants: []Contestant{{Name: "a"}, {Name: "b"}}, Cases: []Case{{Goroutines: 1, Keys: 1}}})
	for _, slowness := range []float64{1, 10, 10, 1, 30} { // of the machine
		r.add("a", Case{Goroutines: 1, Keys: 1}, Figures{P50: 2 * slowness}, nil)
		r.add("b", Case{Goroutines: 1, Keys: 1}, Figures{P50: slowness}, nil)
	}
	r.add("a", Case{Goroutines: 1, Keys: 1}, Figures{P50: 100}, nil)
	r.add("b", Case{Goroutines: 1, Keys: 1}, Figures{P50: 1}, nil)
	ratio, ok := r.Ratio("a", "b", Case{Goroutines: 1, Keys: 1}, P50)
	assert.True(t, ok)
	assert.Equal(t, Ratio{2, 2, 100}, ratio)
}

func TestTablesReadWellAsText(t *testing.T) {
	var text strings.Builder
	twoRounds().WriteTables(&text, "a")
	assert.Equal(t, `
### 64 goroutines, 10,000 keys

| contestant | decisions/s | p50 µs | p99 µs | errors | refused |  × a |
| ---------- | ----------: | -----: | -----: | -----: | ------: | ---: |
| b          |      80,000 |   0.50 |     99 |      0 |       0 | 2.13 |
| a          |      40,000 |   12.3 |  1,234 |      2 |       0 | 1.00 |

### 1 goroutine, 1 key

| contestant | decisions/s | p50 µs | p99 µs | errors | refused | × a |
| ---------- | ----------: | -----: | -----: | -----: | ------: | --: |

### The first error of each that had any

- a: no luck
`, text.String())
}

func TestGoalsSayWhatWasReached(t *testing.T) {
	var text strings.Builder
	many := Case{Goroutines: 64, Keys: 10_000}
	twoRounds().WriteGoals(&text, []Goal{
		{Metric: PerSecond, Case: many, Of: "b", To: "a", Bound: AtLeast(1.5)},
		{Metric: P50, Case: many, Of: "a", To: "b", Bound: AtMost(1)},
		{Metric: Errors, Case: many, Of: "a", Bound: AtMost(0)},
		{Metric: Errors, Case: many, Of: "b", Bound: AtMost(0)},
		{Metric: Errors, Case: many, Of: "c", Bound: AtMost(0)},
	})
	assert.Equal(t, `
| goal                                             | target |                reached |              |
| ------------------------------------------------ | -----: | ---------------------: | -----------: |
| decisions/s of b / a, 64 goroutines, 10,000 keys |  ≥ 1.5 |    2.13 (1.60 to 2.67) |          yes |
| p50 µs of a / b, 64 goroutines, 10,000 keys      |    ≤ 1 | 24.68 (24.68 to 24.68) |       missed |
| errors of a, 64 goroutines, 10,000 keys          |    ≤ 0 |                      2 |       missed |
| errors of b, 64 goroutines, 10,000 keys          |    ≤ 0 |                      0 |          yes |
| errors of c, 64 goroutines, 10,000 keys          |    ≤ 0 |                        | not measured |
`, text.String())
}

func TestResultsAreWrittenAsJSONWithEveryRound(t *testing.T) {
	text, err := json.Marshal(twoRounds())
	require.NoError(t, err)
	var results []struct {
		Contestant string
		Case       Case
		Figures    Figures
		Rounds     []Figures
	}
	require.NoError(t, json.Unmarshal(text, &results))
	require.Len(t, results, 2)
	assert.Equal(t, Case{Goroutines: 64, Keys: 10_000}, results[0].Case)
	assert.InDelta(t, 40_000, results[0].Figures[PerSecond], 0)
	assert.Len(t, results[0].Rounds, 2)
}

func TestKeysDiffer(t *testing.T) {
	keys := Keys(100_000)
	assert.Equal(t, "10.0.0.0", keys[0])
	assert.Len(t, slices.Compact(slices.Sorted(slices.Values(keys))), 100_000)
}

func TestProgressIsWrittenToATerminalAlone(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	fmt.Fprint(Progress(f), "1/2")
	text, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	require.Empty(t, text)
}
