package redisstore

import (
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
)

// Processes with clocks that are before and behind Redis's, near the bound of a day: Redis's decides
// on which day an event is, all count on the one counter, and no day has more than its limit.
func TestNearABoundTheServersClockDecidesWhichDayItIs(t *testing.T) {
	t.Parallel()
	server, client := startRedis(t)
	clock := newServerClock(t)
	rapid.Check(t, func(rt *rapid.T) {
		server.MustDo("FLUSHALL")
		l := limiter.Daily(rapid.Int64Range(1, 20).Draw(rt, "events")).In("Europe/Berlin")
		q := quotaOf(t, "rule", l)
		_, midnight := q.WindowAt(clock.begun + rapid.Int64Range(0, 400).Draw(rt, "day")*86_400_000_000)
		var processes []*store
		for _, skew := range []time.Duration{0, -11 * time.Hour, 11 * time.Hour, -time.Second, time.Second, 400 * 24 * time.Hour, -400 * 24 * time.Hour} {
			s := onClock(t, clock, client, Options{ForgetRefusals: true})
			s.clock.Set(midnight + skew.Microseconds())
			processes = append(processes, s)
		}
		used := map[int64]int64{}
		clock.micros.Store(midnight - 60_000_000)
		for range rapid.IntRange(20, 60).Draw(rt, "events") {
			clock.sleep(time.Duration(rapid.Int64Range(0, 6_000_000).Draw(rt, "passes")) * time.Microsecond)
			now := clock.micros.Load()
			s := processes[rapid.IntRange(0, len(processes)-1).Draw(rt, "process")]
			d := decideOne(t, s, q, "key", 1)
			start, end := q.WindowAt(now)
			room := used[start] < l.Events
			require.Equal(rt, room, d.Allowed, "at %d, %d of the day's %d are used", now, used[start], l.Events)
			if room {
				used[start]++
			}
			require.Equal(rt, end-now, d.ResetAfter.Microseconds())
			require.Equal(rt, l.Events-used[start], d.Remaining)
		}
	})
}

// A process whose clock is wrong asks once more, and then knows.
func TestAProcessWithAWrongClockAsksOnceMore(t *testing.T) {
	_, client := startRedis(t)
	clock := newSteadyClock(t)
	s := onClock(t, clock, client, Options{ForgetRefusals: true})
	for name, charges := range map[string][]limiter.Charge{
		"alone":      {{Quota: quotaOf(t, "month", limiter.Monthly(5)), Key: "key", Cost: 1}},
		"in a batch": {{Quota: quotaOf(t, "day", limiter.Daily(5)), Key: "key", Cost: 1}, {Quota: quotaOf(t, "hour", limiter.PerHour(5)), Key: "key", Cost: 1}},
	} {
		s.clock.Set(0)
		for i := range 3 {
			assert.EqualValues(t, 4-i, decide(t, s, charges...)[0].Remaining, name)
		}
		assert.InDelta(t, clock.micros.Load(), s.clock.Now(), 60e6, name)
	}
}

