package bans

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A Ban locks one key out.
type Ban struct {
	Key   string    `json:"key"`            // as it was banned, or its digest: in a list shared through Redis, and of keys longer than 256 bytes
	Rule  string    `json:"rule,omitempty"` // the rule that led to it; empty: by hand
	Until time.Time `json:"until,omitzero"` // zero: it is permanent, until it is lifted
	Times int       `json:"times"`          // how many bans by escalation came one after the other, with this one; 0: none did
}

// A List has the keys that are locked out. It may be used by many goroutines at once. Keys are as a
// keyfunc.Func returns them, or their text alone: a list takes the class off.
type List interface {
	// Find is the ban of a key that is locked out now. It is for every request: it asks
	// no server, and takes no lock while nothing is banned.
	Find(key string) (Ban, bool)

	// Empty reports that nothing is banned at all, for the price of one atomic load. It may
	// say false for a while after the last ban has ended, until something is looked for.
	Empty() bool

	// Ban locks a key out by hand, for d or, if that is 0, until it is lifted. It replaces
	// the ban that there is. A negative d is an error, and so is one above [MaxDuration].
	Ban(ctx context.Context, key string, d time.Duration) error

	// Escalate locks a key out because of what it did under a rule, which has a name, for
	// as long as e says. That it did it often enough is for the caller to say: After and
	// Within are not looked at. A ban that is in force is returned as it is, so that of
	// concurrent callers one bans.
	Escalate(ctx context.Context, key, rule string, e Escalation) (Ban, error)

	// Unban lifts a ban and forgets what led to it. It takes the key, or what [List.All]
	// has in its place. lifted reports whether there was a ban in force; that there was none
	// is no error. With an error, lifted is what this process knows.
	Unban(ctx context.Context, key string) (lifted bool, err error)

	// All are the bans in force, the first to end first, those without an end last.
	All(ctx context.Context) ([]Ban, error)
}

// MaxDuration is how long a ban can be that has an end.
const MaxDuration = 366 * 24 * time.Hour

// ErrFull is what a list says that is at its cap, when none of its bans may give way: all
// are without an end, or all are by hand and the new one is not.
var ErrFull = errors.New("bans: the list is full of bans by hand")

// CheckDuration is the error of [List.Ban] for a d that it does not take, or nil.
func CheckDuration(d time.Duration) error {
	if d < 0 || d > MaxDuration {
		return fmt.Errorf("bans: a ban of %v: it must be at most %v, or 0 for one that is lifted by hand", d, MaxDuration)
	}
	return nil
}

// sortBans puts bans in the order of [List.All].
func sortBans(list []Ban) {
	slices.SortFunc(list, func(a, b Ban) int {
		if a.Until.IsZero() != b.Until.IsZero() {
			if a.Until.IsZero() {
				return 1
			}
			return -1
		}
		return cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.Key, b.Key))
	})
}
