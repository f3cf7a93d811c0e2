package demand

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
)

// An event is one of a log of few clients.
type event struct {
	key      string
	at, cost int64
}

func events(t *rapid.T) []event {
	at := rapid.Int64Range(1, 1<<50).Draw(t, "begin")
	var all []event
	for range rapid.IntRange(1, 120).Draw(t, "events") {
		at += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 1_000_000), rapid.Int64Range(0, 90_000_000)).Draw(t, "pause")
		all = append(all, event{string('a' + rune(rapid.IntRange(0, 2).Draw(t, "key"))), at, rapid.SampledFrom([]int64{1, 1, 1, 2, 30}).Draw(t, "cost")})
	}
	return all
}

func meter(t require.TestingT, per time.Duration, all []event) *Meter {
	m, err := NewMeter(per)
	require.NoError(t, err)
	for _, e := range all {
		m.Add(e.key, e.at, e.cost)
	}
	return m
}

// refusedBy replays all by one limit.
func refusedBy(t require.TestingT, l limiter.Limit, all []event) (keys map[string]bool) {
	quota, err := limiter.NewQuota("demand", "", l)
	require.NoError(t, err)
	states, keys := map[string]limiter.State{}, map[string]bool{}
	for _, e := range all {
		state, ok := quota.Take(states[e.key], e.at, e.cost)
		if ok {
			states[e.key] = state
		} else {
			keys[e.key] = true
		}
	}
	return keys
}

func TestTheCurveIsWhomEachLimitRefuses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := events(t)
		per := rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour}).Draw(t, "per")
		for i := range all { // peaks are exact to a thousandth
			all[i].at -= (all[i].at - all[0].at) % (per.Microseconds() / slots)
		}
		result, err := meter(t, per, all).Result(1)
		require.NoError(t, err)
		for _, point := range result.Curve {
			want := int64(len(refusedBy(t, limiter.Limit{Events: point.Limit, Per: per}, all)))
			if point.Limit <= 10 {
				require.GreaterOrEqual(t, point.Keys, want, "see Meter.need")
			} else {
				require.Equal(t, want, point.Keys, point.Limit)
			}
		}
		require.Zero(t, result.Chosen.Keys, "it spares all")
	})
}

func TestAPeakIsTheMostInAnyPeriod(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := events(t)
		m := meter(t, time.Minute, all)
		for name, k := range m.keys {
			most := func(period int64) (most int64) {
				for i, first := range all {
					n := int64(0)
					for _, e := range all[i:] {
						if e.key == name && first.key == name && e.at < first.at+period {
							n += e.cost
						}
					}
					most = max(most, n)
				}
				return most
			}
			minute := time.Minute.Microseconds()
			require.GreaterOrEqual(t, k.peak, most(minute-minute/slots))
			require.LessOrEqual(t, k.peak, most(minute+minute/slots))
		}
	})
}

func TestAChoiceSparesWhatItIsToldTo(t *testing.T) {
	m, err := NewMeter(time.Minute)
	require.NoError(t, err)
	at := int64(1e15)
	for i := range int64(1000) { // client i asks for i at once, and one for ten thousand
		m.Add(fmt.Sprint(i), at, i+1)
	}
	m.Add("robot", at, 10_000)
	for spare, want := range map[float64]int64{0.5: 600, 0.9: 1000, 0.999: 1000, 0.99: 1000, 1: 10_000, 0.001: 2} {
		result, err := m.Result(spare)
		require.NoError(t, err)
		assert.Equal(t, want, result.Chosen.Limit, spare)
		assert.LessOrEqual(t, float64(result.Chosen.Keys), (1-spare)*1001+1e-6)
	}
	result, err := m.Result(0.999)
	require.NoError(t, err)
	assert.Equal(t, Peaks{501, 901, 991, 1000, 10_000}, result.Peaks)
	assert.Equal(t, Point{1000, 1}, result.Chosen, "the robot alone")
	for _, spare := range []float64{0, -1, 1.1} {
		_, err := m.Result(spare)
		assert.ErrorContains(t, err, "must be more than 0 and at most 1")
	}
	for range 1_000 {
		m.Add("robot", at, 1_000)
	}
	_, err = m.Result(1)
	require.ErrorContains(t, err, "no limit up to that spares 100%")
}

func TestWhatNoMeterCanBeIsAnError(t *testing.T) {
	_, err := NewMeter(time.Microsecond)
	require.ErrorContains(t, err, "at least a millisecond")
	_, err = NewMeter(1e6 * time.Hour)
	require.ErrorContains(t, err, "at most 366 days")
	m, err := NewMeter(time.Minute)
	require.NoError(t, err)
	_, err = m.Result(0.9)
	require.ErrorContains(t, err, "no requests")
}

func TestLimitsAreInOrder(t *testing.T) {
	require.True(t, slices.IsSorted(limits))
}
