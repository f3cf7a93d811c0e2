// Package phase runs tests at any time of the minute, of the hour and of the day.
//
// Windows begin when the clock says so, and not when the first event comes: what a test
// sees of one depends on when it runs. So a test that meets a window runs in a bubble of
// testing/synctest, at times that are drawn at random and logged; WEIR_PHASE repeats one,
// and WEIR_PHASE=all tries every hour and its boundaries:
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

// variable says how long after a midnight of UTC tests run.
const variable = "WEIR_PHASE"

const (
	day  = 24 * time.Hour
	days = 31 // a phase is before the last of them ends, so that longer windows have some too

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

// Run is t.Run, with f in a bubble as Test has it.
func Run(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { Test(t, f) })
}

// Long is a period of some 300 days of which no window begins or ends within two days: for
// what cannot be tested in fake time, as it asks a server.
func Long() time.Duration {
	for period := 300 * day; ; period -= day {
		if into := time.Duration(time.Now().UnixNano()) % period; into > 2*day && into < period-2*day {
			return period
		}
	}
}

// NoonZone is a time zone where it is about noon, so that no day, week, month or year of it ends while
// a test runs that asks a server.
func NoonZone() string {
	switch ahead := 12 - time.Now().UTC().Hour(); {
	case ahead > 0:
		return fmt.Sprintf("Etc/GMT-%d", ahead) // in POSIX's sense: what is west is positive
	case ahead < 0:
		return fmt.Sprintf("Etc/GMT+%d", -ahead)
	}
	return "Etc/GMT"
}

// Draw is how long after a midnight a clock begins that is not Go's.
func Draw(t testing.TB) time.Duration {
	t.Helper()
	all := phases(t)
	at := all[rand.IntN(len(all))] // a server is begun once
	log(t, at)
	return at
}

func log(t testing.TB, at time.Duration) { t.Logf("phase: %s=%v", variable, at) }

// phases are when a test runs: once, on or beside a boundary or anywhere, unless told otherwise.
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

// all is every hour of a day: where it begins, and within it.
func all() (phases []time.Duration) {
	today := time.Duration(1+rand.IntN(days-1)) * day
	for hour := range 24 {
		at := today + time.Duration(hour)*time.Hour
		phases = append(phases, beside(at), anywhere(at, at+time.Hour))
	}
	return phases
}

// boundary is where a minute begins, and often an hour or a day too.
func boundary() time.Duration {
	units := []time.Duration{time.Minute, time.Hour, day}
	unit := units[rand.IntN(len(units))]
	return (1 + rand.N(days*day/unit-1)) * unit
}

// beside is at, or one tick before or after it.
func beside(at time.Duration) time.Duration { return at + time.Duration(rand.IntN(3)-1)*tick }

func anywhere(from, to time.Duration) time.Duration { return from + rand.N((to-from)/tick)*tick }
