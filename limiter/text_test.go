package limiter_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
)

// good is text that Parse reads, as what, and how that is written again.
var good = []struct {
	text    string
	want    limiter.Limit
	written string
}{
	{"100/1m", limiter.PerMinute(100), "100/1m"},
	{"100/m", limiter.PerMinute(100), "100/1m"},
	{"100/minute", limiter.PerMinute(100), "100/1m"},
	{"100/min", limiter.PerMinute(100), "100/1m"},
	{"100/sec BURST 5", limiter.PerSecond(100).WithBurst(5), "100/1s token-bucket burst 5"},
	{"100/60s", limiter.PerMinute(100), "100/1m"},
	{"  100/1m\t\n", limiter.PerMinute(100), "100/1m"},
	{"5/s", limiter.PerSecond(5), "5/1s"},
	{"5/second", limiter.PerSecond(5), "5/1s"},
	{"5/h", limiter.PerHour(5), "5/1h"},
	{"5/hour", limiter.PerHour(5), "5/1h"},
	{"5/d", limiter.PerDay(5), "5/1d"},
	{"5/day", limiter.PerDay(5), "5/1d"},
	{"5/24h", limiter.PerDay(5), "5/1d"},
	{"5/ms", limiter.Limit{Events: 5, Per: time.Millisecond}, "5/1ms"},
	{"5/us", limiter.Limit{Events: 5, Per: time.Microsecond}, "5/1us"},
	{"5/1µs", limiter.Limit{Events: 5, Per: time.Microsecond}, "5/1us"},
	{"5/millisecond", limiter.Limit{Events: 5, Per: time.Millisecond}, "5/1ms"},
	{"10/1h30m", limiter.Limit{Events: 10, Per: 90 * time.Minute}, "10/1h30m"},
	{"10/1.5h", limiter.Limit{Events: 10, Per: 90 * time.Minute}, "10/1h30m"},
	{"10/1d12h", limiter.Limit{Events: 10, Per: 36 * time.Hour}, "10/1d12h"},
	{"10/36h", limiter.Limit{Events: 10, Per: 36 * time.Hour}, "10/1d12h"},
	{"10/1d1h1m1s1ms1us", limiter.Limit{Events: 10, Per: 25*time.Hour + time.Minute + time.Second + time.Millisecond + time.Microsecond}, "10/1d1h1m1s1ms1us"},
	{"1_000_000/30d", limiter.Limit{Events: 1_000_000, Per: 30 * 24 * time.Hour}, "1000000/30d"},
	{"1/366d", limiter.Limit{Events: 1, Per: 366 * 24 * time.Hour}, "1/366d"},
	{"5/week", limiter.Limit{Events: 5, Per: 7 * 24 * time.Hour}, "5/7d"},
	{"5/day fixed-window", limiter.PerDay(5).With(limiter.FixedWindow), "5/1d fixed-window"},
	{"1_000_000 monthly", limiter.Monthly(1_000_000), "1000000 monthly"},
	{"1000 monthly Europe/Berlin", limiter.Monthly(1000).In("Europe/Berlin"), "1000 monthly Europe/Berlin"},
	{"1000 monthly UTC", limiter.Monthly(1000), "1000 monthly"},
	{"1000 monthly fixed-window", limiter.Monthly(1000), "1000 monthly"},
	{"1000 daily", limiter.Daily(1000), "1000 daily"},
	{"\t1000   daily UTC ", limiter.Daily(1000), "1000 daily"},
	{"1000 daily Asia/Kolkata", limiter.Daily(1000).In("Asia/Kolkata"), "1000 daily Asia/Kolkata"},
	{"1000 daily CET", limiter.Daily(1000).In("CET"), "1000 daily CET"},
	{"10_000 weekly", limiter.Weekly(10_000), "10000 weekly from monday"},
	{"10_000 weekly from Sunday", limiter.Weekly(10_000).From(time.Sunday), "10000 weekly from sunday"},
	{"10_000 weekly FROM saturday Africa/Cairo", limiter.Weekly(10_000).From(time.Saturday).In("Africa/Cairo"), "10000 weekly from saturday Africa/Cairo"},
	{"5 yearly America/Argentina/Buenos_Aires fixed-window", limiter.Yearly(5).In("America/Argentina/Buenos_Aires"), "5 yearly America/Argentina/Buenos_Aires"},
	{"007/1m", limiter.PerMinute(7), "7/1m"},
	{"10/s burst 20", limiter.PerSecond(10).WithBurst(20), "10/1s token-bucket burst 20"},
	{"10/s burst 2_0", limiter.PerSecond(10).WithBurst(20), "10/1s token-bucket burst 20"},
	{"10/s burst 20 gcra", limiter.PerSecond(10).WithBurst(20), "10/1s token-bucket burst 20"},
	{"10/s gcra burst 20", limiter.PerSecond(10).WithBurst(20), "10/1s token-bucket burst 20"},
	{"10/s burst 10", limiter.PerSecond(10).WithBurst(10), "10/1s token-bucket burst 10"},
	{"1000/h token-bucket", limiter.PerHour(1000).With(limiter.TokenBucket), "1000/1h token-bucket"},
	{"1000/h TOKEN_BUCKET", limiter.PerHour(1000).With(limiter.TokenBucket), "1000/1h token-bucket"},
	{"1000/h leaky-bucket burst 5", limiter.PerHour(1000).With(limiter.LeakyBucket).WithBurst(5), "1000/1h leaky-bucket burst 5"},
	{"1000/h fixed-window", limiter.PerHour(1000).With(limiter.FixedWindow), "1000/1h fixed-window"},
	{"1000/h fixed-window-counter", limiter.PerHour(1000).With(limiter.FixedWindow), "1000/1h fixed-window"},
	{"5/10m sliding-log", limiter.Limit{Events: 5, Per: 10 * time.Minute, Algorithm: limiter.SlidingLog}, "5/10m sliding-log"},
	{"5/10m sliding-window-log", limiter.Limit{Events: 5, Per: 10 * time.Minute, Algorithm: limiter.SlidingLog}, "5/10m sliding-log"},
	{"5/10m sliding-window", limiter.Limit{Events: 5, Per: 10 * time.Minute}, "5/10m"},
	{"5/10m sliding-window-counter", limiter.Limit{Events: 5, Per: 10 * time.Minute, Algorithm: limiter.SlidingCounter}, "5/10m sliding-window-counter"},
	{"5/10m sliding-counter", limiter.Limit{Events: 5, Per: 10 * time.Minute, Algorithm: limiter.SlidingCounter}, "5/10m sliding-window-counter"},
}

