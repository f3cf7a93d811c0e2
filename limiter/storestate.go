package limiter

// State is what a store remembers of one key: a few integers whose meaning depends on the
// algorithm, and for some algorithms a list of entries. The zero State is a key that was never
// seen. A store writes and reads a State unchanged.
type State struct {
	// Quota is the quota under which the state was written. [Quota.Take] and [Quota.Settle] set
	// it. If a rule's limit changes, it says which limit the numbers below belong to. Nil means
	// the Quota that the state is passed to. A store that writes states elsewhere must keep, of the
	// Quota, its Limit and Settles.
	Quota *Quota

	// Last is when the state last changed, in microseconds since 1970. If the clock steps back,
	// Last does not.
	Last int64

	// Level is how full the bucket is, or the count in the window of Last, or the units in the
	// log. Debts can make it up to twice the limit.
	Level int64

	// Prev is the count in the previous window. In a log it is the debt: the part of Level that no
	// entry of Log covers.
	Prev int64

	// Log is sorted by time. In a SlidingLog an entry is an event with its units, and there are at most
	// Events entries. In a TokenBucket with [Quota.Settles] an entry is the bucket's lowest level since
	// the entry's time, and there are at most 8 entries. Other algorithms have none. Take
	// appends in place if the capacity of Log allows it.
	Log []Entry

	// Others has the same events as limits count them that differ from Quota in more than their number of events,
	// at most 3. Most keys have none. [State.FreeAfter] says when all states are free.
	Others []State

	// Taken is set in Others: when the limit was last in use.
	Taken int64

	// Cut is set if there are Others: some of the units that were taken until then are not counted in all
	// states, and cannot be refunded there.
	Cut int64
}

// An Entry of a State's Log has a time, in microseconds since 1970, and a number of units, at least 1.
type Entry struct{ At, N int64 }

// A usage is a State without its Quota and its Log. It has four words at most: a larger struct would not
// stay in registers.
type usage struct {
	at, n, prev int64 // Last, Level and Prev

	index int64 // of the window of at, if all windows of q are equally long
}

// usage returns the usage of q with these numbers.
func (q *Quota) usage(at, n, prev int64) usage {
	u := usage{at: at, n: n, prev: prev}
	if q.window > 0 && !q.logs {
		u.index = q.byWindow.down(at)
	}
	return u
}

// state returns a State of q.
func (q *Quota) state(u usage, log []Entry) State {
	return State{Quota: q, Last: u.at, Level: u.n, Prev: u.prev, Log: log}
}
