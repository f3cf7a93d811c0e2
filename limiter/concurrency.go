package limiter

import (
	"errors"
	"time"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/internal/waiting"
)

// Concurrency is how many events of a key may be under way at once, and what those do for which
// there is no place. The zero value is none.
type Concurrency struct {
	// Max is how many: from 1 to 10^9.
	Max int64

	// Queue is how many wait in this process when all places are taken, in the order in which
	// they came: up to 10,000, which is also the most of all keys together. Zero: none.
	Queue int

	// MaxWait is how long one waits at most. Required with a Queue.
	MaxWait time.Duration
}

// Validate is everything that is wrong with c.
func (c Concurrency) Validate() error {
	return errors.Join(checkMax(c.Max), checkQueue(c.Queue, c.MaxWait))
}

// mostPlaces bounds Max.
const mostPlaces = 1_000_000_000

func checkMax(most int64) error {
	if most < 1 || most > mostPlaces {
		return invalid.New("limiter", "%s is %d: it must be from 1 to %d", invalid.Name("Max"), most, int64(mostPlaces))
	}
	return nil
}

func checkQueue(queue int, maxWait time.Duration) error {
	switch {
	case queue < 0 || queue > waiting.Most:
		return invalid.New("limiter", "%s is %d: it must be from 1 to %d, or 0 for none", invalid.Name("Queue"), queue, waiting.Most)
	case maxWait < 0:
		return invalid.New("limiter", "%s is %v: it must not be negative", invalid.Name("MaxWait"), maxWait)
	case queue > 0 && maxWait == 0:
		return invalid.New("limiter", "%s is missing: %s is %d, and an event that waits has to have an end to it", invalid.Name("MaxWait"), invalid.Name("Queue"), queue)
	case queue == 0 && maxWait > 0:
		return invalid.New("limiter", "%s is %v, and there is no %s to wait in", invalid.Name("MaxWait"), maxWait, invalid.Name("Queue"))
	}
	return nil
}
