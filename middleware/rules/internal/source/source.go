// Package source is where rules are written, a file or a key in Redis, and when that may
// have changed. It knows nothing of rules.
package source

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Source is text somewhere that may change.
type Source interface {
	// Read gives at most 1 MiB. More is an error, and so is nothing: ErrMissing.
	Read(ctx context.Context) ([]byte, error)

	// Changed nudges when Read may now give something else. A nudge stands for all that
	// came before it was received, may be spurious, and may come in the middle of a change;
	// another one comes after it. The channel is never closed.
	Changed() <-chan struct{}

	// Close ends the nudges, and waits for what goes on behind them, though not for longer
	// than a second where a file system or a server hangs. It may be called again.
	Close() error
}

// ErrMissing is, as errors.Is tells it, what Read returns when there is no such file (which
// is fs.ErrNotExist too) or no such key.
var ErrMissing = errors.New("nothing is there")

const (
	maxText     = 1 << 20
	defaultPoll = 10 * time.Second

	// patience is with a server or a file system that hangs.
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
