// Package leasestore decides in memory, and keeps many processes within one limit through the Redis
// that they share. Use it where a round trip for every decision is too much:
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
// A process takes units of a key in advance: as many as its requests use in 75 milliseconds. While at
// least half of the limit is free, it takes at least 20 units, or a third of [Options].Ahead, or an
// equal share of Ahead with the other processes that hold units, whichever is least. It spends the
// units without asking Redis. Every 10 milliseconds it asks for more units for all keys that need them,
// before they run out. It returns units that it does not use: after 2.5 seconds without requests, at
// once if other processes run short, and all of them when the Store is closed.
//
// Redis charges a unit when it grants it, and a process spends only granted units. So over a whole run
// a bucket never admits more than burst + rate x time, and a window never more than its events, even if
// processes die. For a moment, a bucket can exceed its burst by the units that processes hold, because
// the bucket refills before they are spent. Redis knows how many units each process holds, and grants
// at most Ahead to all processes together, however many they are. If the others hold all of Ahead, Redis
// decides each request of this process, and [Stats].Crowded counts up. A unit of a window can be spent
// only in that window.
//
// If a process dies, the units that it held count as spent: a bucket refills them within the time that
// it takes to refill Ahead, a window's units are free again when the next window begins, and the
// process's share of Ahead returns after five seconds.
//
// Redis makes every decision on a key that has at most one event in five seconds. It also decides on an
// event that costs more than the units that the process holds, and on looks, which cost 0. Refusals are
// remembered as redisstore says, and have the exact RetryAfter. Remaining is as of the last refill,
// less what this process has spent since.
//
// # What is decided exactly
//
// On some limits Redis makes every decision, as in redisstore, even if Options.Rules names the rule:
//
//   - a LeakyBucket, because a queue has one order, in which units taken ahead would leave gaps
//   - a SlidingLog, and limits of at most 10 events without an algorithm, because these are exact
//   - limits whose Ahead comes to fewer than two units, such as "5 per minute" on a login
//   - slots of AtOnce
//   - all limits of a rule that has several, because they are taken together
//
// So changing a limit from 12 to 10, or adding a second limit to a rule, is no error.
//
// # What an event really cost
//
// An event is settled where it was counted ([Store.Settle]). Redis charges debts and refunds units in
// the background. Units whose grant no longer counts are not refunded. While Redis is down, settling
// returns an error. Events that an outage policy counted are settled in this process
// ([failover.Store.Settle]).
//
// A debt is charged even if the limit has no room, so it adds to the bounds below.
//
// # How much more than the limit can be admitted
//
// B is the limit's burst, and A is how many of its units processes may hold (Ahead). The table says how
// much more than B + rate x time can be admitted in any interval. Add a row's amount each time its
// event happens in the interval, or in the five seconds before it. For a window limit, it is how much
// more a window admits, and A is 0.
//
//	nothing happens                          A
//	Redis forgets: FLUSHALL, a restart       B
//	without persistence
//	Redis's clock steps, back or forward     B
//	a process is killed, or its Close fails  0
//	one process cannot reach Redis for T,    (B + rate x T) / Replicas; one event at least
//	and decides by policy Local
//	by policy Open                           every request
//	by policy Closed                         nothing
//
// The first row is A because units may have been granted before the interval. Over a whole run the
// limit is never exceeded unless an event of the other rows happens, however many processes are killed.
//
// If Replicas is the number of processes, an outage that all processes see admits one burst: each
// process its share of the limit, which Redis charges when it is back. Until all processes have noticed
// that, they also admit their shares of the rate. That takes at most a probe's interval
// (failover.Options.ProbeEvery). Set Replicas: with 1, each process admits the whole limit. A replica
// that is promoted forgets what had not been replicated, at most everything.
//
// # Outages
//
// While Redis gives no answer, a process first spends the units that it holds. When they are spent or
// have expired, each rule's [limiter.Outage] decides, as in redisstore. A process can start while Redis
// is down.
//
// A process measures time by its monotonic clock, and Redis by its own, so setting a process's clock
// has no effect. If a process is suspended and its monotonic clock goes on, its leases have expired
// when it resumes.
//
// # What it takes
//
// The Store has one goroutine, which sleeps while there are no requests. [Store.Close] ends it. Each
// key in use takes some 300 bytes, up to Options.MaxKeys. In Redis, a leased counter has a second key
// for five seconds, with 24 bytes for each process that holds units. The Redis user needs the same ACL
// as for redisstore.
//
// In a Cluster each key is refilled by a call of its own. A node that hangs delays the refills of all
// keys until the client's timeout. Set ContextTimeoutEnabled on the client, which bounds the delay to a
// quarter of a second.
package leasestore
