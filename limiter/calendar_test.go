package limiter_test

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
)

// zonesToTry are set forward and back by day and at midnight, by half an hour, and never.
var zonesToTry = []string{
	"", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Africa/Cairo", "Asia/Beirut",
	"America/Havana", "Australia/Lord_Howe", "Pacific/Auckland", "Pacific/Kiritimati", "Etc/GMT+12",
}

func anyCalendar(events int64, among ...string) *rapid.Generator[limiter.Limit] {
	if among == nil {
		among = zonesToTry
	}
	return rapid.Custom(func(t *rapid.T) limiter.Limit {
		l := rapid.SampledFrom([]func(int64) limiter.Limit{limiter.Daily, limiter.Weekly, limiter.Monthly, limiter.Yearly}).Draw(t, "unit")(events)
		l.Events = min(l.Events, maxRate*l.Per.Microseconds())
		if l.Per == limiter.Weekly(1).Per {
			l = l.From(time.Weekday(rapid.IntRange(0, 6).Draw(t, "from")))
		}
		return l.In(rapid.SampledFrom(among).Draw(t, "zone"))
	})
}

// indexer numbers windows by what a clock on the wall shows. Those of a calendar are right as long
// as that goes from one date to a later one alone.
func indexer(l limiter.Limit) func(t int64) int64 {
	if l.Calendar() == "" {
		return func(t int64) int64 { return t / l.Per.Microseconds() }
	}
	zone, first := time.UTC, time.Monday
	for _, word := range strings.Fields(l.Calendar()) {
		if strings.Contains(word, "/") {
			var err error
			if zone, err = time.LoadLocation(word); err != nil {
				panic(err)
			}
		}
		for day := range time.Weekday(7) {
			if strings.EqualFold(word, day.String()) {
				first = day
			}
		}
	}
	shown := func(t int64) time.Time { return time.UnixMicro(t).In(zone) }
	switch l.Per {
	case limiter.Daily(1).Per, limiter.Weekly(1).Per:
		return func(t int64) int64 {
			y, m, d := shown(t).Date()
			date := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
			if l.Per == limiter.Daily(1).Per {
				return date.Unix() / 86400
			}
			for date.Weekday() != first {
				date = date.AddDate(0, 0, -1)
			}
			return (date.Unix()/86400 + 70_000) / 7
		}
	case limiter.Monthly(1).Per:
		return func(t int64) int64 { return int64(shown(t).Year()*12) + int64(shown(t).Month()) }
	}
	return func(t int64) int64 { return int64(shown(t).Year()) }
}

// Each time is in one window, which begins where the one before ends and ends where the next one
// begins, whichever of them is asked for first; and clocks show the date of a window in it alone.
func TestTheWindowsOfACalendarTileTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		among := append([]string{
			"Pacific/Apia", "Pacific/Kwajalein", "America/St_Johns", "America/Sao_Paulo", "Africa/Monrovia",
			"Asia/Gaza", "America/Scoresbysund", "Antarctica/Troll", "Asia/Tehran",
		}, zonesToTry...)
		l := anyCalendar(1, among...).Draw(t, "limit")
		q := mustQuota(t, l)
		at := rapid.Int64Range(0, 2_500_000_000).Draw(t, "seconds") * 1_000_000
		at += rapid.Int64Range(0, 999_999).Draw(t, "microseconds")
		start, end := q.WindowAt(at)
		require.True(t, start <= at && at < end, "%d from %d to %d", at, start, end)
		require.Zero(t, start%1_000_000)
		for _, other := range []int64{start, end - 1} { // a Quota remembers the last window that it was asked for
			from, to := mustQuota(t, l).WindowAt(other)
			require.Equal(t, []int64{start, end}, []int64{from, to})
		}
		next, following := q.WindowAt(end)
		require.Equal(t, end, next)
		require.Greater(t, following, next)
		const second = 1_000_000
		require.Equal(t, [3]int64{1, start, (end-start)/second<<25 + (following-end)/second}, q.Numbers(at))
		_, before := q.WindowAt(start - 1)
		require.Equal(t, start, before)

		index := indexer(l)
		require.Greater(t, index(start), index(start-1), "the date changes where a window begins")
		require.Greater(t, index(end), index(end-1), "and where it ends")
	})
}

