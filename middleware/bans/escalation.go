package bans

import (
	"errors"
	"fmt"
	"time"
)

// An Escalation says how long bans are: the first is Ban, and each one after it Factor times
// as long, up to Max. Repetitions are forgotten when a key was not banned again within Max
// after its last ban ended.
type Escalation struct {
	Ban    time.Duration
	Factor float64
	Max    time.Duration
}

const maxFactor = 1000

// Validate returns everything that is wrong with e, joined, or nil.
func (e Escalation) Validate() error {
	var errs []error
	report := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("bans: "+format, args...))
	}
	if e.Ban <= 0 || e.Ban%time.Millisecond != 0 {
		report("Ban is %v: it must be whole milliseconds, at least one", e.Ban)
	}
	if !(e.Factor >= 1 && e.Factor <= maxFactor) { // which NaN is neither
		report("Factor is %v: it must be from 1 to %d", e.Factor, maxFactor)
	}
	switch {
	case e.Max > MaxDuration:
		report("Max is %v: it must be at most %v", e.Max, MaxDuration)
	case e.Max < e.Ban:
		report("Max is %v: it must be at least Ban, %v", e.Max, e.Ban)
	case e.Max%time.Millisecond != 0:
		report("Max is %v: it must be whole milliseconds", e.Max)
	}
	return errors.Join(errs...)
}

// Duration is the length of the times-th ban in a row, counted from 1: in whole milliseconds,
// and never above Max.
//
// bans.lua in package redisbans multiplies in the same order, so that both round alike.
func (e Escalation) Duration(times int) time.Duration {
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
