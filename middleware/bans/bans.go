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
	// Key is the key. It is empty where the list has its digest only, as one in Redis has, and
	// every list has of keys longer than 256 bytes. Digest is empty otherwise.
	Key    string `json:"key,omitempty"`
	Digest string `json:"digest,omitempty"` // see keyfunc.Digest

	Rule  string    `json:"rule,omitempty"` // the rule that the key was refused by; empty: banned by hand
	Until time.Time `json:"until,omitzero"` // zero: permanent, until it is lifted
	Times int       `json:"times"`          // bans by escalation in a row, with this one; 0: by hand, and none before

	Since  time.Time `json:"since,omitzero"`   // when it was banned; zero: not known
	Reason string    `json:"reason,omitempty"` // of a ban by hand, as the operator wrote it; else Rule is the reason
	By     string    `json:"by,omitempty"`     // the operator of a ban by hand; empty: not known
}

// ID is the key or, where the list has not got it, the digest: what [List.Unban] takes.
func (b Ban) ID() string { return cmp.Or(b.Key, b.Digest) }

// A List holds the keys that are locked out. It may be used by many goroutines at once. Keys
// are as a keyfunc.Func returns them, or their text alone: a list takes the class off.
type List interface {
	// Find is the ban of a key that is locked out now. It is called for every request: it
	// asks no server, and takes no lock while nothing is banned.
	Find(key string) (Ban, bool)

	// Empty reports that nothing is banned at all, for the price of one atomic load. It may
	// say false for a while after the last ban has ended, until something is looked for.
	Empty() bool

	// Ban locks a key out by hand, for d or, if that is 0, until it is lifted. It replaces
	// the ban that there is, with its notes. A negative d is an error, and so is one above
	// [MaxDuration], or what [Noted] does not take.
	Ban(ctx context.Context, key string, d time.Duration, notes ...Note) error

	// Escalate locks a key out because of what it did under a rule, which has a name, for
	// as long as e says. Whether it did it often enough is for the caller to say: After and
	// Within are not looked at. A ban that is in force is returned as it is: of concurrent
	// callers one bans.
	Escalate(ctx context.Context, key, rule string, e Escalation) (Ban, error)

	// Unban lifts a ban and forgets what led to it. It takes the key, or [Ban.ID]. lifted
	// reports whether a ban was in force; that there was none is no error. With an error,
	// lifted is what this process knows.
	Unban(ctx context.Context, key string) (lifted bool, err error)

	// All are the bans in force, the first to end first, those without an end last.
	All(ctx context.Context) ([]Ban, error)
}

// MaxDuration is the longest ban that has an end.
const MaxDuration = 366 * 24 * time.Hour

// ErrFull is the error of a list at its cap when none of its bans may give way: all are
// permanent, or all are by hand and the new one is not.
var ErrFull = errors.New("bans: the list is full of bans by hand")

// ErrDigest is the error of a list that holds keys when it is to ban a digest
// ([keyfunc.Digest.Key]): no request would meet that ban. A list in Redis holds digests, and
// takes them.
var ErrDigest = errors.New("bans: the key cannot be told from its digest: name the key")

// CheckDuration is the error of [List.Ban] for a duration that it does not take, or nil.
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
