package limiter

import (
	"fmt"
	"slices"
	"strings"
)

// An Algorithm says how the events of a [Limit] are counted. The package documentation compares
// them.
//
// Shared stores hold the numbers of the algorithms, so the numbers never change.
type Algorithm uint8

const (
	// SlidingWindow, the default, is SlidingLog for a limit of at most 10 Events, and
	// SlidingCounter above that. [Quota.Algorithm] says which.
	SlidingWindow Algorithm = iota

	// TokenBucket admits up to Burst at once and refills evenly at Events per Per.
	// An interval d admits at most Burst + d*Events/Per. GCRA and the leaky bucket
	// as a meter take the same decisions. In text, "gcra" is another name for it.
	TokenBucket

	// LeakyBucket is a queue: events leave it at a constant rate of Events per Per, and at most Burst
	// events wait in it. An event that must wait is allowed with a Delay. One event leaves at once and
	// Burst events wait, so Decision.Limit is Burst+1.
	LeakyBucket

	// FixedWindow counts events in windows aligned to the epoch. It is the easiest to
	// explain. Up to 2*Events can pass around a boundary.
	FixedWindow

	// SlidingLog remembers every event: never more than Events pass in any interval of Per.
	// An event takes up to sixteen bytes, whatever its cost. Events is at most 10,000.
	SlidingLog

	// SlidingCounter weighs the count of the previous window by how much of it still
	// overlaps the last Per, and adds the current one. Any interval d no longer than Per
	// admits less than Events*(1+d/Per)+1.
	SlidingCounter
)

// exactEvents is the most Events for which a SlidingWindow is a log. A counter admits one event
// more than the limit around a boundary, which is a lot for a small limit.
const exactEvents = 10

// algorithm returns how l counts.
func (l Limit) algorithm() Algorithm {
	switch {
	case l.Algorithm != SlidingWindow:
		return l.Algorithm
	case l.Events <= exactEvents:
		return SlidingLog
	}
	return SlidingCounter
}

// algorithm is what each algorithm implements.
type algorithm struct {
	name    string
	aliases []string

	isBucket bool // it has a burst
	queue    bool // an event waits until earlier events have left
	fades    bool // the previous window counts too

	// mostEvents is the most Events of an algorithm that remembers every event, or 0.
	mostEvents int64

	// compile derives from q.limit the numbers that the other functions use.
	compile func(q *Quota)

	arithmetic
}

// arithmetic has the functions of a kind of algorithms: buckets, windows, logs, or events in flight. They
// are pure, but may change the array of the log that they return. Only advance moves time: pass its result to
// the others.
type arithmetic struct {
	// advance returns the usage at time t, no earlier than u.at, and how many units of it are used or owed,
	// up to twice the capacity.
	advance func(q *Quota, u usage, log []Entry, t int64) (_ usage, _ []Entry, used int64)

	// owe returns the usage after a debt of n units, up to twice the capacity. The level stops at twice the capacity.
	owe func(q *Quota, u usage, log []Entry, n int64) (usage, []Entry)

	// refund returns the usage after a refund of up to n units that were taken at a time. If at is 0, the time is
	// not known.
	refund func(q *Quota, u usage, log []Entry, n, at int64) (usage, []Entry)

	// wait returns in how many microseconds n units fit, and in how many no unit is used. n is at most the capacity.
	wait func(q *Quota, u usage, log []Entry, n int64) (fit, reset int64)
}

// algorithms holds all algorithms. Each has its functions in a file of its own.
var algorithms = [...]*algorithm{
	SlidingWindow:  {name: "sliding-window"}, // no quota has it
	TokenBucket:    &tokenBucket,
	LeakyBucket:    &leakyBucket,
	FixedWindow:    &fixedWindow,
	SlidingLog:     &slidingLog,
	SlidingCounter: &slidingCounter,
}

func (a Algorithm) lookup() (*algorithm, bool) {
	if int(a) >= len(algorithms) {
		return nil, false
	}
	return algorithms[a], true
}

// String returns the algorithm's name in text, such as "sliding-window".
func (a Algorithm) String() string {
	if known, ok := a.lookup(); ok {
		return known.name
	}
	return fmt.Sprintf("Algorithm(%d)", uint8(a))
}

// MarshalText writes what String returns. An unknown algorithm is an error.
func (a Algorithm) MarshalText() ([]byte, error) {
	if _, ok := a.lookup(); !ok {
		return nil, fmt.Errorf("limiter: there is no algorithm %d", uint8(a))
	}
	return []byte(a.String()), nil
}

// UnmarshalText reads an algorithm's name, in upper or lower case, with - or _ between words.
func (a *Algorithm) UnmarshalText(text []byte) error {
	name := strings.ReplaceAll(strings.ToLower(string(text)), "_", "-")
	for i, known := range algorithms {
		if name == known.name || slices.Contains(known.aliases, name) {
			*a = Algorithm(i)
			return nil
		}
	}
	return fmt.Errorf("limiter: algorithm %q is not one of %s", shorten(string(text)), algorithmNames())
}

func algorithmNames() string {
	var names []string
	for _, known := range algorithms {
		names = append(names, known.name)
	}
	return strings.Join(names, ", ")
}
