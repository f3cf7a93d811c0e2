package limiter

// State is what a store remembers of one key under one [Quota]: a few integers,
// which mean what the algorithm says, and for SlidingLog a list of times. The zero
// State is a key that was never seen. A store writes and reads it as it stands.
type State struct {
	// Last is the time of the last change, in microseconds since 1970. The clock
	// may step back; a state does not.
	Last int64

	// Level is how full the bucket is, or the count in the window of Last.
	Level int64

	// Prev is the count in the window before.
	Prev int64

	// Log is the times of events in SlidingLog, ascending, one for each unit.
	// Take appends to it in place when its capacity allows.
	Log []int64
}
