package limiter

import (
	"fmt"

	"github.com/weirgo/weir/internal/invalid"
)

// An Outage says how a rule decides while the server that holds its counters gives no answer.
// It matters for stores with a server, such as Redis's. Package failover applies it.
type Outage uint8

const (
	// FailLocal, the default, counts in this process during the outage, against the limit
	// divided by the number of processes that share the store.
	FailLocal Outage = iota

	// FailOpen lets events pass uncounted: such a Decision has a Limit of 0.
	FailOpen

	// FailClosed lets no event pass: the store returns an error. The middleware answers with
	// 503, because the client has not used up its quota.
	FailClosed
)

var outages = [...]string{FailLocal: "local", FailOpen: "open", FailClosed: "closed"}

// String is "local", "open" or "closed".
func (o Outage) String() string {
	if int(o) < len(outages) {
		return outages[o]
	}
	return fmt.Sprintf("Outage(%d)", uint8(o))
}

// Validate returns an error for an unknown value.
func (o Outage) Validate() error {
	if int(o) >= len(outages) {
		return invalid.New("limiter", "OnOutage is %d: it must be FailLocal, FailOpen or FailClosed", uint8(o))
	}
	return nil
}
