package failover

import (
	"context"
	"time"

	"github.com/weirgo/weir/limiter"
)

// What the inner store of a [Store] may implement besides.

// A Bounded store ends its calls itself. Other stores get a context with the deadline, and must
// return when it ends.
type Bounded interface {
	// Within returns the same store, whose calls fail if the server gives no answer within the
	// deadline. A store that applies outage policies, as redisstore does, returns a store without them.
	// New asks only the store that it is given, not a store inside it, so that a wrapper is not
	// bypassed.
	Within(deadline time.Duration) limiter.Store
}

// Servers is a store with several servers that can fail one by one. A store without these methods
// counts as one server, and probes charge a quota that exists only for them.
type Servers interface {
	// Part returns the number of the server that holds c's counter, from 0 to 63. Servers fail
	// independently.
	Part(c *limiter.Charge) int

	// TryWrite writes something short-lived to the servers of these charges, for probes.
	TryWrite(ctx context.Context, charges []limiter.Charge) error

	// Diagnose returns the name of the server with number part. It also returns err, which a call to
	// that server returned, with details: whether a server that gave no answer can be reached, for
	// example.
	Diagnose(part int, err error) (server string, _ error)
}

// oneServer is a store without Servers.
type oneServer struct{ limiter.Store }

func (oneServer) Part(*limiter.Charge) int                  { return 0 }
func (oneServer) Diagnose(_ int, err error) (string, error) { return "", err }

// TryWrite charges another key.
func (s oneServer) TryWrite(ctx context.Context, _ []limiter.Charge) error {
	return s.Decide(ctx, []limiter.Charge{{Quota: probeQuota, Cost: 1}}, make([]limiter.Decision, 1))
}

// probeQuota is what probes charge.
var probeQuota = func() *limiter.Quota {
	q, err := limiter.NewQuota("weir: probe of failover", "", limiter.PerSecond(1_000_000))
	if err != nil {
		panic(err)
	}
	return q
}()
