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
