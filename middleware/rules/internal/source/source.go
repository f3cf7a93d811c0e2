// Package source is the file where rules are written, and when that may have changed. It
// knows nothing of rules.
package source

import (
	"errors"
	"fmt"
	"time"
)

// ErrMissing is, as errors.Is tells it, what Read returns when there is no such file (which
// is fs.ErrNotExist too).
var ErrMissing = errors.New("nothing is there")

const (
	maxText     = 1 << 20
	defaultPoll = 10 * time.Second

	// patience is with a file system that hangs.
	patience = time.Second
)

func errTooLong(where string) error {
	return fmt.Errorf("source: %s is longer than 1 MiB (%d bytes)", where, maxText)
}

// orDefault is the time between two looks.
func orDefault(poll time.Duration) time.Duration {
	if poll <= 0 {
		return defaultPoll
	}
	return poll
}

// nudges holds one until it is received, and drops the others.
type nudges chan struct{}

func newNudges() nudges { return make(nudges, 1) }

func (n nudges) nudge() {
	select {
	case n <- struct{}{}:
	default:
	}
}

// await waits for done, but not for longer than patience.
func await(done <-chan struct{}) {
	select {
	case <-done:
		return
	default:
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
	}
}
