package failover

import (
	"context"
	"time"

	"github.com/weirgo/weir/limiter"
)

// What the inner store of a [Store] may implement besides.

// A Bounded store ends its calls by itself. Other stores get a context with the deadline, and must
// return when it ends.
type Bounded interface {
	// Within returns the same store; its calls fail when the server has given no answer
	// for that time. A store with outage policies of its own returns itself without them.
	// It is not looked for in what a store wraps, as that would leave the wrapper out.
	Within(deadline time.Duration) limiter.Store
}

// Servers is a store that knows its servers. Any other store is taken to have one, and a probe charges
// a quota of its own there.
type Servers interface {
	// Part is the number of the server that holds c's counter, from 0 to 63. Servers fail
	// independently.
	Part(c *limiter.Charge) int

	// TryWrite writes something that does not last to the servers of these charges, for probes.
	TryWrite(ctx context.Context, charges []limiter.Charge) error

	// Diagnose names the server of that number, and returns err, which a call to it failed
	// with, together with what more can be found out: whether the server can be reached, if it
	// gave no answer. It may take a second. With a nil err it only names the server.
	Diagnose(part int, err error) (server string, _ error)
}
