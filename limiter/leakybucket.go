package limiter

// A leaky bucket is a token bucket whose level is a queue: an event waits until earlier events have left.
// One event leaves at once and Burst events may wait, so the capacity is Burst+1.
var leakyBucket = algorithm{
	name:       "leaky-bucket",
	bursts:     true,
	queue:      true,
	compile:    func(q *Quota) { compileBucket(q, q.limit.burst()+1) },
	arithmetic: bucket,
}

// leaveQueue refunds units of the last event in the queue. An event is the last if the queue ends at its
// receipt. Turns behind another event have been given and do not move, so a refund of its units would
// admit events that leave at the same time as these turns. Its units drain instead. So do those of
// events that take less than a microsecond, because two of them can have the same end.
func leaveQueue(q *Quota, u usage, n, at int64) usage {
	if u.n > 0 && q.unit >= q.refill && u.at+q.byRefill.up(u.n) == at {
		u.n -= min(n*q.unit, u.n)
	}
	return u
}
