package failover

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir/limiter"
)

// Options are what [New] takes. The zero value consists of the defaults.
type Options struct {
	// Deadline is how long a decision may wait for the server's answer: from 1ms to a minute.
	// A store with a method Within may wait for a connection besides, as redisstore does. Where
	// requests have less time than that, one that ends after a quarter of it counts as a
	// failure. Zero: 50ms.
	Deadline time.Duration

	// Replicas is how many processes share the server, up to 100,000. Local divides each
	// limit by it. Zero: 1, which lets every process admit the whole limit in an outage.
	Replicas int

	// Failures is how many calls in a row have to fail for the policies to come into
	// force, each begun after the one before had failed: up to a million. Until then each
	// waits for the server. Zero: 5.
	Failures int

	// ProbeEvery is how long the server is left alone before a request has it tried in the
	// background, at most an hour. Zero: 1s.
	ProbeEvery time.Duration

	// OnDegraded hears when the policies come into force and when they no longer are:
	// once for each server, one call after the other, never two at once, in a goroutine that
	// holds up no request. A panic in it is logged. Nil: a record of slog for each, Warn with
	// code weir-degraded and Info with code weir-recovered. A first failure (weir-call-failed)
	// and a server that is wrongly configured (weir-store-unusable) are logged in any case.
	OnDegraded func(Event)

	// MaxKeys bounds how many keys Local remembers, as in [limiter.MemoryOptions].
	MaxKeys int
}

const (
	minDeadline   = time.Millisecond
	maxDeadline   = time.Minute
	maxReplicas   = 100_000 // 366 days times that fits 64 bits in microseconds
	maxFailures   = 1_000_000
	maxProbeEvery = time.Hour
)

// Validate returns everything that is wrong with o, joined, or nil.
func (o Options) Validate() error {
	_, _, err := o.complete()
	return err
}

// complete fills in the defaults. The Memory is the only one to know what it can be.
func (o Options) complete() (Options, *limiter.Memory, error) {
	var errs []error
	report := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("failover: "+format, args...))
	}
	if o.Deadline != 0 && (o.Deadline < minDeadline || o.Deadline > maxDeadline) {
		report("Deadline is %v: it must be from %v to %v, or 0 for 50ms", o.Deadline, minDeadline, maxDeadline)
	}
	if o.Replicas < 0 || o.Replicas > maxReplicas {
		report("Replicas is %d: it must be from 1 to %d, or 0 for 1", o.Replicas, maxReplicas)
	}
	if o.Failures < 0 || o.Failures > maxFailures {
		report("Failures is %d: it must be from 1 to %d, or 0 for 5", o.Failures, maxFailures)
	}
	if o.ProbeEvery < 0 || o.ProbeEvery > maxProbeEvery {
		report("ProbeEvery is %v: it must be more than 0 and at most %v, or 0 for 1s", o.ProbeEvery, maxProbeEvery)
	}
	memory, err := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: o.MaxKeys})
	if err != nil {
		report("%w", err)
	}
	o.Deadline = cmp.Or(o.Deadline, 50*time.Millisecond)
	o.Replicas = cmp.Or(o.Replicas, 1)
	o.Failures = cmp.Or(o.Failures, 5)
	o.ProbeEvery = cmp.Or(o.ProbeEvery, time.Second)
	if o.OnDegraded == nil {
		o.OnDegraded = Event.log
	}
	return o, memory, errors.Join(errs...)
}
