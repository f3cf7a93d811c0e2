package limiter

// A leaky bucket is a token bucket whose level is a queue: an event waits until earlier events have left.
// One event leaves at once and Burst events may wait, so the capacity is Burst+1.
var leakyBucket = algorithm{
	name:       "leaky-bucket",
	isBucket:   true,
	queue:      true,
	compile:    func(q *Quota) { compileBucket(q, q.limit.burst()+1) },
	arithmetic: bucket,
}

// leaveQueue refunds units of the last event in the queue: the event whose receipt is the end of the queue. Only the
// last event can be refunded, because later events already have their times. The units of other events drain. So do
// the units of events that take less than a microsecond: two of those can have the same receipt.
func leaveQueue(q *Quota, u usage, n, at int64) usage {
	if u.n > 0 && q.unit >= q.refill && u.at+q.byRefill.up(u.n) == at {
		u.n -= min(n*q.unit, u.n)
	}
	return u
}