func TestTheWindowsOfACalendarAreThoseOfTheWall(t *testing.T) {
	for _, tt := range []struct {
		l          limiter.Limit
		at         string // in UTC
		start, end string
	}{
		{limiter.Monthly(1), "2026-02-14T12:00:00Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"},
		{limiter.Monthly(1), "2028-02-14T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		{limiter.Monthly(1).In("Europe/Berlin"), "2026-02-28T22:59:59.999999Z", "2026-01-31T23:00:00Z", "2026-02-28T23:00:00Z"},
		{limiter.Monthly(1).In("Europe/Berlin"), "2026-02-28T23:00:00Z", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"},
		{limiter.Yearly(1).In("Asia/Kolkata"), "2026-01-01T00:00:00Z", "2025-12-31T18:30:00Z", "2026-12-31T18:30:00Z"},
		{limiter.Weekly(1), "2026-11-22T23:59:59Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"},
		{limiter.Weekly(1).From(time.Sunday), "2026-11-22T00:00:00Z", "2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z"},
		{limiter.Weekly(1).In("Europe/Berlin"), "2026-10-25T12:00:00Z", "2026-10-18T22:00:00Z", "2026-10-25T23:00:00Z"},
		{limiter.Daily(1), "2026-03-29T12:00:00Z", "2026-03-29T00:00:00Z", "2026-03-30T00:00:00Z"},
		{limiter.Daily(1).In("Europe/Berlin"), "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{limiter.Daily(1).In("Europe/Berlin"), "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{limiter.Daily(1).In("Australia/Lord_Howe"), "2026-04-05T00:00:00Z", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z"},
		// There is no midnight: the day begins at 1.
		{limiter.Daily(1).In("Africa/Cairo"), "2026-04-24T12:00:00Z", "2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z"},
		{limiter.Daily(1).In("Asia/Beirut"), "2022-03-27T12:00:00Z", "2022-03-26T22:00:00Z", "2022-03-27T21:00:00Z"},
		{limiter.Daily(1).In("America/Sao_Paulo"), "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		// At midnight it is 23:00 again.
		{limiter.Daily(1).In("America/Sao_Paulo"), "2018-02-17T12:00:00Z", "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z"},
		// Midnight is there twice: the day begins at the first.
		{limiter.Daily(1).In("America/Havana"), "2026-11-01T12:00:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		{limiter.Daily(1).In("Asia/Amman"), "2018-10-26T12:00:00Z", "2018-10-25T21:00:00Z", "2018-10-26T22:00:00Z"},
		// One minute after midnight it is 23:01 on the day before again, which is over.
		{limiter.Daily(1).In("America/St_Johns"), "2010-11-07T02:31:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"},
		{limiter.Daily(1).In("America/St_Johns"), "2010-11-07T02:29:59Z", "2010-11-06T02:30:00Z", "2010-11-07T02:30:00Z"},
		// There was no 30 December 2011, nor a 21 August 1993.
		{limiter.Daily(1).In("Pacific/Apia"), "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{limiter.Daily(1).In("Pacific/Apia"), "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{limiter.Monthly(1).In("Pacific/Apia"), "2011-12-30T10:00:00Z", "2011-12-01T10:00:00Z", "2011-12-31T10:00:00Z"},
		{limiter.Daily(1).In("Pacific/Kwajalein"), "1993-08-21T12:00:00Z", "1993-08-21T12:00:00Z", "1993-08-22T12:00:00Z"},
	} {
		t.Run(tt.l.Calendar()+" "+tt.at, func(t *testing.T) {
			at, err := time.Parse(time.RFC3339, tt.at)
			require.NoError(t, err)
			start, end := mustQuota(t, tt.l).WindowAt(at.UnixMicro())
			assert.Equal(t, tt.start, time.UnixMicro(start).UTC().Format(time.RFC3339))
			assert.Equal(t, tt.end, time.UnixMicro(end).UTC().Format(time.RFC3339))
		})
	}
}

func TestTheWindowOfATimeIsKnownOfAllThatHaveWindows(t *testing.T) {
	for _, l := range []limiter.Limit{limiter.PerMinute(100), limiter.PerMinute(5).With(limiter.FixedWindow)} {
		start, end := mustQuota(t, l).WindowAt(119_999_999)
		assert.Equal(t, []int64{60_000_000, 120_000_000}, []int64{start, end}, "%v", l)
	}
	for _, l := range []limiter.Limit{limiter.PerMinute(5), limiter.PerMinute(5).With(limiter.TokenBucket), limiter.PerMinute(5).With(limiter.LeakyBucket)} {
		start, end := mustQuota(t, l).WindowAt(119_999_999)
		assert.Equal(t, []int64{0, 0}, []int64{start, end}, "%v", l)
	}
}

func TestEqualCalendarLimitsCompareEqual(t *testing.T) {
	assert.Equal(t, limiter.Monthly(5).In("Europe/Berlin"), limiter.Monthly(5).In("Europe/Berlin"))
	assert.True(t, limiter.Monthly(5).In("UTC") == limiter.Monthly(5))
	assert.True(t, limiter.Weekly(5) == limiter.Weekly(5).From(time.Monday))
	assert.False(t, limiter.Monthly(5) == limiter.Monthly(5).In("Europe/Berlin"))
	assert.False(t, limiter.Monthly(5) == limiter.Limit{Events: 5, Per: 744 * time.Hour, Algorithm: limiter.FixedWindow})
}

func TestACalendarThatMakesNoSenseIsRefused(t *testing.T) {
	dayLongMonth := limiter.Monthly(5)
	dayLongMonth.Per = 24 * time.Hour
	for _, tt := range []struct {
		l    limiter.Limit
		want string
	}{
		{limiter.Monthly(5).In("Europe/Berln"), `the time zone is "Europe/Berln": there is no such time zone, want a name such as Europe/Berlin`},
		{limiter.Daily(5).In("Local"), `the time zone is "Local": it differs between processes, so name the time zone`},
		{limiter.Daily(5).In("localtime"), `the time zone is "localtime": it differs between processes, so name the time zone`},
		{limiter.Daily(5).In("right/Europe/Berlin"), `the time zone is "right/Europe/Berlin": it differs between processes, so name the time zone`},
		{limiter.Daily(5).In("../etc/passwd"), `the time zone is "../etc/passwd": there is no such time zone, want a name such as Europe/Berlin`},
		{limiter.Monthly(5).With(limiter.SlidingLog), `Algorithm is sliding-log: a calendar month needs fixed-window`},
		{limiter.Monthly(5).WithBurst(7), `Burst is 7: fixed-window has no burst, only token-bucket and leaky-bucket do`},
		{limiter.Monthly(5).From(time.Sunday), `the first day is none that a calendar month can be from: only Weekly limits are From one of the seven days`},
		{limiter.Weekly(5).From(7), `the first day is none that a calendar week can be from: only Weekly limits are From one of the seven days`},
		{limiter.PerHour(5).In("Europe/Berlin"), `Per is 1h0m0s: a time zone and a first day need Daily, Weekly, Monthly or Yearly`},
		{limiter.PerDay(5).In("UTC"), `Per is 24h0m0s: a time zone and a first day need Daily, Weekly, Monthly or Yearly`},
		{limiter.Limit{Events: 5, Per: 168 * time.Hour}.In(""), `Per is 168h0m0s: a time zone and a first day need Daily, Weekly, Monthly or Yearly`},
		{dayLongMonth, `Per is 24h0m0s: of a calendar month it must be 744h0m0s`},
		{limiter.Yearly(0), `Events is 0: it must be from 1 to 1000000000000`},
	} {
		assert.EqualError(t, tt.l.Validate(), "limiter: "+tt.want)
	}
}
