// Package phase runs tests at any time of the minute, of the hour and of the day.
//
// Windows begin by the clock, not with the first event: the result of a test may depend on
// when the test runs. So a test that meets a window runs in a bubble of testing/synctest, at
// a random time that the test logs. WEIR_PHASE repeats a time. WEIR_PHASE=all tries every
// hour and its boundaries:
//
//	WEIR_PHASE=23h59m59.999999s go test -run TestThatFailed ./middleware
//	WEIR_PHASE=all go test ./middleware
package phase

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// variable sets the time of tests, as a duration after a midnight in UTC.
const variable = "WEIR_PHASE"

const (
	day  = 24 * time.Hour
	days = 31 // phases are drawn from so many days, for windows longer than a day

	tick = time.Microsecond // the resolution of every clock in Weir
)

// Test runs f in a bubble, in fake time.
func Test(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	for _, at := range phases(t) {
		synctest.Test(t, func(t *testing.T) {
			log(t, at)
			time.Sleep(at) // a bubble begins at midnight
			f(t)
		})
	}
}

// Run calls t.Run with a function that calls Test.
func Run(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { Test(t, f) })
}

// Long returns a period of some 300 days. No window of that period begins or ends within two
// days. Long is for tests that need a server, and so cannot run in fake time.
func Long() time.Duration {
	for period := 300 * day; ; period -= day {
		if into := time.Duration(time.Now().UnixNano()) % period; into > 2*day && into < period-2*day {
			return period
		}
	}
}

// NoonZone returns a time zone where it is about noon. No day, week, month or year ends there
// during a test that needs a server.
func NoonZone() string {
	switch ahead := 12 - time.Now().UTC().Hour(); {
	case ahead > 0:
		return fmt.Sprintf("Etc/GMT-%d", ahead) // POSIX's sign: west is positive
	case ahead < 0:
		return fmt.Sprintf("Etc/GMT+%d", -ahead)
	}
	return "Etc/GMT"
}

// Draw returns a time after midnight at which to start a clock that is not Go's.
func Draw(t testing.TB) time.Duration {
	t.Helper()
	all := phases(t)
	at := all[rand.IntN(len(all))] // a server starts once
	log(t, at)
	return at
}

func log(t testing.TB, at time.Duration) { t.Logf("phase: %s=%v", variable, at) }

// phases returns the times of a test. By default it draws one, at or beside a boundary or anywhere.
func phases(t testing.TB) []time.Duration {
	t.Helper()
	switch text := os.Getenv(variable); text {
	case "":
		if rand.IntN(2) == 0 {
			return []time.Duration{anywhere(0, days*day)}
		}
		return []time.Duration{beside(boundary())}
	case "all":
		return all()
	default:
		at, err := time.ParseDuration(text)
		if err != nil || at < 0 {
			t.Fatalf("phase: %s is %q: it must be a duration such as 23h59m59.999999s, or all", variable, text)
		}
		return []time.Duration{at}
	}
}

// all returns two phases for every hour of a day: at or beside its beginning, and within it.
func all() (phases []time.Duration) {
	today := time.Duration(1+rand.IntN(days-1)) * day
	for hour := range 24 {
		at := today + time.Duration(hour)*time.Hour
		phases = append(phases, beside(at), anywhere(at, at+time.Hour))
	}
	return phases
}

// boundary returns the beginning of a random minute, hour or day.
func boundary() time.Duration {
	units := []time.Duration{time.Minute, time.Hour, day}
	unit := units[rand.IntN(len(units))]
	return (1 + rand.N(days*day/unit-1)) * unit
}

// beside returns at, or one tick before or after it.
func beside(at time.Duration) time.Duration { return at + time.Duration(rand.IntN(3)-1)*tick }

func anywhere(from, to time.Duration) time.Duration { return from + rand.N((to-from)/tick)*tick }
