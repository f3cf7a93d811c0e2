// Package failover keeps decisions coming while a store's server is down:
//
//	store, err := failover.New(inner, failover.Options{Replicas: 4})
//
// Whatever happens to the server, a decision waits for an answer of the server no longer than
// Options.Deadline. It may wait for a second one after failures: for a probe, or while it charges what
// this process counted (see The return). Once the server is known to be down, a decision costs next to
// nothing and follows the [limiter.Outage] policy of its rule. redisstore comes wrapped in this package.
// Wrap other stores that have a server yourself.
//
// # An outage
//
// A call fails if the store returns an error or the deadline passes. The policies decide a failed call
// at once. After Options.Failures failed calls in a row, they decide all calls, without asking the
// server. Calls that fail at the same time count once, so one short stall under load is no outage. A
// call whose client has left counts as neither failure nor success, and nor does an invalid batch.
//
// A server is flaky if five calls fail in a minute (fewer if Options.Failures is less), not at the same
// time, and at least one call in a hundred, or if the policies begin to decide all calls four times in a
// minute. Options.OnDegraded then reports one outage, which ends when no call has failed for a minute.
// The server still decides the calls that it answers.
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
// This needs a store whose errors say which of its servers failed ([New]), as redisstore's do. One
// outage is reported, which ends when no server is down, or when no call has failed for a minute.
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
// The first batch after Options.ProbeEvery starts a probe in the background. If the batch has a Closed
// rule, it waits for the probe, no longer than for any call, and the server decides it if the probe
// succeeds. The policies decide other batches meanwhile. The probe looks at the batch's keys on the
// server and charges another key, because a server that can be read but not written is still down. The
// first probe that succeeds ends the outage.
//
// What this process counted for a key is owed to the server. The debt is charged with the key's next
// events that the server allows ([limiter.Quota.Settle]): later events are then refused until it is paid.
// These events count on the key's share, too, so that a process in debt admits no more than its share. An
// event whose answer was lost may be charged twice. A refund that comes after the event was charged does
// not reach the server. A key owes at most twice its burst, or twice the events of a window, and 65,536
// keys can owe; the rest is forgiven. A key whose share refused nothing does not owe what the share has
// refilled, beyond one burst. After a minute a key owes at most what its share still counts.
//
// # How much more than the limit is admitted
//
// B is the limit's burst, or the number of events of a window. A Local rule admits in any minute, in
// addition to its limit, at most:
//
//	the server fails now and then          B / Replicas for each process that sees it,
//	                                       and 5% of the limit
//	all processes lose the server          B / Replicas for each process, and what the rate brings
//	                                       in Options.ProbeEvery
//	one process loses the server for T     (B + rate x T) / Replicas; one event at least
//	and the other processes do not
//
// So set Replicas: with 1, each process admits the whole limit. An Open rule admits the limit and every
// event whose call failed, without bound. A Closed rule admits its limit and nothing more: each failed
// call is an error, and its event may have been charged.
//
// Goroutines run only for probes and for Options.OnDegraded, and there is nothing to close. Without
// requests there is no probe.
package failover
