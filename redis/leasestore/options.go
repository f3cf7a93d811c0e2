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
	// Redis says how counters are named, and how to decide while Redis gives no answer. A
	// [redisstore.Store] with the same Prefix and Secret has the same counters.
	Redis redisstore.Options

	// Rules names the rules to lease. Redis decides all other rules each time. If a rule named
	// here has a leaky-bucket or a sliding-log, New of the limiter fails. Nil means all rules,
	// except those whose limit cannot be leased.
	Rules []string

	// Ahead is how much of a limit all processes together may hold in leases, in percent of
	// what passes at once: from 1 to 50. Admissions can exceed the burst by that much over a
	// short interval. If it comes to fewer than two units, Redis decides each time. Zero means
	// 25. All processes need the same.
	Ahead int

	// MaxKeys is the most keys to remember, from 64 to 2^26, at some 300 bytes each. Redis
	// decides each time on a key without room. Zero means 200,000.
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
