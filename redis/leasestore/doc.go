// Package leasestore decides in memory, and keeps many processes within one limit through
// the Redis that they share. Where a round trip for every decision is too much:
//
//	store, err := leasestore.New(rdb, leasestore.Options{})
//	...
//	defer store.Close()
//	limits, err := middleware.New(middleware.Config{Store: store, Rules: rules})
//
// or for some rules only, by name:
//
//	leasestore.Options{Rules: []string{"global"}}
//
// # How it works
//
// A process takes units of a key ahead: what it was asked for in 75 milliseconds, or some more
// (a third of Ahead, at most 20) while half of the limit is free. It spends them by itself,
// asks for more before it runs out, on a tick of 10 milliseconds and for all keys at once, and
// returns what it does not use: after half of five seconds without requests, at once what
// others are short of, and all of it when the Store is closed.
//
// Redis charges a unit when it grants it, and no unit is spent that it has not granted. So
// what Redis remembers holds: whatever happens to processes, admissions over a whole run do
// not exceed burst + rate x time, or a window's events. At a moment, units that were granted
// before can be spent beside those that have come back since, so a bucket's burst can be
// exceeded by what is held. Redis knows which process holds how much, and grants no more than Ahead to
// all processes together. Units of a window are spent in that window, and exceed nothing.
//
// What is lost is what is in the wrong hands: at most Ahead. A process that dies has spent
// what it held, as far as others can tell: a bucket's units come back within the time in which
// Ahead of it refills, a window's with the window, and its share of Ahead after five seconds.
//
// Keys that are asked for once in five seconds, or less, are decided by Redis each time. So
// is what cannot be paid for with what is in hand; refusals are remembered as redisstore says, and
// have the exact RetryAfter.
// Remaining is as of the last settlement, less what this process has spent since.
//
// # What is decided exactly
//
// Redis decides on some limits each time, as redisstore does, also where Options.Rules names the
// rule: those of which Ahead would come to fewer than two units, such as "5 per minute" on a login;
// those of at most 10 events that say no algorithm, as these are exact; slots; and all of a rule
// that has several limits, which are taken together. So a limit that is changed from 12 to 10, or a
// second one for its rule, is no error.
//
// LeakyBucket and SlidingLog cannot be leased: a queue has one order, in which units taken ahead
// would leave gaps, and a log is for never more than N in any period. If Options.Rules names a
// rule with such a limit, limiter.New and the middleware's New refuse it with the reason.
//
// # What an event really cost
//
// What is settled ([Store.Settle]), refunded or owed goes to where the event was counted. An
// event owes the units in hand first, as those are charged already, and Redis, in the background,
// the rest. What is refunded returns to Redis, to what is left of the grant that it was spent from.
// While Redis is down neither can be told, and the error says so. Events that an outage policy
// counted are corrected where it did ([failover.Store.Settle]).
//
// What is owed is used without asking, so it is what can be used beside the bounds below.
//
// # What can be admitted too much
//
// Of a limit of B at once, of which A may be ahead, this much more than B + rate x time can be
// admitted in any interval. The rows add up, each as often as it happens in the interval or, for
// what is still held, in the five seconds before it. Of a window limit it is so many more in the
// window, and A is 0.
//
//	nothing happens                          A
//	Redis forgets: FLUSHALL, a restart       B
//	without persistence
//	a process is killed, or its Close fails  0
//	Redis is away for one process that       (B + rate x T) / Replicas; one event at least
//	decides by policy Local for a time T
//	by policy Open, Closed                   all that asks, nothing
//
// A is in the first row only because of what was granted before the interval: over a whole run
// nothing too much is admitted while nothing happens, however many processes are killed.
//
// With Replicas set to the number of processes, an outage that all processes see thus admits two
// bursts: one locally, where the rate is shared, and from Redis, which has refilled or was restarted
// empty, another; and what the rate brings until all have heard of its return, at most a probe
// (failover.Options.ProbeEvery) later. With Replicas left at 1 each process admits the whole
// limit: set it. A replica that is promoted forgets what it had not been sent, at most as if
// all were forgotten.
//
// # Outages
//
// While Redis gives no answer each rule's [limiter.Outage] decides, as redisstore.Options say, when
// what is in hand is used up or has expired. A process begins while Redis is down.
//
// Time in a process is its monotonic clock, beside which Redis's own decides: setting a
// process's clock has no effect. One that is suspended finds its leases expired if its
// monotonic clock went on meanwhile.
//
// # What it takes
//
// One goroutine, which sleeps while there are no requests; [Store.Close] ends it. Some 300 bytes for
// each key that is in use, up to Options.MaxKeys. In Redis a second key beside a counter that
// is leased, with 24 bytes for each process that holds units, for five seconds. The ACL is
// redisstore's.
//
// In a Cluster and in a Ring each key is settled by a script of its own, and a node that hangs holds up the settlements of all until the client
// gives it up: set ContextTimeoutEnabled on the client, which bounds that to a quarter of a
// second.
package leasestore
