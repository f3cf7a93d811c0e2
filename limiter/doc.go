// Package limiter answers one question: may this happen now?
//
//	mail := limiter.Must(limiter.New(limiter.Config{Name: "mail", Limit: limiter.PerHour(50)}))
//
//	d, err := mail.Allow(ctx, "user:42")
//	if err == nil && !d.Allowed {
//		fmt.Println("again in", d.RetryAfter)
//	}
//
// To limit HTTP requests use package middleware, which is built on this package.
//
// # Limits and algorithms
//
// A [Limit] is a number of events in a period. Written as text it is 100/1m, or "10/s burst 20", or
// "1000/h token-bucket"; [Parse] and [Limit.String] read and write that. A period may be a calendar
// period, as in [Monthly] or "1000 daily Europe/Berlin": then the limit is a FixedWindow that begins and
// ends at midnight in that time zone. How events are counted is the limit's [Algorithm]. With N for
// Events, P for Per and B for Burst:
//
//	algorithm       for                                at most in any period P    state
//	SlidingWindow   "100 per minute" as people mean    N up to 10 events; above,
//	(the default)   it                                 a SlidingCounter
//	SlidingCounter  the same at any size               2N, on average traffic     3 integers
//	                                                   very near N
//	TokenBucket     a steady rate that allows bursts   B+N                        2 integers
//	LeakyBucket     smoothing: events wait for their   N+1 leave, evenly spaced   2 integers
//	                turn instead of being refused
//	FixedWindow     quotas that people see reset,      2N, N in each aligned      2 integers
//	                such as 1000 per day               window
//	SlidingLog      limits that must be exact          N                          2 an event
//
// The integers are fields of a [State]. Memory packs them into one word of 64 bits, except for logs,
// windows with counts that are too large, and buckets with [Quota.Settles].
//
// An event may cost more than one unit ([Limiter.AllowN]). A cost above what the limit ever allows is
// refused with RetryAfter [Never]. [Limiter.Look] asks without taking.
//
// [NewSemaphore] limits how many events are in flight at once, whatever their rate.
//
// If the cost of an event is known only afterwards, [Limiter.Reserve] takes an estimate and
// [Hold.Settle] corrects it. Unused units are refunded. Missing units become a debt, and later events
// are refused until it is paid. [Limiter.Wait] waits until an event fits, and [All] combines several
// limits.
//
// # Answers
//
// A [Decision] means the same whatever the algorithm and wherever the counters are. RetryAfter is
// exact: an event refused now is refused until then and admitted from then on, if no other event comes
// first. A refusal uses up nothing, so asking too often never makes the wait longer. If N units are
// free and M > N events of one unit come at once, exactly N are admitted. Time is counted in whole
// microseconds. If the clock steps back by up to a period of the limit, no units become free until it
// has caught up. If it steps by more, back or forward, one more burst is admitted at most.
//
// The long-run rate is never above the limit's. For windows and the log it is exactly the limit's, and
// for buckets too if Events/Per is a fraction of small integers, such as 100 per minute. Other buckets
// that refill within a month are at most a millionth slower, or a thousandth at rates above 1,000 per
// second.
//
// # Stores
//
// A [Store] holds the counters. [Memory], the default, keeps them in the process. A store takes a batch
// of charges, for several limits, entirely or not at all.
//
// # For authors of stores
//
// Package store says how to write a [Store]. From this package a store needs [State], [Entry] and the methods
// of [Quota] over them: [Quota.Take], [Quota.Late], [Quota.Describe], [Quota.Settle], [Quota.Undo], and
// [Quota.Numbers] for the algorithms in Lua.
package limiter
