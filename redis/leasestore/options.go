package leasestore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/weirgo/weir/redis/redisstore"
)

// Options is what [New] takes. The zero Options lease all rules that can be leased.
type Options struct {
	// Redis says how the counters are named, and what happens while Redis gives no answer.
	// A [redisstore.Store] with the same Prefix and Secret has the same counters.
	Redis redisstore.Options

	// Rules names the rules that are leased; all other rules are decided exactly. If a rule named
	// here has a leaky-bucket or a sliding-log, making the rule is an error. Nil: all rules are
	// leased, except those whose limit cannot be.
	Rules []string

	// Ahead is how much of what a limit lets pass at once all processes together may hold
	// in leases, in percent from 1 to 50. It is the most by which admissions can exceed
	// the burst over a short interval, and where it comes to fewer than two units a limit
	// is decided exactly. Zero: 25. All processes need the same.
	Ahead int

	// MaxKeys bounds how many keys are remembered, from 64 to 2^26, of some 300 bytes each.
	// A key that finds no room is decided exactly. Zero: 200,000.
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