// Limits of calendars, and others, share a counter while the clock steps over the ends of their windows,
// back too. All of them often change.
func TestCalendarsThatShareACounterCountInLuaAsInGo(t *testing.T) {
	t.Parallel()
	_, client := startRedis(t)
	clock := newServerClock(t)
	s := onClock(t, clock, client, Options{ForgetRefusals: true})
	rapid.Check(t, func(t *rapid.T) {
		c := fromRapid(t, steps())
		limit := func() limiter.Limit {
			return pick(c, []limiter.Limit{
				limiter.Daily(c.draw(1, 30)).In("Africa/Cairo"),
				limiter.Daily(c.draw(1, 30)).In("Africa/Cairo"),
				limiter.Weekly(c.draw(1, 30)).In("Africa/Cairo"),
				{Events: c.draw(1, 30), Per: 36 * time.Hour, Algorithm: limiter.Algorithm(c.draw(0, 5))},
			})
		}
		w := compareUnder(t, c, limit, s, clock)
		w.rules, w.former, w.keys, w.batches = w.rules[:1], w.former[:1], w.keys[:1], true
		day := w.quota("day", "", limiter.Daily(1).In("Africa/Cairo"))
		for c.more() {
			now := clock.micros.Load()
			switch c.draw(0, 6) {
			case 0:
				w.former[0] = w.rules[0]
				w.rules[0] = w.quota("rule", "", limit())
				w.rules[0].Settles = w.former[0].Settles
				w.note("the limit is %v", w.rules[0].Limit())
			case 1, 2:
				start, end := day.WindowAt(now)
				hour := c.magnitude(3_600_000_000)
				to := pick(c, []int64{start, end, 2*start - end, 2*end - start, now + hour, now - hour}) + c.draw(-2, 2)
				clock.sleep(time.Duration(to-now) * time.Microsecond)
				s.clock.Set(to)
			case 3:
				w.settle(w.settlements())
			default:
				w.decide(w.charges())
			}
			w.compareStored(w.rules, w.keys)
		}
	})
}

// Each of these traces made Lua and Go differ once. Times count from a Monday.
func TestATraceOfACalendarInLuaIsThatInGo(t *testing.T) {
	_, client := startRedis(t)
	monday, _ := quotaOf(t, "week", limiter.Weekly(1).In("Africa/Cairo")).WindowAt(time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC).UnixMicro())
	daily := func(n int64) limiter.Limit { return limiter.Daily(n).In("Africa/Cairo") }
	weekly := func(n int64) limiter.Limit { return limiter.Weekly(n).In("Africa/Cairo") }
	hours36 := func(n int64, a limiter.Algorithm) limiter.Limit {
		return limiter.Limit{Events: n, Per: 36 * time.Hour, Algorithm: a}
	}
	type step struct {
		at          time.Duration
		limit       limiter.Limit
		cost, extra int64 // extra is what a settlement adds
	}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"a day is not the week that begins after the next day", []step{
			{0, weekly(3), 2, 0}, {-26 * time.Hour, daily(22), 1, 0}, {-26 * time.Hour, weekly(3), 1, 0}, {0, daily(22), 0, -1},
		}},
		{"a state of the next day has more than twice its limit", []step{
			{25 * time.Hour, daily(4), 0, 8}, {time.Hour, daily(27), 1, 0}, {time.Hour, daily(27), 18, 0}, {time.Hour, daily(27), 1, 0},
		}},
		{"of a state that is the last of several, no units are cut", []step{
			{time.Hour, daily(2), 2, 0}, {time.Hour, hours36(19, limiter.SlidingCounter), 1, 0},
			{25 * time.Hour, daily(29), 0, -1}, {25 * time.Hour, daily(30), 0, 1},
		}},
		{"a debt of a day under a bucket that has lows", []step{
			{0, hours36(3, limiter.TokenBucket), 2, 0}, {time.Hour, hours36(3, limiter.TokenBucket), 1, 0}, {25 * time.Hour, daily(1), 0, 5},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clock := newServerClock(t)
			s := onClock(t, clock, client, Options{ForgetRefusals: true})
			first := chance{draw: func(from, _ int64) int64 { return from }}
			w := compareUnder(t, first, func() limiter.Limit { return daily(1) }, s, clock)
			for _, step := range tt.steps {
				clock.micros.Store(monday + step.at.Microseconds())
				s.clock.Set(clock.micros.Load())
				q := w.quota("rule", "", step.limit)
				q.Settles = true
				if step.extra != 0 {
					w.settle([]limiter.Charge{charge(q, "a", step.extra)})
				} else {
					w.decide([]limiter.Charge{charge(q, "a", step.cost)})
				}
				w.decide([]limiter.Charge{charge(q, "a", 0)})
				w.compareStored([]*limiter.Quota{q}, []string{"a"})
			}
		})
	}
}
