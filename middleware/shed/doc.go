// Package shed keeps an overloaded service at work. It finds how many requests in flight the service does
// best with, queues the others for a moment, and refuses requests that it has no room for, the least
// important first.
//
//	limits, err := middleware.New(middleware.Config{
//		Overload: shed.Must(shed.New(shed.Options{Priority: []string{"premium", "free"}})),
//		Rules:    ...
//	})
//
// There is no capacity to configure: the limit follows measurements, as docs/overload.md shows with
// figures. Without overload nothing is refused.
//
// A request acquires its slot after the rules have let it pass, and holds it until its handler
// returns. Handlers do not see whether a request waited. A refused request is answered 503 with a
// Retry-After of 1 to 10 seconds, at random, and uses none of its quota.
//
// # What it measures
//
// Latency begins when a request is admitted. Of each hundred requests the fastest 75 count. So the
// limiter sees the queue for whatever the service is short of, such as processors or connections to a
// database, if most requests of the limit need it. If routes depend on different things,
// [Options.PerRoute] gives each route its own limit.
//
// A stream is an answer that is flushed and takes far longer than others, or whose connection is
// hijacked. It is not counted, because a limit cannot speed it up. A request is not counted either while
// a slow client sends its body or receives its answer. A handler that waits without flushing, such as a
// long poll, looks like a handler that hangs: it holds its slot, unless [Options.Exempt] matches it.
//
// Each process has a limit of its own, and finds its share of what the processes use together.
package shed
