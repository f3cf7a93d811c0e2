package redisstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/redis/internal/counters"
	"github.com/weirgo/weir/redis/internal/wire"
)

// A Usage is how much of a limit a key has used.
type Usage struct {
	Name       string // of the counter in Redis
	Digest     string // of the key: see [keyfunc.Digest]
	Rule, Tier string
	InFlight   bool // the counter counts slots ([limiter.NewConcurrency])
	Used       int64
	Limit      int64
	ResetAfter time.Duration // time until the whole limit is free again; for slots, an estimate
}

// CounterNames returns a pattern for Redis's SCAN that matches all counters under a prefix
// ([Options]).
func CounterNames(prefix string) string {
	escape := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`)
	return escape.Replace(counters.New(prefix, nil, counters.Format).Prefix) + ":{*}:*"
}

// Usages returns what the counters with these names have used. It leaves out counters with nothing
// used, and keys that are not counters, so names may be a page of SCAN. It changes nothing. It runs a
// script for each name, in one pipeline.
func Usages(ctx context.Context, client redis.UniversalClient, prefix string, names []string) ([]Usage, error) {
	var found []Usage
	var requests []*wire.Request
	for _, name := range names {
		if u, ok := parseName(prefix, name); ok {
			found = append(found, u)
			requests = append(requests, wire.NewRequest(topScript, []string{name}, counters.SlotsSuffix))
		}
	}
	if err := wire.CheckClient("redisstore", client); err != nil {
		return nil, err
	}
	t := wire.NewTransport(client, false)
	if len(requests) > 0 {
		t.Run(ctx, requests[0]) // so that Redis gets the script once
		t.Run(ctx, requests[1:]...)
	}
	used := found[:0]
	for i, r := range requests {
		numbers, err := r.Int64Slice()
		if err == nil && len(numbers) != 3 {
			err = fmt.Errorf("the script of top answers %d numbers: %w", len(numbers), wire.ErrAnswer)
		}
		if err != nil {
			return nil, t.Failed("redisstore", err, 0)
		}
		u := found[i]
		u.Used, u.Limit, u.ResetAfter = numbers[0], numbers[1], time.Duration(numbers[2])*time.Microsecond
		if u.Used > 0 && u.Limit > 0 {
			used = append(used, u)
		}
	}
	return used, nil
}

// parseName reads the name of a counter.
func parseName(prefix, name string) (u Usage, ok bool) {
	rest, ok := strings.CutPrefix(name, counters.New(prefix, nil, counters.Format).Prefix+":{")
	if !ok {
		return u, false
	}
	digest, names, _ := strings.Cut(rest, "}:")
	if _, ok := keyfunc.ParseDigest(digest); !ok {
		return u, false
	}
	names, inFlight := strings.CutSuffix(names, counters.SlotsSuffix)
	rule, tier, _ := strings.Cut(names, ":")
	unescape := strings.NewReplacer("%3A", ":", "%25", "%").Replace
	return Usage{Name: name, Digest: digest, Rule: unescape(rule), Tier: unescape(tier), InFlight: inFlight}, true
}
