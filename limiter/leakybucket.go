package limiter

// A leaky bucket is a token bucket that makes an event wait for those before it:
// the level it finds is the queue. One event leaves at once and Burst may wait,
// so it holds Burst+1.
var leakyBucket = algorithm{
	name:    "leaky-bucket",
	bursts:  true,
	lua:     "tokenbucket.lua",
	compile: func(q *Quota) { compileBucket(q, q.limit.burst()+1) },

	advance: drainBucket,
	take:    fillBucket,
	owe:     oweBucket,
	refund:  leaveQueue,
	look:    lookBucket,
	wait:    waitBucket,
	delay:   func(q *Quota, s State) int64 { return divUp(s.Level, q.refill) },
}

// leaveQueue returns units of the last event in the queue, which at, the end of the queue behind
// that event, shows it to be. Turns behind any other event are already given, and do not move: its
// units would make room for events that leave at the same time as those. They drain instead, as they
// do where an event takes less than a microsecond, so that two can have one end.
func leaveQueue(q *Quota, s State, n, at int64) State {
	if s.Level > 0 && q.unit >= q.refill && s.Last+divUp(s.Level, q.refill) == at {
		s.Level -= min(n*q.unit, s.Level)
	}
	return s
}