// bad is text that Parse refuses, and what the error has to say.
var bad = []struct{ text, want string }{
	{"", "it is empty"},
	{" \t\n", "it is empty"},
	{"10", `parse "10": it does not begin with events/period`},
	{"/", `events is ""`},
	{"/m", `events is ""`},
	{"10/", `period ""`},
	{"10 / m", "does not begin with events/period"},
	{"ten/m", `events is "ten": it must be a whole number`},
	{"-10/m", `events is "-10"`},
	{"+10/m", `events is "+10"`},
	{"1.5/m", `events is "1.5"`},
	{"1e3/m", `events is "1e3"`},
	{"0x10/m", `events is "0x10"`},
	{"_/m", `events is "_"`},
	{"٣/m", "events is"},
	{"9223372036854775808/m", `events is "9223372036854775808": it must be a whole number below 2^63`},
	{"99999999999999999999999/m", "below 2^63"},
	{"0/m", "Events is 0"},
	{"1000000000001/d", "Events is 1000000000001"},
	{"10/m/s", `period "m/s"`},
	{"10/0s", "Per is 0s"},
	{"10/0", "Per is 0s"},
	{"10/0d", `period "0d"`},
	{"10/-1m", `period "-1m" has a sign`},
	{"10/+1m", `period "+1m" has a sign`},
	{"10/1d-1m", `period "1d-1m" has a sign`},
	{"10/1d+1m", "has a sign"},
	{"10/-1d", `period "-1d": days must be a whole number`},
	{"10/1.5d", `period "1.5d": days must be a whole number`},
	{"10/1h1d", `period "1h1d"`},
	{"10/1d1d", `period "1d1d"`},
	{"10/fortnight", `period "fortnight"`},
	{"10/months", `period "months"`},
	{"10/month", `period "month" is of the calendar: write monthly without a slash, or a length such as 30d`},
	{"10/year", `period "year" is of the calendar: write yearly without a slash, or a length such as 365d`},
	{"10/month Europe/Berlin", `period "month" is of the calendar: write monthly without a slash, or a length such as 30d`},
	{"10/day UTC", `is it a length or a calendar? Write 10/day for any such length, or a calendar without a slash, as in 10 daily Europe/Berlin or 10 weekly from sunday`},
	{"10/week from sunday", `is it a length or a calendar? Write 10/week for any such length, or a calendar without a slash, as in 10 daily Europe/Berlin or 10 weekly from sunday`},
	{"10/daily", `period "daily" is of the calendar: write daily without a slash, or a length such as 24h`},
	{"10/24h Europe/Berlin", `is it a length or a calendar? Write 10/24h for any such length, or a calendar without a slash, as in 10 daily Europe/Berlin or 10 weekly from sunday`},
	{"10/7d from monday", `is it a length or a calendar? Write 10/7d for any such length, or a calendar without a slash, as in 10 daily Europe/Berlin or 10 weekly from sunday`},
	{"10/1m CET", `is it a length or a calendar? Write 10/1m for any such length, or a calendar without a slash, as in 10 daily Europe/Berlin or 10 weekly from sunday`},
	{"10/xs Europe/Berlin", `period "xs"`},
	{"10 month", "it does not begin with events/period, such as 100/1m, or with events and a calendar, such as 100 daily"},
	{"10 burst 5", "it does not begin with"},
	{"daily 10", "it does not begin with"},
	{"daily", "it does not begin with"},
	{"ten daily", `events is "ten": it must be a whole number`},
	{"0 daily", "Events is 0"},
	{"10 daily daily", `"daily" is neither burst nor one of`},
	{"10 monthly Europe/Berln", `the time zone is "Europe/Berln": there is no such time zone`},
	{"10 monthly from monday", `from monday is for weekly, and not for monthly`},
	{"10 weekly from", "from has no day after it, such as monday"},
	{"10 weekly from 1", `from is "1": it must be a day of the week, such as monday`},
	{"10 weekly Europe/Berlin from monday", `"from" is neither burst nor one of`},
	{"10 daily Europe/Berlin UTC", `"UTC" is neither burst nor one of`},
	{"10 monthly sliding-window", "Algorithm is sliding-window: a calendar month needs fixed-window"},
	{"10 monthly burst 5", "Burst is 5: fixed-window has no burst"},
	{"10/M", `period "M"`},
	{"10/1w", `period "1w"`},
	{"10/5", `period "5"`},
	{"10/367d", "at most 366 days"},
	{"10/366d1us", "at most 366 days"},
	{"10/65535d", "at most 366 days"},
	{"10/65536d", "days must be a whole number up to 366"},
	{"10/65535d2562047h", "Per is 1581624h"},
	{"10/99999999h", `period "99999999h"`},
	{"10/1ns", "whole number of microseconds"},
	{"10/1m1ns", "whole number of microseconds"},
	{"11/us", "at most 10 million per second"},
	{"10/s burst", "burst has no number after it"},
	{"10/s burst many", `burst is "many"`},
	{"10/s burst -1", `burst is "-1"`},
	{"10/s burst 0", "burst is 0"},
	{"10/s burst 5 burst 5", "burst is given twice"},
	{"10/s burst token-bucket", `burst is "token-bucket"`},
	{"10/s burst 5 fixed-window", "fixed-window has no burst"},
	{"10/s sliding-window burst 5", "sliding-window has no burst"},
	{"10/s token-bucket leaky-bucket", `"leaky-bucket" comes after an algorithm was named already`},
	{"10/s leaky", `"leaky" is neither burst nor one of sliding-window, token-bucket`},
	{"10/s 5", `"5" is neither burst`},
	{"10/s # comment", `"#" is neither burst`},
	{"10/s burst 99999999999999999999", "below 2^63"},
	{"20000/d sliding-log", "takes at most 10000"},
	{"1/30d burst 13", "more than 366 days"},
	{"10/s\x00", "period"},
	{"\xff/s", "events is"},
}

