// Package leasestore decides in memory, and keeps many processes within one limit through the
// Redis that they share. Use it where a round trip for every decision is too much:
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
// A process takes units of a key ahead: as many as requests took in 75 milliseconds, or more
// while half of the limit is free (a third of Ahead, at most 20). It spends them by itself and
// asks for more before it runs out, on a tick of 10 milliseconds and for all keys at once. It returns
// units that it does not use: after 2.5 seconds without requests, at once if other processes run
// short, and all of them when the Store is closed.
//
// Redis charges a unit when it grants it, and a process spends only granted units. So over a whole run
// admissions never exceed burst + rate x time, or a window's events, whatever happens to processes.
// For a moment, a bucket can exceed its burst by the units that processes hold: units refill while
// granted units are not spent yet. Redis knows how much each process holds, and grants no more than
// Ahead to all processes together. Units of a window are spent in that window, and exceed nothing.
//
// If a process dies, the units that it held count as
// spent: a bucket's units refill within the time in which Ahead refills, a window's units return
// with the window, and the process's share of Ahead returns after five seconds.
//
// Redis decides each time on a key that is asked for at most once in five seconds, and on an event that
// costs more than the units in hand. Refusals are remembered as redisstore says, and have the exact
// RetryAfter. Remaining is as of the last settlement, less what this process has spent since.
//
// # What is decided exactly
//
// Redis decides on some limits each time, as redisstore does, even if Options.Rules names the
// rule:
//
//   - limits of which Ahead would be fewer than two units, such as "5 per minute" on a login
//   - limits of at most 10 events without an algorithm, because these are exact
//   - slots
//   - all limits of a rule that has several, because they are taken together
//
// So changing a limit from 12 to 10, or adding a second limit to a rule, is no error.
//
// LeakyBucket and SlidingLog cannot be leased. A queue has one order, in which units taken ahead would
// leave gaps. A log never admits more than N in any period. If Options.Rules names a rule with
// such a limit, limiter.New and the middleware's New return an error.
//
// # What an event really cost
//
// An event is settled where it was counted ([Store.Settle]). The units in hand pay a debt first, because
// they are charged already. Redis charges the rest, in the background. Refunds return to Redis, as far as
// the grant that they were spent from still counts. While Redis is down, both fail with an error. Events
// that an outage policy counted are settled where it counted them ([failover.Store.Settle]).
//
// A debt is used without asking, so it comes on top of the bounds below.
//
// # How much more than the limit can be admitted
//
// For a limit of B at once, of which A may be ahead, the table says how much more than B + rate x time
// can be admitted in any interval. Add a row for each time that it happens in the interval, or in the
// five seconds before if units are still held. For a window limit, it is how much more a window
// admits, and A is 0.
//
//	nothing happens                          A
//	Redis forgets: FLUSHALL, a restart       B
//	without persistence
//	a process is killed, or its Close fails  0
//	Redis is away for one process that       (B + rate x T) / Replicas; one event at least
//	decides by policy Local for a time T
//	by policy Open, Closed                   all that asks, nothing
//
// A is in the first row because units may have been granted before the interval. Over a whole run,
// without the other rows, the limit is never exceeded, however many processes are killed.
//
// If Replicas is the number of processes, an outage that all processes see admits two bursts: one
// locally, where the rate is shared, and one from Redis, which has refilled or was restarted empty.
// It also admits what the rate brings until all processes have found that Redis is back, at most a probe
// later (failover.Options.ProbeEvery). Set Replicas: with 1, each process admits the whole limit. A
// replica that is promoted forgets what had not been replicated, at most everything.
//
// # Outages
//
// While Redis gives no answer, each rule's [limiter.Outage] decides, as redisstore.Options say, once
// the units in hand are spent or have expired. A process can start while Redis is down.
//
// A process measures time by its monotonic clock, and Redis by its own, so setting a process's clock has
// no effect. If a process is suspended and its monotonic clock goes on, its leases have expired when
// it resumes.
//
// # What it takes
//
// The Store has one goroutine, which sleeps while there are no requests. [Store.Close] ends it. Each key in
// use takes some 300 bytes, up to Options.MaxKeys. In Redis, a leased counter has a second key for
// five seconds, with 24 bytes for each process that holds units. The ACL is redisstore's.
//
// In a Cluster and in a Ring each key is settled by a script of its own. A node that hangs holds up the
// settlements of all keys until the client gives it up. Set ContextTimeoutEnabled on the client, which
// bounds that to a quarter of a second.
package leasestore
