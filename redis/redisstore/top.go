package redisstore

import (
	"cmp"
	"context"
	_ "embed"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/redis/internal/wire"
)

//go:embed top.lua
var topLua string

var topScript = wire.NewScript(partNames + source(every) + logLua + topLua)

// A Usage is how much of a limit a key has used.
type Usage struct {
	Digest     string // of the key: see [keyfunc.Digest]
	Rule, Tier string
	InFlight   bool          // what counts is under way ([limiter.NewConcurrency])
	Used       int64         // of Limit, in units
	Limit      int64         //
	ResetAfter time.Duration // when all of it is free again; of what is under way a guess
}

// compare puts the largest share first, and of the same shares the most units.
func (u *Usage) compare(other *Usage) int {
	return -cmp.Or(
		cmp.Compare(float64(u.Used)/float64(u.Limit), float64(other.Used)/float64(other.Limit)),
		cmp.Compare(u.Used, other.Used),
		-strings.Compare(u.Rule+u.Tier+u.Digest, other.Rule+other.Tier+other.Digest),
	)
}

// TopOptions is what [Top] and [NewSurvey] take. The zero TopOptions are the defaults.
type TopOptions struct {
	// Prefix is as in [Options].
	Prefix string

	// Rule is the only one to look at. Empty: all.
	Rule string

	// MaxKeys is how many keys of the Redis, of whatever kind, are looked at before Top
	// gives up, at most. Zero: a million. A Survey goes on.
	MaxKeys int

	// Rate is how many keys of each server are looked at in a second, at most, as Redis
	// answers no other client meanwhile. Zero: 10,000.
	Rate int
}

const (
	defaultMaxScanned = 1_000_000
	defaultScanRate   = 10_000

	// topPage is how many keys Redis is asked about at once, which keeps others waiting for
	// some tenths of a millisecond.
	topPage = 50
)

// Top are the n counters in Redis that have used the largest share of their limit just now,
// the largest first: those that are being refused, or nearly. The bool reports whether all were
// looked at. That takes a while, for the sake of what else Redis does: 100 seconds or more for a
// million keys. A [Survey] tells meanwhile what it has found.
func Top(ctx context.Context, client redis.UniversalClient, n int, o TopOptions) ([]Usage, bool, error) {
	s, err := NewSurvey(client, n, o)
	if err != nil {
		return nil, false, err
	}
	s.most = int64(cmp.Or(o.MaxKeys, defaultMaxScanned))
	for {
		found, err := s.Look(ctx, time.Hour)
		if err != nil || found.Ended {
			return found.Top, found.Last != nil, err
		}
	}
}