func TestParseReadsWhatPeopleWrite(t *testing.T) {
	for _, tt := range good {
		t.Run(tt.text, func(t *testing.T) {
			l, err := limiter.Parse(tt.text)
			require.NoError(t, err)
			assert.Equal(t, tt.want, l)
			assert.Equal(t, tt.written, l.String())
		})
	}
}

func TestParseSaysWhatItCanNotRead(t *testing.T) {
	for _, tt := range bad {
		t.Run(tt.text, func(t *testing.T) {
			l, err := limiter.Parse(tt.text)
			require.ErrorContains(t, err, tt.want)
			assert.Zero(t, l)
			assert.Contains(t, err.Error(), "limiter: parse ")
		})
	}
}

func TestAPeriodIsALength(t *testing.T) {
	for text, want := range map[string]time.Duration{"week": 7 * 24 * time.Hour, "day": 24 * time.Hour, "30d": 30 * 24 * time.Hour} {
		got, err := limiter.ParsePeriod(text)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for text, want := range map[string]string{
		"month":   `limiter: period "month" is of the calendar: write monthly without a slash, or a length such as 30d`,
		"year":    `limiter: period "year" is of the calendar`,
		"daily":   `limiter: period "daily" is of the calendar`,
		"day UTC": `limiter: period "day UTC": days must be a whole number`,
	} {
		_, err := limiter.ParsePeriod(text)
		assert.ErrorContains(t, err, want)
	}
}

func TestAHostileTextDoesNotFillTheLog(t *testing.T) {
	long := strings.Repeat("9", 1<<20)
	for _, text := range []string{
		long, long + "/m", "10/" + long, "10/" + long + "d", "10/-" + long, "10/s " + long, "10/s burst " + long,
		"10/s gcra " + long, strings.Repeat("x", 1<<20) + "/m", "10/s burst x" + long, "10/xs" + long,
		"10/s " + strings.Repeat("\x00", 1<<20), long + "/month", "10/day " + long + "/x", "10/" + long + "h UTC", long + " daily",
		"10 daily " + long + "/x", "10 weekly from " + long,
	} {
		_, err := limiter.Parse(text)
		require.Error(t, err)
		assert.Less(t, len(err.Error()), 1000, "%.40q: the error repeats all of it", text)
	}
	var a limiter.Algorithm
	assert.Less(t, len(a.UnmarshalText([]byte(long)).Error()), 1000)
}

func TestWhatStringWritesParseReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLimit().Draw(t, "limit")
		parsed, err := limiter.Parse(l.String())
		require.NoError(t, err)
		require.Equal(t, l, parsed)
	})
}

