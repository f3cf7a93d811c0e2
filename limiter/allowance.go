package limiter

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/internal/waiting"
)

// An Allowance says how much is allowed: a [Limit], an [AtOnce], or [All] of several.
//
// Allowances can be copied and compared with ==. [New] and the middleware's New check them. A
// nil or zero Allowance is an error.
type Allowance interface {
	// String returns the Allowance as text, such as "10/1s, 1000/1h, 5 at once".
	String() string

	isAllowance()
}

func (Limit) isAllowance()       {}
func (Concurrency) isAllowance() {}
func (several) isAllowance()     {}

// Concurrency is how many events may be in flight at once, and how many may wait for a slot. It
// is an [Allowance]. Make one with [AtOnce].
type Concurrency struct {
	// Max is how many events of a key may be in flight, from 1 to 10^9.
	Max int64

	// Waiting is how many events of a key may wait for a slot in this process, up to 10,000. They wait
	// in FIFO order. At most 10,000 events of all keys together wait. Zero means none.
	Waiting int

	// MaxWait is the longest time that an event waits. It is required with Waiting.
	MaxWait time.Duration
}

// AtOnce limits the events in flight at once to most, which is from 1 to 10^9.
func AtOnce(most int64) Concurrency { return Concurrency{Max: most} }

// Queue returns c with Waiting and MaxWait set: up to waiting events wait (10,000 at most), each for up
// to maxWait.
func (c Concurrency) Queue(waiting int, maxWait time.Duration) Concurrency {
	c.Waiting, c.MaxWait = waiting, maxWait
	return c
}

// String returns c as text, such as "5 at once".
func (c Concurrency) String() string { return fmt.Sprintf("%d at once", c.Max) }

// maxLimits is how many limits an Allowance can have.
const maxLimits = 8

// All combines several allowances. An event passes if all of them have room, and is then
// charged to each. All takes up to 8 limits with different periods, and one AtOnce. A
// LeakyBucket must be the only limit.
//
//	limiter.All(limiter.PerSecond(10), limiter.PerHour(1000), limiter.AtOnce(5))
func All(parts ...Allowance) Allowance {
	if len(parts) == 1 {
		return parts[0]
	}
	var all several
	for _, part := range parts {
		all.add(part)
	}
	return all
}

// several is what All returns.
type several struct {
	limits [maxLimits]Limit
	n      int // more than there is room for is an error
	atOnce Concurrency
	wrong  string
}

func (a *several) add(part Allowance) {
	switch part := part.(type) {
	case Limit:
		if a.n < maxLimits {
			a.limits[a.n] = part
		}
		a.n++
	case Concurrency:
		if a.atOnce != (Concurrency{}) || part == (Concurrency{}) {
			a.wrong = fmt.Sprintf("All has %v, and must have AtOnce once, of at least 1", part)
		}
		a.atOnce = part
	case several:
		for i := range part.n {
			a.add(part.limits[min(i, maxLimits-1)])
		}
		if part.atOnce != (Concurrency{}) {
			a.add(part.atOnce)
		}
		if part == (several{}) {
			a.wrong = "one of All is an All of nothing"
		} else if part.wrong != "" {
			a.wrong = part.wrong
		}
	default:
		a.wrong = fmt.Sprintf("one of All is %T: it must be a Limit, AtOnce or All", part)
	}
}

func (a several) String() string {
	var texts []string
	for _, l := range a.limits[:min(a.n, maxLimits)] {
		texts = append(texts, l.String())
	}
	if a.atOnce != (Concurrency{}) {
		texts = append(texts, a.atOnce.String())
	}
	return strings.Join(texts, ", ")
}

// Join reverses [Split]: it returns All of the limits and atOnce, or nil if there are none.
func Join(limits []Limit, atOnce Concurrency) Allowance {
	var parts []Allowance
	for _, l := range limits {
		parts = append(parts, l)
	}
	if atOnce != (Concurrency{}) {
		parts = append(parts, atOnce)
	}
	if parts == nil {
		return nil
	}
	return All(parts...)
}

// Split returns the limits of an Allowance, in their order, and its concurrency, which is zero
// if there is none. Its error has everything that is wrong with them.
func Split(a Allowance) ([]Limit, Concurrency, error) {
	switch a := a.(type) {
	case Limit:
		return []Limit{a}, Concurrency{}, a.Validate()
	case Concurrency:
		return nil, a, a.Validate()
	case several:
		limits := a.limits[:min(a.n, maxLimits)]
		return limits, a.atOnce, a.validate()
	case nil:
		return nil, Concurrency{}, invalid.Field("limiter", "Limit", "is missing")
	}
	return nil, Concurrency{}, invalid.Field("limiter", "Limit", "is a %T: it must be a Limit, AtOnce or All", a)
}

func (a *several) validate() error {
	if a.wrong != "" {
		return invalid.New("limiter", "%s", a.wrong)
	}
	if a.n > maxLimits || a.n == 0 && a.atOnce == (Concurrency{}) {
		return invalid.New("limiter", "All has %d limits: it must have 1 to %d", a.n, maxLimits)
	}
	var errs []error
	limits := a.limits[:a.n]
	for i, l := range limits {
		errs = append(errs, l.Validate())
		if a.n > 1 && l.Algorithm == LeakyBucket {
			errs = append(errs, invalid.New("limiter", "the limit %v must be the only limit: requests that wait in a leaky-bucket cannot be held to another limit", l))
		}
		for _, other := range limits[:i] {
			if other.Per == l.Per {
				errs = append(errs, invalid.New("limiter", "two limits have one period, %v and %v", other, l))
			}
		}
	}
	if a.atOnce != (Concurrency{}) {
		errs = append(errs, a.atOnce.Validate())
	}
	return errors.Join(errs...)
}

// Validate returns everything that is wrong with c, joined, or nil.
func (c Concurrency) Validate() error {
	return errors.Join(checkMax(c.Max), c.checkQueue())
}

// mostPlaces bounds Max.
const mostPlaces = 1_000_000_000

func checkMax(most int64) error {
	if most < 1 || most > mostPlaces {
		return invalid.Field("limiter", "Max", "is %d: it must be from 1 to %d", most, int64(mostPlaces))
	}
	return nil
}

func (c Concurrency) checkQueue() error {
	queue, maxWait := c.Waiting, c.MaxWait
	switch {
	case queue < 0 || queue > waiting.Most:
		return invalid.Field("limiter", "Queue", "is %d: it must be from 1 to %d, or 0 for none", queue, waiting.Most)
	case maxWait < 0:
		return invalid.Field("limiter", "MaxWait", "is %v: it must not be negative", maxWait)
	case queue > 0 && maxWait == 0:
		return invalid.Field("limiter", "MaxWait", "is missing: a wait in a queue must have an end")
	case queue == 0 && maxWait > 0:
		return invalid.Field("limiter", "MaxWait", "is %v, and there is no queue to wait in", maxWait)
	}
	return nil
}
