package bans

import (
	"cmp"
	"context"
	"time"

	"github.com/weirgo/weir/internal/invalid"
)

// A Ban locks one key out.
type Ban struct {
	// Key is the key, or empty if the list has only the digest. A list in Redis has only digests, and
	// any list has only the digest of a key longer than 256 bytes. If Key is set, Digest is empty.
	Key    string `json:"key,omitempty"`
	Digest string `json:"digest,omitempty"` // see keyfunc.Digest

	Rule  string    `json:"rule,omitempty"` // the rule that banned the key; empty: banned by hand
	Until time.Time `json:"until,omitzero"` // zero: permanent, until it is lifted
	Times int       `json:"times"`          // how many times in a row escalation has banned the key, including this one; 0: none

	Since  time.Time `json:"since,omitzero"`   // when the key was banned; zero: unknown
	Reason string    `json:"reason,omitempty"` // why an operator banned the key by hand
	By     string    `json:"by,omitempty"`     // the operator of a ban by hand; empty: unknown
}

// ID is the key or, if the list has only the digest, the digest. [List.Unban] accepts either.
func (b Ban) ID() string { return cmp.Or(b.Key, b.Digest) }

// A List holds banned keys. It may be used by many goroutines at once. Methods take a key as a
// keyfunc.Func returns it, or without its mark (see keyfunc.Classify).
type List interface {
	// Find returns the ban of a key, if one is in force. It is called for every request, so it never
	// calls a server, and takes no lock while nothing is banned.
	Find(key string) (Ban, bool)

	// Empty reports that no key is banned. It costs one atomic load. After the last ban has ended it
	// may return false until the next lookup.
	Empty() bool

	// Count returns how many bans are in force, as far as this process knows. It never calls a server, and
	// allocates nothing, however many there are.
	Count() int

	// Ban bans a key by hand for d, or until the ban is lifted if d is 0. It replaces an existing ban
	// and its notes. It is an error if d is negative or above [MaxDuration], or if [Noted] rejects the
	// notes.
	Ban(ctx context.Context, key string, d time.Duration, notes ...Note) error

	// Escalate bans a key for what it did under the named rule, for as long as e says. The caller
	// decides whether it did that often enough: e's After and Within are ignored. If a ban is in
	// force, Escalate returns it unchanged, so only one of several concurrent callers bans.
	Escalate(ctx context.Context, key, rule string, e Escalation) (Ban, error)

	// Unban lifts a ban, and forgets the refusals that led to it. It takes the key, or [Ban.ID]. lifted
	// reports whether a ban was in force. If none was, that is no error. If err is not nil, lifted
	// reports whether this process knew of a ban.
	Unban(ctx context.Context, key string) (lifted bool, err error)

	// All returns the bans in force, sorted by when they end, permanent bans last.
	All(ctx context.Context) ([]Ban, error)
}

// MaxDuration is the longest ban that has an end.
const MaxDuration = 366 * 24 * time.Hour

// ErrFull is the error of a full list in which no ban may be evicted: all bans are permanent, or all are
// by hand and the new ban is not.
var ErrFull = invalid.New("bans", "the list is full of permanent or manual bans")

// ErrDigest is returned if a digest ([keyfunc.Digest.Key]) is to be banned in a list that holds keys:
// no request would match such a ban. A list in Redis holds digests, and accepts them.
var ErrDigest = invalid.New("bans", "a digest does not reveal its key: name the key")

// CheckDuration returns the error that [List.Ban] returns for the duration d, or nil if d is valid.
func CheckDuration(d time.Duration) error {
	if d < 0 || d > MaxDuration {
		return invalid.New("bans", "a ban of %v: it must be at most %v, or 0 for a permanent ban", d, MaxDuration)
	}
	return nil
}
