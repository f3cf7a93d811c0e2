// Package failover keeps decisions coming while a store's server is gone:
//
//	store, err := failover.New(inner, failover.Options{Replicas: 4})
//
// Whatever happens to the server, a decision waits for its answer no longer than the
// deadline (and for a connection as long as the store says, if it keeps deadlines by itself as
// redisstore does), costs next to nothing once it is known that the server is down, and follows the
// [limiter.Outage] policy of each rule. redisstore is wrapped like this already; other stores with
// counters elsewhere are wrapped by hand.
//
// # An outage
//
// A call fails if the store returns an error, be it because the deadline has passed.
// It is decided by policy at once, and after Options.Failures in a row so is all that
// follows, without asking the server. Calls that fail at the same time count once, so that
// one short stall under load is no outage. A client that goes away, and a batch that makes
// no sense, are no failures, and no successes either.
//
// The first failure after a minute without one is logged at once (weir-call-failed), with
// what the store finds out about its server: a wrong address shows in a process that makes
// four calls a day too. A server that cannot do what the store needs, however often it is
// asked, is a wrong configuration and no outage: the policies decide as well, and the log
// says so once (weir-store-unusable). Both are logged beside Options.OnDegraded.
//
// A Closed rule in a batch makes it an error that wraps [ErrUnavailable]. Otherwise Local
// rules are counted in this process, and Open ones pass. Such decisions are marked Degraded;
// those of Open rules have no numbers ([limiter.Decision.Counted]), and those of Local ones
// the share's.
//
// Where the store has several servers, each has its own breaker, and policies decide only on
// the charges of those that are down. Those that are up go on counting the others, and a
// batch is still taken as a whole or not at all. So a rule on a server that is up admits its
// limit, whatever becomes of other servers, if the store says which of them failed, as
// redisstore does. Of a store that does not, and while the breakers are not open yet, all
// servers of a batch are taken to have failed.
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
// A share of at most 10 events is exact, like any such limit, also where the whole one is not.
//
// How many events may be under way ([limiter.NewConcurrency]) is divided too, and at least one,
// beside those that began before the outage. A slot is released where it was acquired: in this process,
// or on the server, which the store tells when it is back.
//
// # What an event really cost
//
// An event is settled where it was counted. Units that were counted locally are refunded and owed
// there, during the outage and after it; what is owed is then at most a share, and the rest
// is forgiven. For events of Open rules nothing was counted, and nothing is corrected. What the
// server counted stays as it is while the server is down, and the error says so: a reservation
// that was too large drains with its period, and one that was too small stays too small.
//
// # The return
//
// After Options.ProbeEvery the next batch is decided by policy still. Beside that its keys are
// looked at on the server, and something else is written there, so that a server which can be read
// but not written stays known as down. The first such probe that succeeds ends the outage.
//
// What was counted locally is not added to the server's counters: for as long as a window
// or a bucket reaches back, a key may get what it got from both. With Replicas set to the
// number of processes, Local thus admits one burst more than the limit in an outage, and
// what refilled in the server's counters meanwhile, at most a burst, once it is back; and what the
// rate brings until each process has found the server's return.
//
// There is no goroutine but for a probe and for telling about changes, and nothing to close.
// Without requests there is no probe.
package failover
