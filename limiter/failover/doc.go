// Package failover keeps decisions coming while a store's server is gone:
//
//	store := failover.New(inner, failover.Options{Replicas: 4})
//
// Whatever happens to the server, a decision comes within the deadline, costs next to
// nothing once it is known that the server is down, and follows the [limiter.Outage]
// policy of each rule. redisstore is wrapped like this already; other stores whose
// counters are elsewhere are wrapped by hand.
//
// # An outage
//
// A call fails if the store returns an error, be it because the deadline has passed.
// It is decided by policy at once, and after Options.Failures in a row so is all that
// follows, without asking the server. Calls that fail at the same time count once, so that
// one short stall under load is no outage. A client that goes away, and a batch that makes
// no sense, are no failures, and no successes either.
//
// The policy is one for a batch, as all or nothing is promised of it. A Closed rule in
// it makes it an error that wraps [ErrUnavailable]. Otherwise Local rules are counted
// in this process, together, and Open ones pass. Such decisions are marked Degraded; those of
// Open rules have no numbers ([limiter.Decision.Counted]), and those of Local ones the share's.
//
// # The share of a process
//
// Local counts against the limit divided by Options.Replicas, so that all processes
// together admit what the limit says. A bucket keeps its events and refills more slowly;
// a window or log admits fewer events, or one in a longer period where there are fewer
// events than replicas. Each admits one event at least, once in 366 days if it has to be
// that rare, and an event that costs more than the share is refused, with [limiter.Never],
// though the whole limit may have room for it.
//
// # The return
//
// After Options.ProbeEvery the next batch is decided by policy still, and tried on the
// server beside that, with its costs, so that a server which can be read but not written
// stays known as down. The first such probe that succeeds ends the outage; one that is
// refused, which writes nothing, if the server had given no answer at all. What was
// counted locally is not added to the server's counters: for as long as a window or a
// bucket reaches back, a key may get what it got from both.
//
// There is no goroutine but for a probe and for telling about changes, and nothing to
// close. Without requests there is no probe.
package failover
