package limiter

// State is what a store remembers of one key of a rule and tier: a few integers,
// which mean what the algorithm says, and for some a list of entries. The zero
// State is a key that was never seen. A store writes and reads it as it stands.
type State struct {
	// Quota is what the state was written under: [Quota.Take] and [Quota.Settle] set it. If a
	// rule's limit has changed, it says under which limit the numbers below are to be read. Nil:
	// under that of the Quota that the state is passed to.
	Quota *Quota

	// Last is the time of the last change, in microseconds since 1970. The clock
	// may step back; a state does not.
	Last int64

	// Level is how full the bucket is, or the count in the window of Last, or the units in
	// the log. What is owed can make it twice what the limit allows.
	Level int64

	// Prev is the count in the window before. Of a log it is those of Level that are owed and
	// not in an entry yet.
	Prev int64

	// Log is in the order of time. In SlidingLog an entry is an event and its units, and there
	// are at most as many as Events. In a TokenBucket of a quota that [Quota.Settles] an entry is
	// the lowest level since that time, and there are at most [MostLows]. Others have none.
	// Take appends to it in place when its capacity allows.
	Log []Entry
}

// An Entry of a State's Log is a time, in microseconds since 1970, and a number from 1 on.
type Entry struct{ At, N int64 }
