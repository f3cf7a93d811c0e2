package leasestore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/weirgo/weir/redis/redisstore"
)

// Options is what [New] takes. The zero Options lease every rule that can be leased.
type Options struct {
	// Redis has the options of redisstore: how counters are named, and how to decide while Redis gives
	// no answer. A [redisstore.Store] with the same Prefix and Secret uses the same counters.
	Redis redisstore.Options

	// Rules names the rules to lease, if their limits can be leased. On all other rules, Redis makes
	// every decision. Nil means all rules.
	Rules []string

	// Ahead is how many units of a limit all processes together may hold in leases, as a percentage of
	// the limit's burst, or of a window's events: from 1 to 50. Over a short interval, admissions can
	// exceed the burst by the units held. If Ahead comes to fewer than two units of a limit, Redis
	// makes every decision on that limit. Zero means 25. All processes must use the same value.
	Ahead int

	// MaxKeys is the most keys to remember, from 64 to 2^26, at some 300 bytes each. If there is no
	// room for a key, Redis makes every decision on it. Zero means 200,000.
	MaxKeys int
}

const (
	defaultAhead   = 25
	mostAhead      = 50
	defaultMaxKeys = 200_000
	leastMaxKeys   = shardCount
	mostMaxKeys    = 1 << 26
)

// Validate returns everything that is wrong with o, joined, or nil.
func (o Options) Validate() error {
	var errs []error
	if err := o.Redis.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("leasestore: Redis: %w", err))
	}
	report := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("leasestore: "+format, args...))
	}
	if slices.Contains(o.Rules, "") {
		report("Rules[%d] is empty: it must be the name of a rule", slices.Index(o.Rules, ""))
	}
	if o.Ahead < 0 || o.Ahead > mostAhead {
		report("Ahead is %d: it must be from 1 to %d percent, or 0 for %d", o.Ahead, mostAhead, defaultAhead)
	}
	if o.MaxKeys != 0 && (o.MaxKeys < leastMaxKeys || o.MaxKeys > mostMaxKeys) {
		report("MaxKeys is %d: it must be from %d to %d, or 0 for %d", o.MaxKeys, leastMaxKeys, mostMaxKeys, defaultMaxKeys)
	}
	return errors.Join(errs...)
}

// complete fills in the defaults.
func (o Options) complete() Options {
	o.Rules = slices.Clone(o.Rules) // the caller may change its own
	o.Ahead = cmp.Or(o.Ahead, defaultAhead)
	o.MaxKeys = cmp.Or(o.MaxKeys, defaultMaxKeys)
	return o
}
