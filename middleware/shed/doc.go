// Package shed keeps an overloaded service at work. It measures how many requests in flight the service
// can bear. Further requests wait in a short queue. A request that finds no slot in time is refused,
// the least important first.
//
//	limits, err := middleware.New(middleware.Config{
//		Overload: shed.Must(shed.New(shed.Options{Priority: []string{"premium", "free"}})),
//		Rules:    ...
//	})
//
// There is no capacity to configure: the limit follows measurements. Without overload nothing is
// refused. docs/overload.md has figures.
//
// A request acquires its slot after the rules have let it pass, and holds it until its handler returns.
// Handlers do not see whether a request waited. A refused request is answered 503 with a Retry-After of
// 1 to 10 seconds, at random, and uses none of its quota.
//
// # What it measures
//
// Latency begins when a request is admitted. It is the mean of the fastest three quarters of the
// requests. If most requests need a resource, such as processors or connections to a database, the
// limiter sees the queue for it. If routes depend on different resources, [Options.PerRoute] gives each
// route its own limit.
//
// A stream is an answer that is flushed and takes far longer than others, or a hijacked connection.
// Streams do not count, because a limit cannot speed them up. A request does not count either while its
// handler waits for a slow client, to read the body or to write the answer. A handler that waits
// without flushing, such as a long poll, looks like a handler that hangs: it holds its slot, unless
// [Options.Exempt] matches it.
//
// Each process has its own limit. If processes share a resource, such as a database, each measures its
// own share of it.
package shed
