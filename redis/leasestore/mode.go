package leasestore

import (
	"fmt"

	"github.com/weirgo/weir/limiter"
)

// A Mode says where decisions are taken. The package documentation compares them.
type Mode uint8

const (
	// Exact, the zero Mode, asks Redis about every event, as the store inside does.
	Exact Mode = iota

	// Leased spends, in this process, units that Redis has granted ahead.
	Leased

	// Synchronized counts in this process and exchanges counts with the others.
	Synchronized
)

var modes = [...]string{Exact: "exact", Leased: "leased", Synchronized: "synchronized"}

// String is "exact", "leased" or "synchronized".
func (m Mode) String() string {
	if int(m) < len(modes) {
		return modes[m]
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// Check returns why a limit cannot be counted in mode m, or nil. One that is too tight for it can:
// it is decided exactly.
func (m Mode) Check(l limiter.Limit) error {
	if int(m) >= len(modes) {
		return fmt.Errorf("leasestore: Mode is %d: it must be Exact, Leased or Synchronized", uint8(m))
	}
	if m == Exact {
		return nil
	}
	switch l.Algorithm {
	case limiter.LeakyBucket:
		return fmt.Errorf("leasestore: limit %v cannot be %v: a leaky-bucket's delays come of one queue, in which units taken ahead would leave gaps", l, m)
	case limiter.SlidingLog:
		return fmt.Errorf("leasestore: limit %v cannot be %v: a sliding-log is for exactly N in any period, and what is taken ahead has no time of its own", l, m)
	}
	return nil
}
