// Package failover keeps decisions coming while a store's server is down:
//
//	store, err := failover.New(inner, failover.Options{Replicas: 4})
//
// Whatever happens to the server, a decision waits for the server's answer no longer than
// Options.Deadline. Once the server is known to be down, a decision costs next to nothing and follows
// the [limiter.Outage] policy of its rule. redisstore comes wrapped in this package. Wrap other stores
// that have a server yourself.
//
// # An outage
//
// A call fails if the store returns an error or the deadline passes. The policies decide a failed call
// at once. After Options.Failures failed calls in a row, they decide all calls, without asking the
// server. Calls that fail at the same time count once, so one short stall under load is no outage. A
// call whose client has left counts as neither failure nor success, and nor does an invalid batch.
//
// The first failure after a minute without one is logged at once (weir-call-failed), with what the
// store finds out about its server. So a wrong address shows even in a process that makes four calls a
// day. A server that cannot do what the store needs is a wrong configuration and no outage. The
// policies decide then too, and the log says so once (weir-store-unusable).
//
// If a batch has a Closed rule, its decision is an error that wraps [ErrUnavailable]. Otherwise this
// process counts Local rules, and Open rules pass. Such decisions are Degraded. Decisions of Open rules
// have no numbers ([limiter.Decision.Counted]), and decisions of Local rules have the numbers of the
// process's share of the limit.
//
// If the store has several servers, each server has its own breaker. Policies decide only on the
// charges of servers that are down, and the other servers go on counting. A rule on a server that is up
// admits its limit, whatever happens to other servers. A batch is still taken entirely or not at all.
// This needs a store whose errors say which of its servers failed ([New]), as redisstore's do.
//
// # The share of a process
//
// Local rules count against the limit divided by Options.Replicas, so all processes together admit the
// limit. A bucket keeps its burst and refills more slowly. A window or a log admits fewer events, or
// one event in a longer period if there are fewer events than replicas. Every share admits at least one
// event in 366 days. An event that costs more than the share is refused with [limiter.Never], even if
// the whole limit has room for it.
//
// A share of at most 10 events is counted exactly, like every limit of at most 10 events
// ([limiter.SlidingWindow]), even if the whole limit is not.
//
// Slots ([limiter.NewConcurrency]) are divided too, and each process has at least one, in addition to
// the slots acquired before the outage. A slot is released where it was acquired: in this process, or
// on the server, when the server is back.
//
// # The return
//
// The first batch after Options.ProbeEvery starts a probe in the background, and the policies still
// decide that batch. The probe looks at the batch's keys on the server and charges another key, because
// a server that can be read but not written is still down. The first probe that succeeds ends the
// outage.
//
// The server's counters do not learn what this process counted. So until a window that overlaps the
// outage has ended, or a bucket has refilled, a key may get units from the server and from this
// process. If Replicas is the number of processes, Local admits at most this much more than the limit:
// one burst in the outage, one burst that refilled on the server meanwhile, and what the rate brings
// until each process has found that the server is back.
//
// Goroutines run only for probes and for Options.OnDegraded, and there is nothing to close. Without
// requests there is no probe.
package failover
