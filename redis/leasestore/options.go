package leasestore

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weirgo/weir/redis/redisstore"
)

// Options is what [New] takes. The zero Options decide everything exactly.
type Options struct {
	// Redis says how the counters are named, and what happens while Redis gives no answer.
	// A [redisstore.Store] with the same Prefix and Secret has the same counters.
	Redis redisstore.Options

	// Mode is that of all rules that Rules does not name, but for those with a limit that it makes
	// no sense for: they are Exact.
	Mode Mode

	// Rules gives rules modes of their own, by name. One that makes no sense for the rule's
	// limit is an error where the rule is made; limits that are too tight, or beside others,
	// are Exact.
	Rules map[string]Mode

	// Ahead is how much of what a limit lets pass at once all processes together may hold
	// in leases, in percent from 1 to 50. It is the most by which admissions can exceed
	// the burst over a short interval, and where it comes to fewer than two units a limit
	// is decided exactly. Zero: 25. All processes need the same.
	Ahead int

	// MaxKeys bounds how many keys are remembered, from 64 to 2^26, of some 300 bytes each. Of
	// Leased rules a key that finds no room is decided exactly. Of Synchronized ones it takes
	// the place of one that Redis has been told of, nearest to its initial state among some
	// in reach, which is known again after an exchange; what came since the last exchange is
	// above the bound. Zero: 200,000.
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
	if int(o.Mode) >= len(modes) {
		report("Mode is %d: it must be Exact, Leased or Synchronized", uint8(o.Mode))
	}
	for _, rule := range slices.Sorted(maps.Keys(o.Rules)) {
		if m := o.Rules[rule]; int(m) >= len(modes) {
			report("Rules[%q] is %d: it must be Exact, Leased or Synchronized", rule, uint8(m))
		}
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
	o.Rules = maps.Clone(o.Rules) // the caller may change its own
	o.Ahead = cmp.Or(o.Ahead, defaultAhead)
	o.MaxKeys = cmp.Or(o.MaxKeys, defaultMaxKeys)
	return o
}

// mode is a rule's, and whether it was given to it by name.
func (o *Options) mode(rule string) (m Mode, isNamed bool) {
	if m, isNamed = o.Rules[rule]; isNamed {
		return m, true
	}
	return o.Mode, false
}
