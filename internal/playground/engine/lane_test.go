package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
)

// someLane draws a lane of any algorithm, and traffic that it refuses a part of.
func someLane(t *rapid.T) (l *lane, arrivals []int64, cost int64) {
	events := rapid.Int64Range(1, 40).Draw(t, "events")
	text := rapid.SampledFrom(limitsOfAll(events, 10*time.Second)).Draw(t, "limit")
	l, err := newLane(text)
	require.NoError(t, err)
	at := rapid.Int64Range(0, 2e15).Draw(t, "beginning")
	for _, gap := range rapid.SliceOfN(rapid.Int64Range(0, 2e6), 0, 3*between).Draw(t, "gaps") {
		at += gap
		arrivals = append(arrivals, at)
	}
	return l, arrivals, rapid.Int64Range(1, 3).Draw(t, "cost")
}

func TestALaneDecidesAsItsQuotaDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, arrivals, cost := someLane(t)
		from := rapid.Int64Range(0, 2e15).Draw(t, "from")
		if len(arrivals) > 0 {
			from = arrivals[0] - 1e6
		}
		a := axis{from, from + 40e6, 50}
		c := l.decide(arrivals, cost, a)

		// The same without shortcuts.
		var s limiter.State
		var passed []int64
		used := make([]float64, 0, a.points)
		look := func(before int64) {
			for len(used) < a.points && a.point(len(used)) < before {
				d := l.quota.Describe(s, a.point(len(used)), 0, true)
				used = append(used, float64(d.Limit-d.Remaining))
			}
		}
		for i, at := range arrivals {
			look(at)
			var ok bool
			s, ok = l.quota.Take(s, at, cost)
			d := l.quota.Describe(s, at, cost, ok)
			if !ok {
				require.Equal(t, float64(-1), c.waits[i])
				continue
			}
			require.Equal(t, float64(d.Delay.Microseconds()), c.waits[i])
			passed = append(passed, at+d.Delay.Microseconds())
		}
		look(1 << 62)
		require.Equal(t, used, c.used)
		most := int64(0)
		for i, from := range passed {
			n := int64(0)
			for _, at := range passed[i:] {
				if at < from+l.quota.Limit().Per.Microseconds() {
					n += cost
				}
			}
			most = max(most, n)
		}
		require.Equal(t, most, c.most)
		if most > 0 {
			require.Contains(t, passed, c.from)
		}
	})
}

func TestALookAtAnyTimeIsWhatTheLaneHeldThen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, arrivals, cost := someLane(t)
		l.decide(arrivals, cost, axis{})
		for _, now := range rapid.SliceOfN(rapid.Int64Range(0, 60e6), 1, 10).Draw(t, "times") {
			if len(arrivals) > 0 {
				now += arrivals[0] - 10e6
			}
			now = max(now, 0)
			var s limiter.State
			for _, at := range arrivals {
				if at <= now {
					s, _ = l.quota.Take(s, at, cost)
				}
			}
			v := l.look(now)
			d := l.quota.Describe(s, now, 0, true)
			require.Equal(t, d.Remaining, v.remaining)
			require.Equal(t, d.NextAfter.Microseconds(), v.next)
			if _, ok := l.quota.Take(s, now, cost); ok {
				require.Zero(t, v.retry)
			} else {
				require.Equal(t, l.quota.Describe(s, now, cost, false).RetryAfter.Microseconds(), v.retry)
			}
			used := d.Limit - d.Remaining
			switch l.keeps {
			case "log":
				require.Len(t, v.log, int(used))
			case "window":
				require.Equal(t, used, v.current)
			case "windows":
				require.LessOrEqual(t, v.current, used)
				require.LessOrEqual(t, used, v.current+v.previous)
			}
		}
	})
}

func TestTheLimitsOfAllAreOneOfEachAlgorithm(t *testing.T) {
	for _, events := range []int64{1, 10, 1000} {
		var names []string
		for _, text := range limitsOfAll(events, time.Minute) {
			l, err := newLane(text)
			require.NoError(t, err)
			require.Equal(t, events, l.quota.Limit().Events)
			require.Equal(t, time.Minute, l.quota.Limit().Per)
			require.NotContains(t, names, l.quota.Algorithm().String())
			require.NotEmpty(t, l.keeps, "the page has a picture of what it keeps")
			names = append(names, l.quota.Algorithm().String())
		}
		for a := limiter.TokenBucket; ; a++ { // the zero one may stand for another
			name, err := a.MarshalText()
			if err != nil {
				break
			}
			require.Contains(t, names, string(name))
		}
	}
	assert.Less(t, len(limitsOfAll(1_000_000, time.Minute)), len(limitsOfAll(10, time.Minute)), "a log is not as long")
}

func TestWhatParseRefusesIsNoLane(t *testing.T) {
	for _, text := range []string{"", "10", "10/x", "0/s", "10/s burst", "5/10m sliding-log burst 3"} {
		_, want := limiter.Parse(text)
		_, err := newLane(text)
		require.EqualError(t, err, want.Error())
	}
	_, err := newLane("1000 monthly")
	require.ErrorContains(t, err, "1000 monthly follows the calendar, which this page does not draw")
}