func FuzzParse(f *testing.F) {
	for _, tt := range good {
		f.Add(tt.text)
	}
	for _, tt := range bad {
		f.Add(tt.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := limiter.Parse(text)
		if err != nil {
			if l != (limiter.Limit{}) {
				t.Errorf("Parse(%q) = %v with an error, want the zero Limit", text, l)
			}
			if len(err.Error()) > 2000 {
				t.Errorf("Parse(%q): the error has %d characters", text, len(err.Error()))
			}
			return
		}
		if err := l.Validate(); err != nil {
			t.Errorf("Parse(%q) = %v, which is not valid: %v", text, l, err)
		}
		if again, err := limiter.Parse(l.String()); err != nil || again != l {
			t.Errorf("Parse(%q) = %v, and Parse of that is %v, %v", text, l, again, err)
		}
		if _, err := limiter.NewQuota("rule", "", l); err != nil {
			t.Errorf("Parse(%q) = %v, of which NewQuota says %v", text, l, err)
		}
	})
}

func TestAnInvalidLimitIsShownAsItIs(t *testing.T) {
	assert.Equal(t, "0/0s", limiter.Limit{}.String())
	assert.Equal(t, "-1/-1s", limiter.Limit{Events: -1, Per: -time.Second}.String())
	assert.Equal(t, "1/1.5µs Algorithm(9) burst -3", limiter.Limit{Events: 1, Per: 1500, Burst: -3, Algorithm: 9}.String())
}

func TestALimitIsTextInJSON(t *testing.T) {
	var config struct {
		Login  limiter.Limit
		Search *limiter.Limit
	}
	require.NoError(t, json.Unmarshal([]byte(`{"Login": "5/m", "Search": "10/s burst 20"}`), &config))
	assert.Equal(t, limiter.PerMinute(5), config.Login)
	assert.Equal(t, limiter.PerSecond(10).WithBurst(20), *config.Search)

	text, err := json.Marshal(config)
	require.NoError(t, err)
	assert.JSONEq(t, `{"Login": "5/1m", "Search": "10/1s token-bucket burst 20"}`, string(text))

	err = json.Unmarshal([]byte(`{"Login": "5 per minute"}`), &config)
	require.ErrorContains(t, err, `limiter: parse "5 per minute"`)
	assert.Equal(t, limiter.PerMinute(5), config.Login, "what can't be read leaves the field alone")
}

func TestAnAlgorithmIsText(t *testing.T) {
	for _, a := range append(everyAlgorithm, limiter.SlidingWindow) {
		text, err := a.MarshalText()
		require.NoError(t, err)
		assert.Equal(t, a.String(), string(text))
		for _, written := range []string{a.String(), strings.ToUpper(a.String()), strings.ReplaceAll(a.String(), "-", "_")} {
			read := limiter.Algorithm(99)
			require.NoError(t, read.UnmarshalText([]byte(written)))
			assert.Equal(t, a, read)
		}
	}
	for alias, a := range map[string]limiter.Algorithm{
		"gcra": limiter.TokenBucket, "fixed-window-counter": limiter.FixedWindow,
		"sliding-window-log": limiter.SlidingLog, "sliding-counter": limiter.SlidingCounter,
	} {
		var read limiter.Algorithm
		require.NoError(t, read.UnmarshalText([]byte(alias)))
		assert.Equal(t, a, read)
	}
}

func TestAnUnknownAlgorithmIsNoText(t *testing.T) {
	_, err := limiter.Algorithm(9).MarshalText()
	require.ErrorContains(t, err, "there is no algorithm 9")
	assert.Equal(t, "Algorithm(9)", limiter.Algorithm(9).String())
	a := limiter.LeakyBucket
	err = a.UnmarshalText([]byte("bucket"))
	require.ErrorContains(t, err, `algorithm "bucket" is not one of sliding-window, token-bucket, leaky-bucket, fixed-window, sliding-log`)
	assert.Equal(t, limiter.LeakyBucket, a, "what can't be read leaves the field alone")
}
