package limiter

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/weirgo/weir/internal/invalid"
)

// What a Limit may ask for. Within these bounds every algorithm counts in
// integers below 2^53, which Go and Redis's Lua represent alike.
const (
	maxEvents = 1_000_000_000_000
	maxPeriod = 366 * 24 * time.Hour
	maxRate   = 10 // events per microsecond: ten million per second
)

// A Limit says how many events may happen in how much time, and how they are counted:
//
//	limiter.PerMinute(100)                            // at most 100 in a sliding minute
//	limiter.PerSecond(10).WithBurst(20)               // a token bucket: 10 per second, 20 at once
//	limiter.PerHour(5).With(limiter.SlidingLog)       // exact, at the price of memory
//	limiter.Monthly(1_000_000).In("Europe/Berlin")    // a month of the calendar
//	limiter.Limit{Events: 3, Per: 10 * time.Second}   // a literal works too
//
// Limits can be copied, compared with ==, written as text ([Limit.String]) and read back ([Parse]). A
// Limit is checked where it is used: [New], [NewQuota] and the middleware's New return what
// [Limit.Validate] says.
type Limit struct {
	// Events is how many events fit in Per, in units of cost: from 1 to 10^12.
	Events int64

	// Per is the period, a whole number of microseconds, at most 366 days. The rate, Events divided by
	// Per, is at most ten million per second.
	Per time.Duration

	// Burst is how many events TokenBucket admits at once after a pause, or how many LeakyBucket lets
	// wait: up to 10^12, and at most the events that refill in 366 days. Zero means Events. Other
	// algorithms have no burst: a Limit with one is invalid.
	Burst int64

	// Algorithm says how events are counted. Zero is SlidingWindow.
	Algorithm Algorithm

	// calendar is set by Daily, Weekly, Monthly and Yearly, of which Per is only the usual length:
	// 24, 168, 744 or 8784 hours.
	calendar calendar
}

// PerSecond is a limit of events in a sliding second.
func PerSecond(events int64) Limit { return Limit{Events: events, Per: time.Second} }

// PerMinute is a limit of events in a sliding minute.
func PerMinute(events int64) Limit { return Limit{Events: events, Per: time.Minute} }

// PerHour is a limit of events in a sliding hour.
func PerHour(events int64) Limit { return Limit{Events: events, Per: time.Hour} }

// PerDay is a limit of events in a sliding day of 24 hours.
func PerDay(events int64) Limit { return Limit{Events: events, Per: 24 * time.Hour} }

// With returns l with another algorithm.
func (l Limit) With(a Algorithm) Limit {
	l.Algorithm = a
	return l
}

// WithBurst returns l with a burst. Only buckets have a burst, so a limit with the default
// algorithm becomes a TokenBucket.
func (l Limit) WithBurst(burst int64) Limit {
	l.Burst = burst
	if l.Algorithm == SlidingWindow {
		l.Algorithm = TokenBucket
	}
	return l
}

// Validate returns everything that is wrong with l, joined, or nil.
func (l Limit) Validate() error {
	var errs []error
	report := func(field, reason string, args ...any) {
		errs = append(errs, invalid.Field("limiter", field, "is "+reason, args...))
	}
	if l.Events < 1 || l.Events > maxEvents {
		report("Events", "%d: it must be from 1 to %d", l.Events, int64(maxEvents))
	}
	if err := checkPeriod(l.Per); err != nil {
		report("Per", "%w", err)
	}
	if l.Burst < 0 || l.Burst > maxEvents {
		report("Burst", "%d: it must be from 1 to %d, or 0 for the default", l.Burst, int64(maxEvents))
	}
	a, ok := l.Algorithm.lookup()
	switch {
	case !ok:
		report("Algorithm", "%d: there is no such algorithm", uint8(l.Algorithm))
	case l.Burst != 0 && !a.isBucket:
		report("Burst", "%d: %v has no burst, only token-bucket and leaky-bucket do", l.Burst, l.Algorithm)
	case a.mostEvents != 0 && l.Events > a.mostEvents:
		report("Events", "%d: %v remembers every event and takes at most %d", l.Events, l.Algorithm, a.mostEvents)
	}
	l.checkCalendar(report)
	if len(errs) > 0 {
		return errors.Join(errs...)
	}

	per := l.Per.Microseconds()
	if l.Events > maxRate*per {
		report("Events", "%d per %v: the rate must be at most 10 million per second", l.Events, l.Per)
	}
	if a.isBucket && mulDivUp(l.burst(), per, l.Events) > maxPeriod.Microseconds() {
		report("Burst", "%d: at %d per %v it would take more than 366 days to refill", l.burst(), l.Events, l.Per)
	}
	return errors.Join(errs...)
}

// checkPeriod returns an error whose text starts with the value: "5ns: it must be ...".
func checkPeriod(d time.Duration) error {
	switch {
	case d <= 0 || d > maxPeriod:
		return fmt.Errorf("%v: it must be more than 0 and at most 366 days", d)
	case d%time.Microsecond != 0:
		return fmt.Errorf("%v: it must be a whole number of microseconds", d)
	}
	return nil
}

// burst returns Burst or its default.
func (l Limit) burst() int64 {
	if l.Burst == 0 {
		return l.Events
	}
	return l.Burst
}

// mulDivUp returns a*b/c rounded up, at most the largest int64. The numbers must be positive.
func mulDivUp(a, b, c int64) int64 {
	const saturated = 1<<63 - 1
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return saturated
	}
	quotient, rest := bits.Div64(hi, lo, uint64(c))
	if quotient >= saturated {
		return saturated
	}
	if rest > 0 {
		quotient++
	}
	return int64(quotient)
}
