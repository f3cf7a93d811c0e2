package middleware

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/bans"
)

// An Escalation bans a key that a rule refused After times Within so much time, first for
// Ban, and Factor times as long each time it happens again, up to Max. It needs
// Config.Bans and a Key. Requests without a key are not banned, nor
// keys that everybody has: those of keyfunc.Global, Route, Method and Host, and "no-ip".
type Escalation struct {
	After  int           // refusals, from 1 to 10,000
	Within time.Duration // at most 366 days
	Ban    time.Duration // at least a millisecond
	Factor float64       // from 1 to 1000. Zero: 2
	Max    time.Duration // at least Ban, at most 366 days. Zero: 24 hours, or Ban if it is longer
}

const (
	defaultFactor = 2
	defaultMaxBan = 24 * time.Hour
	mostStrikes   = 10_000 // as the log that counts them can hold
)

// Validate returns everything that is wrong with e, joined, or nil.
func (e Escalation) Validate() error {
	var errs []error
	if e.After < 1 || e.After > mostStrikes {
		errs = append(errs, fmt.Errorf("middleware: Escalate.After is %d: it must be from 1 to %d", e.After, mostStrikes))
	} else if err := e.strikes().Validate(); err != nil {
		errs = append(errs, fmt.Errorf("middleware: Escalate.Within: %w", err))
	}
	if err := e.growth().Validate(); err != nil {
		errs = append(errs, fmt.Errorf("middleware: Escalate: %w", err))
	}
	return errors.Join(errs...)
}

// strikes is the limit that refusals count against.
func (e Escalation) strikes() limiter.Limit {
	return limiter.Limit{Events: int64(e.After), Per: e.Within, Algorithm: limiter.SlidingLog}
}

// growth is how long bans are, with the defaults.
func (e Escalation) growth() bans.Escalation {
	return bans.Escalation{
		Ban: e.Ban, Factor: cmp.Or(e.Factor, defaultFactor), Max: cmp.Or(e.Max, max(defaultMaxBan, e.Ban)),
	}
}
