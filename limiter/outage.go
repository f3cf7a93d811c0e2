package limiter

import (
	"fmt"
	"strings"

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

// MarshalText writes what String returns. An unknown value is an error.
func (o Outage) MarshalText() ([]byte, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return []byte(o.String()), nil
}

// UnmarshalText reads what MarshalText writes, in upper or lower case.
func (o *Outage) UnmarshalText(text []byte) error {
	for i, name := range outages {
		if strings.EqualFold(name, string(text)) {
			*o = Outage(i)
			return nil
		}
	}
	return invalid.New("limiter", "outage policy %q is not one of %s", shorten(string(text)), strings.Join(outages[:], ", "))
}
