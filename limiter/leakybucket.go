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
	refund:  emptyBucket,
	look:    lookBucket,
	wait:    waitBucket,
	delay:   func(q *Quota, s State) int64 { return divUp(s.Level, q.refill) },
}
