package limiter

import (
	"fmt"
	"strings"

	"github.com/weirgo/weir/internal/invalid"
)

// An Outage says what becomes of a rule's events while the server that holds its
// counters gives no answer. It concerns stores that have one, such as Redis's; package
// failover carries it out.
type Outage uint8

const (
	// FailLocal, the default, counts in this process meanwhile, against the limit divided by
	// the number of processes that share the store.
	FailLocal Outage = iota

	// FailOpen lets events pass uncounted: such a Decision has a Limit of 0.
	FailOpen

	// FailClosed lets none pass: the store returns an error, which the middleware answers
	// with 503, as it is not the client's quota that ran out.
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

// Validate returns an error for a value that is none of the three.
func (o Outage) Validate() error {
	if int(o) >= len(outages) {
		return invalid.New("limiter", "OnOutage is %d: it must be FailLocal, FailOpen or FailClosed", uint8(o))
	}
	return nil
}

// MarshalText writes what String does and refuses a value that is none of the three.
func (o Outage) MarshalText() ([]byte, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return []byte(o.String()), nil
}

// UnmarshalText reads what MarshalText writes, in any case.
func (o *Outage) UnmarshalText(text []byte) error {
	for i, name := range outages {
		if strings.EqualFold(name, string(text)) {
			*o = Outage(i)
			return nil
		}
	}
	return invalid.New("limiter", "outage policy %q is not one of %s", shorten(string(text)), strings.Join(outages[:], ", "))
}
