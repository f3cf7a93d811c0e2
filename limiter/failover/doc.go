// Package failover keeps decisions coming while a store's server is down:
//
//	store, err := failover.New(inner, failover.Options{Replicas: 4})
//
// A decision waits for the server no longer than Options.Deadline, and a second time after failures: for a
// probe, or to charge a debt. While the server is known to be down, a decision costs next to nothing and
// follows the [limiter.Outage] policy of its rule. redisstore comes wrapped in this package. Wrap other
// stores that have a server yourself.
//
// # An outage
//
// A call fails if the store returns an error or the deadline passes. Policies decide at once on the charges
// that the error is about, and the store on the other charges of the batch. All are taken or none. A call
// whose client has left counts as neither failure nor success, and nor does an invalid batch. If a FailClosed
// rule is without its server, the decision is an error that wraps [ErrUnavailable]. FailLocal rules count in
// this process, and FailOpen rules pass, without numbers ([limiter.Decision.Counted]).
//
// Each server of the store has a circuit breaker. After Options.Failures failed calls in a row it opens:
// policies decide on all charges of that server, without asking it. The first batch after
// Options.ProbeEvery starts a probe in the background, which looks at the batch's keys and writes a key of
// its own: a server that can be read but not written is still down. A batch with a FailClosed rule waits for
// the probe. A successful probe closes the breaker. Without requests there is no probe.
//
// An outage begins with the first failed call, and ends with the first answer after a minute without a
// failed call. In each outage the log has the first failure (weir-call-failed), once that a server cannot
// do what the store needs (weir-store-unusable), once that a breaker opened (weir-degraded) and the end
// (weir-recovered). Options.OnDegraded replaces the last two.
//
// # The share of a process, and debts
//
// FailLocal rules count against the limit divided by Options.Replicas. A bucket keeps its burst's share and
// refills more slowly. A window or a log admits fewer events, or one event in a longer period. Every share
// admits at least one event in 366 days. An event that costs more than the share is refused with
// [limiter.Never]. Slots ([limiter.NewConcurrency]) are divided too: each process has at least one, besides
// those acquired before the outage.
//
// A key owes the server what this process counted for it, at most twice its burst or the events of a window,
// less what has drained since. The debt is charged ([limiter.Quota.Settle]) with the key's next events that
// the server allows, which count on the key's share, too. A client that no share has refused is charged for
// a window only when the limit needs it: as soon as the shares of all processes no longer fit into what
// remains. An event whose answer was lost may be charged twice. If 65,536 keys owe, a further one displaces
// any of them, which is forgiven ([Stats].Forgiven).
//
// B is the limit's burst, or the number of events of a window. In any minute a FailLocal rule admits, in
// addition to its limit, at most this much, unless debts were forgiven:
//
//	the server fails now and then          B / Replicas for each process that sees it,
//	                                       and 5% of the limit
//	all processes lose the server          B / Replicas for each process, and what the rate brings
//	                                       in Options.ProbeEvery
//	one process loses the server for T     (B + rate x T) / Replicas; one event at least
//	and the other processes do not
//
// So set Replicas: with 1, each process admits the whole limit. A FailOpen rule admits the limit and every
// event whose call failed, without bound. A FailClosed rule admits its limit and nothing more.
package failover
