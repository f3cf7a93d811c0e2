// Package shed keeps a service at work when more is asked of it than it can do: it finds how
// many requests at once the service does best with, has the others wait for a moment, and
// refuses those that it has no room for, the least important ones first.
//
//	limits, err := middleware.New(middleware.Config{
//		Overload: shed.Must(shed.New(shed.Options{Priority: []string{"premium", "free"}})),
//		Rules:    ...
//	})
//
// There is nothing to configure of capacity: the limit follows what is measured, as
// docs/overload.md tells with figures. Without overload it refuses nothing.
//
// A request takes its place when the rules have let it pass, and holds it until its handler
// returns. One that waits and one that is admitted at once are the same to handlers. One that
// is refused is answered 503 with Retry-After, from 1 to 10 seconds at random, and spends none
// of its quota.
//
// # What it measures
//
// Latency counts from when a request is admitted, and of each hundred requests the fastest 75
// count. So it sees the queue in front of whatever the service is short of, such as connections
// to a database or processors, if most requests of the limit go through it; where routes depend
// on different things, [Options.PerRoute] gives each its own. An answer that is flushed and goes
// on for far longer than others, or whose connection is taken over, is a stream: it is no
// longer counted, as it is no work that a limit could speed up. Nor is a request while it waits for
// a client that has kept it waiting for as long: to send its body, or to take its answer. Handlers that wait without
// having flushed anything, such as long polls, do not differ from ones that hang: they hold
// their place, unless [Options.Exempt] names them.
//
// A limit is of one process. It needs no other to agree: each finds its part of what they share.
package shed
