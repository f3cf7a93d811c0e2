package bans

import (
	"cmp"
	"errors"
	"time"

	"github.com/weirgo/weir/internal/invalid"
)

// An Escalation bans a key when a rule has refused it a number of times (After) in a period (Within).
// With Outcomes it counts answers instead of refusals. The first ban lasts Ban, and each further ban is
// Factor times as long, up to Max. If a key is not banned again within Max after a ban has ended, the
// next ban lasts Ban again.
//
// Only keys of a single client are banned (keyfunc.Own): no key that clients share, such as a network, the
// address of a proxy that does not name its client, or the counter for requests without a key, and no key
// that any client can send, such as a header. Keys that the store has no room for are not banned either, because they share a
// counter (see limiter.Decision.Overflow).
type Escalation struct {
	After  int           // refusals, from 1 to 10,000
	Within time.Duration // the time in which refusals are counted, at most 366 days
	Ban    time.Duration // at least a millisecond, in whole milliseconds
	Factor float64       // how many times as long each further ban is, from 1 to 1000. Zero: 2
	Max    time.Duration // at least Ban, at most 366 days. Zero: 24 hours, or Ban if it is longer

	// Outcomes counts answers in place of refusals: the answers that middleware.Rule.Counts names,
	// such as failed logins. An answer of gRPC-Web or a stream of Connect that has its code in the body leads to
	// no ban, unless the handler calls middleware.CountAs.
	Outcomes bool
}

const (
	mostStrikes   = 10_000 // as the log that counts them can hold
	defaultFactor = 2
	maxFactor     = 1000
	defaultMax    = 24 * time.Hour
)

// WithDefaults returns e with the defaults of Factor and Max.
func (e Escalation) WithDefaults() Escalation {
	e.Factor = cmp.Or(e.Factor, defaultFactor)
	e.Max = cmp.Or(e.Max, max(defaultMax, e.Ban))
	return e
}

// Validate returns everything that is wrong with e, joined, or nil.
func (e Escalation) Validate() error {
	var errs []error
	if e.After < 1 || e.After > mostStrikes {
		errs = append(errs, wrong("After", "is %d: it must be from 1 to %d", e.After, mostStrikes))
	}
	if e.Within <= 0 || e.Within > MaxDuration || e.Within%time.Microsecond != 0 {
		errs = append(errs, wrong("Within", "is %v: it must be whole microseconds, more than 0 and at most %v", e.Within, MaxDuration))
	}
	return errors.Join(append(errs, e.checkBan())...)
}

// checkBan checks the fields that a [List] uses.
func (e Escalation) checkBan() error {
	e = e.WithDefaults()
	var errs []error
	report := func(field, reason string, args ...any) {
		errs = append(errs, wrong(field, reason, args...))
	}
	if e.Ban <= 0 || e.Ban%time.Millisecond != 0 {
		report("Ban", "is %v: it must be whole milliseconds, at least one", e.Ban)
	}
	if !(e.Factor >= 1 && e.Factor <= maxFactor) { // which NaN is neither
		report("Factor", "is %v: it must be from 1 to %d", e.Factor, maxFactor)
	}
	switch {
	case e.Max > MaxDuration:
		report("Max", "is %v: it must be at most %v", e.Max, MaxDuration)
	case e.Max < e.Ban:
		report("Max", "is %v: it must be at least as long as the first ban, %v", e.Max, e.Ban)
	case e.Max%time.Millisecond != 0:
		report("Max", "is %v: it must be whole milliseconds", e.Max)
	}
	return errors.Join(errs...)
}

func wrong(field, reason string, args ...any) error {
	return invalid.Field("bans", field, reason, args...)
}

// CheckEscalation returns the error of [List.Escalate] for wrong arguments, or nil.
func CheckEscalation(rule string, e Escalation) error {
	var err error
	if rule == "" {
		err = invalid.New("bans", "a ban by escalation needs the name of its rule")
	}
	return errors.Join(err, e.checkBan())
}

// Duration returns the length of the times-th ban in a row, counted from 1. It is whole milliseconds
// and at most Max.
//
// bans.lua in package redisbans multiplies in the same order, so that both round alike.
func (e Escalation) Duration(times int) time.Duration {
	e = e.WithDefaults()
	if times <= 1 {
		return min(e.Ban, e.Max)
	}
	power, square := 1.0, e.Factor
	for n := times - 1; n > 0; n /= 2 {
		if n%2 == 1 {
			power *= square
		}
		square *= square
	}
	ms := float64(e.Ban.Milliseconds()) * power
	if !(ms < float64(e.Max.Milliseconds())) {
		return e.Max
	}
	return time.Duration(ms) * time.Millisecond
}
