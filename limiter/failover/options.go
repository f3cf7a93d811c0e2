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
	maxReplicas = 100_000 // 366 days times that fits 64 bits in microseconds
	maxFailures = 1_000_000
)

// Validate returns everything that is wrong with o, joined, or nil.
func (o Options) Validate() error {
	_, _, err := o.complete()
	return err
}

// complete fills in the defaults. It makes the Memory, which checks MaxKeys.
func (o Options) complete() (Options, *limiter.Memory, error) {
	var errs [5]error
	o.Deadline, errs[0] = complete("Deadline", o.Deadline, time.Millisecond, time.Minute, "from 1ms to 1m0s", 50*time.Millisecond)
	o.Replicas, errs[1] = complete("Replicas", o.Replicas, 1, maxReplicas, "from 1 to 100000", 1)
	o.Failures, errs[2] = complete("Failures", o.Failures, 1, maxFailures, "from 1 to 1000000", 5)
	o.ProbeEvery, errs[3] = complete("ProbeEvery", o.ProbeEvery, 1, time.Hour, "more than 0 and at most 1h0m0s", time.Second)
	memory, err := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: o.MaxKeys})
	if err != nil {
		errs[4] = fmt.Errorf("failover: %w", err)
	}
	if o.OnDegraded == nil {
		o.OnDegraded = func(e Event) { e.log(false) }
	}
	return o, memory, errors.Join(errs[:]...)
}

// complete returns the value of a field, or its default.
func complete[T int | time.Duration](field string, v, least, most T, bounds string, otherwise T) (T, error) {
	if v != 0 && (v < least || v > most) {
		return v, fmt.Errorf("failover: %s is %v: it must be %s, or 0 for %v", field, v, bounds, otherwise)
	}
	return cmp.Or(v, otherwise), nil
}
