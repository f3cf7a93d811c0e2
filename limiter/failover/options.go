package failover

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir/limiter"
)

// Options are what [New] takes. The zero value has the defaults.
type Options struct {
	// Deadline is how long a decision may wait for the server's answer: from 1ms to a minute. A
	// [Bounded] store, such as redisstore, may wait for a connection before that. If a request's
	// context ends before Deadline, its call counts as failed if the server had at least a quarter of
	// Deadline. Zero means 50ms.
	Deadline time.Duration

	// Replicas is how many processes share the server, up to 100,000. Local divides each limit
	// by it. Zero means 1: every process admits the whole limit in an outage.
	Replicas int

	// Failures is how many calls in a row must fail before the policies decide all calls: up to
	// a million. Each must begin after the one before has failed, and waits for the server.
	// Zero means 5.
	Failures int

	// ProbeEvery is how long the server is left alone before a request starts a probe in the
	// background: at most an hour. Zero means 1s.
	ProbeEvery time.Duration

	// OnDegraded is called once for each server when the policies begin to decide, and once
	// when they no longer do. Calls never overlap and delay no request. A panic in it is
	// logged. Nil logs to slog: Warn with code weir-degraded, and Info with code
	// weir-recovered. First failures (weir-call-failed) and wrongly configured servers
	// (weir-store-unusable) are logged in any case.
	OnDegraded func(Event)

	// MaxKeys is the most keys that Local remembers, as in [limiter.MemoryOptions].
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

// complete fills in the defaults. It makes the Memory, which checks MaxKeys.
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
