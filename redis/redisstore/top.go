package redisstore

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/redis/internal/counters"
	"github.com/weirgo/weir/redis/internal/wire"
)

//go:embed top.lua
var topLua string

var topScript = wire.NewScript(partNames + source(every) + logLua + topLua)

// A Usage is how much of a limit a key has used.
type Usage struct {
	Digest     string        `json:"digest"` // of the key: see [keyfunc.Digest]
	Rule       string        `json:"rule"`
	Tier       string        `json:"tier,omitempty"`
	InFlight   bool          `json:"in_flight,omitempty"` // what counts is under way ([limiter.NewConcurrency])
	Used       int64         `json:"used"`                // of Limit, in units
	Limit      int64         `json:"limit"`
	ResetAfter time.Duration `json:"reset_after"` // when all of it is free again; of what is under way a guess
}

// compare puts the largest share first, and of the same shares the most units.
func (u *Usage) compare(other *Usage) int {
	return -cmp.Or(
		cmp.Compare(float64(u.Used)/float64(u.Limit), float64(other.Used)/float64(other.Limit)),
		cmp.Compare(u.Used, other.Used),
		-strings.Compare(u.Rule+u.Tier+u.Digest, other.Rule+other.Tier+other.Digest),
	)
}

// TopOptions is what [Top] takes. The zero TopOptions are the defaults.
type TopOptions struct {
	// Prefix is as in [Options].
	Prefix string

	// Rule is the only one to look at. Empty: all.
	Rule string

	// MaxKeys is how many keys of the Redis, of whatever kind, are looked at before Top
	// gives up, at most. Zero: a million.
	MaxKeys int
}

const defaultMaxScanned = 1_000_000

// Top are the n counters in Redis that have used the largest share of their limit just now,
// the largest first: those that are being refused, or nearly. The bool reports whether all were
// looked at. Redis goes on to decide meanwhile, as it is asked for some hundred keys at a
// time; it takes some 10 seconds for a million.
func Top(ctx context.Context, client redis.UniversalClient, n int, o TopOptions) ([]Usage, bool, error) {
	if wire.IsNil(client) {
		return nil, false, errors.New("redisstore: Top needs a client")
	}
	if n < 1 || n > 10_000 {
		return nil, false, fmt.Errorf("redisstore: Top of %d: it must be from 1 to 10000", n)
	}
	if o.MaxKeys < 0 {
		return nil, false, fmt.Errorf("redisstore: MaxKeys is %d: it must not be negative", o.MaxKeys)
	}
	if err := (Options{Prefix: o.Prefix}).Validate(); err != nil {
		return nil, false, err
	}
	s := &search{n: n, prefix: counters.New(o.Prefix, nil, counters.Format).Prefix, rule: o.Rule, left: cmp.Or(o.MaxKeys, defaultMaxScanned)}
	each := func(ctx context.Context, node *redis.Client) error { return s.scan(ctx, node) }
	var err error
	switch c := client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, each)
	case *redis.Ring:
		err = c.ForEachShard(ctx, each)
	default:
		err = s.scan(ctx, client)
	}
	if err != nil {
		err = wire.NewTransport(client).Failed("redisstore", err, 0)
	}
	return s.top, s.left > 0, err
}

// A search is a Top under way. Nodes are asked at the same time.
type search struct {
	n            int
	prefix, rule string // the prefix with the version of the format

	mu   sync.Mutex
	left int // keys that may still be looked at
	top  []Usage
}

const topPage = 200 // keys

func (s *search) scan(ctx context.Context, node redis.UniversalClient) error {
	pattern := escapeGlob(s.prefix) + ":{*}:*"
	for cursor := uint64(0); ; {
		names, next, err := node.Scan(ctx, cursor, pattern, topPage).Result()
		if err != nil {
			return err
		}
		names = slices.DeleteFunc(names, func(name string) bool { _, ok := s.parse(name); return !ok })
		if err := s.ask(ctx, node, names); err != nil {
			return err
		}
		if cursor = next; cursor == 0 || !s.goOn() {
			return nil
		}
	}
}

// escapeGlob is text as a pattern of Redis that matches it alone.
func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(text)
}

// goOn reports whether another page may be looked at.
func (s *search) goOn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = max(0, s.left-topPage) // SCAN's COUNT is of keys that it looks at
	return s.left > 0
}

// ask notes the usage of these counters, which may be in different slots of a node.
func (s *search) ask(ctx context.Context, node redis.UniversalClient, names []string) error {
	if len(names) == 0 {
		return nil
	}
	requests := make([]*wire.Request, len(names))
	for i, name := range names {
		requests[i] = wire.NewRequest(topScript, []string{name}, counters.PlacesSuffix)
		requests[i].WithSource = i == 0 // from then on it is known by its hash
	}
	wire.NewTransport(node).Run(ctx, requests...)
	for i, r := range requests {
		numbers, err := r.Numbers()
		if err != nil {
			return err
		}
		if len(numbers) != 3 || numbers[0] <= 0 || numbers[1] <= 0 {
			continue // no counter, or one that is free again
		}
		u, _ := s.parse(names[i])
		u.Used, u.Limit, u.ResetAfter = numbers[0], numbers[1], time.Duration(numbers[2])*time.Microsecond
		s.note(u)
	}
	return nil
}

// parse reads the name of a counter.
func (s *search) parse(name string) (u Usage, ok bool) {
	rest, ok := strings.CutPrefix(name, s.prefix+":{")
	if !ok {
		return u, false
	}
	digest, names, ok := strings.Cut(rest, "}:")
	if !ok {
		return u, false
	}
	names, inFlight := strings.CutSuffix(names, counters.PlacesSuffix)
	if _, ok := keyfunc.ParseDigest(digest); !ok {
		return u, false
	}
	rule, tier, _ := strings.Cut(names, ":")
	unescape := strings.NewReplacer("%3A", ":", "%25", "%").Replace
	u = Usage{Digest: digest, Rule: unescape(rule), Tier: unescape(tier), InFlight: inFlight}
	return u, s.rule == "" || s.rule == u.Rule
}

// note keeps u if it is among the first n.
func (s *search) note(u Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.top, func(known Usage) bool {
		return known.Digest == u.Digest && known.Rule == u.Rule && known.Tier == u.Tier && known.InFlight == u.InFlight
	}) {
		return // SCAN may give a key twice
	}
	at, _ := slices.BinarySearchFunc(s.top, u, func(a, b Usage) int { return a.compare(&b) })
	if at == s.n {
		return
	}
	s.top = slices.Insert(s.top, at, u)
	s.top = s.top[:min(len(s.top), s.n)]
}
