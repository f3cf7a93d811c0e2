package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/redis/internal/counters"
	"github.com/weirgo/weir/redis/internal/wire"
)

// Options is what [New] takes. The zero Options are the defaults.
type Options struct {
	// Prefix begins the names of all counters: up to 64 characters of printable ASCII
	// without a space or a brace. Applications that share a Redis need different ones.
	// Empty: "weir".
	Prefix string

	// Secret keys the digests that stand for clients in Redis. Without one, those that can
	// read Redis can find addresses and short tokens by trying them all. All processes need
	// the same; a new one starts all counters anew. 16 bytes or more, or none.
	Secret []byte

	// MaxBatch bounds how many charges of different decisions go to Redis together, and with
	// it how long a script runs: some 4 microseconds for each. From 1, which lets each
	// decision travel alone, to 1000. Zero: 256.
	MaxBatch int

	// ForgetRefusals makes every request of a refused key reach Redis. Otherwise what
	// Redis said is remembered for up to a second.
	ForgetRefusals bool

	// Failover says what happens while Redis gives no answer.
	Failover failover.Options
}

const (
	defaultMaxBatch = 256
	mostMaxBatch    = 1000
)

// Validate returns everything that is wrong with o, joined, or nil. A [Store] with such options cannot be used.
func (o Options) Validate() error {
	errs := wire.Check("redisstore", o.Prefix, o.Secret)
	report := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("redisstore: "+format, args...))
	}
	if o.MaxBatch < 0 || o.MaxBatch > mostMaxBatch {
		report("MaxBatch is %d: it must be from 1 to %d, or 0 for %d", o.MaxBatch, mostMaxBatch, defaultMaxBatch)
	}
	if err := o.Failover.Validate(); err != nil {
		report("Failover: %w", err)
	}
	return errors.Join(errs...)
}

// Store is a [limiter.Store] whose counters are in Redis.
type Store struct {
	store    *store
	failover *failover.Store
	invalid  error // why there are none of these
}

// New returns a store on a client of go-redis: one for a single server, for Sentinel, a
// Cluster or a Ring. It asks nothing of Redis, which may be down. The client stays the
// caller's to close.
//
// New is written within a Config, so it returns no error. A store without a client, or with
// options that [Options.Validate] refuses, says so where a limiter is made of it
// ([Store.Check]), and decides on nothing.
func New(client redis.UniversalClient, o Options) *Store {
	err := o.Validate()
	if wire.IsNil(client) {
		err = errors.Join(errors.New("redisstore: New needs a client"), err)
	}
	if err != nil {
		return &Store{invalid: err}
	}
	s := newStore(client, o)
	return &Store{store: s, failover: failover.Must(failover.New(s, o.Failover))} // which Validate has looked at
}

// Check returns why the store cannot be used at all, or nil.
func (s *Store) Check(*limiter.Quota) error { return s.invalid }

const (
	// clusterBatchers is how many ranges of slots have a batcher of their own.
	clusterBatchers = 32

	// parallel is how many batches are in flight at once where a round trip is long.
	parallel = 8
)

func newStore(client redis.UniversalClient, o Options) *store {
	if o.MaxBatch == 0 {
		o.MaxBatch = defaultMaxBatch
	}
	s := &store{
		names:      counters.New(o.Prefix, o.Secret, counters.Format),
		sender:     newSender(wire.NewTransport(client), newScripts(structLua, decideLua)),
		maxBatch:   o.MaxBatch,
		batchers:   make([]*batcher, 1),
		parallel:   parallel,
		unsettled:  &unsettled{},
		holders:    &holders{},
		remembered: &atomic.Uint64{},
		claimed:    &sync.Map{},
		told:       &sync.Once{},
	}
	switch client := client.(type) {
	case *redis.Client:
		s.parallel = min(parallel, max(2, client.Options().PoolSize/2)) // others need connections too
	case *redis.ClusterClient:
		s.batchers = make([]*batcher, clusterBatchers)
		s.parallel = 2 // the batchers share connections
	}
	if !o.ForgetRefusals {
		s.denied = newDenyCache()
	}
	return s
}

// Decide implements [limiter.Store].
func (s *Store) Decide(ctx context.Context, charges []limiter.Charge, decisions []limiter.Decision) error {
	if s.invalid != nil {
		return s.invalid
	}
	return s.failover.Decide(ctx, charges, decisions)
}

// Settle implements [limiter.Store]: the caller does not wait for Redis, unless 1,024
// settlements do. The next decision of this process on a key takes its settlements along, and
// others go with other decisions, or 5 milliseconds later.
func (s *Store) Settle(ctx context.Context, settlements []limiter.Settlement) error {
	if s.invalid != nil {
		return s.invalid
	}
	return s.failover.Settle(ctx, settlements)
}

// Close waits until Redis has what is being settled, for a second at most; its error says that
// it has not. Decisions go on to be taken, and what is settled after Close is settled at once.
// Places that are held go on to be counted for ten seconds and are not renewed, so the events
// should have ended. The client stays open. A program that settles nothing, and has no limit on
// how many are under way, need not call it.
func (s *Store) Close() error {
	if s.invalid != nil {
		return nil
	}
	return s.store.close(closePatience)
}

// closePatience is how long Close waits at most.
const closePatience = time.Second

// Reset implements [limiter.Store]. Other processes may go on to refuse the key for up to
// a second.
func (s *Store) Reset(ctx context.Context, charges []limiter.Charge) error {
	if s.invalid != nil {
		return s.invalid
	}
	return s.failover.Reset(ctx, charges)
}

// Within is the store without its outage policies, deciding within a deadline or not at
// all. It is for package failover, so that [failover.New] around a Store puts its own
// options in place of Options.Failover.
func (s *Store) Within(deadline time.Duration) limiter.Store {
	if s.invalid != nil {
		return s
	}
	return s.store.Within(deadline)
}

// Claim notes that a limiter of this process counts under rule in this store; a second
// one gets [limiter.ErrClaimed]. Limiters of other processes are meant to share.
func (s *Store) Claim(rule string) error {
	if s.invalid != nil {
		return s.invalid
	}
	return s.store.Claim(rule)
}

// Stats is what [Store.Stats] tells.
type Stats struct {
	failover.Stats

	Batches    uint64 // that went to Redis
	Remembered uint64 // decisions that were refusals remembered
	Unsettled  uint64 // settlements that Redis did not answer to: what was charged may stay so
}

// Stats sums up what the store has done since it was made.
func (s *Store) Stats() Stats {
	if s.invalid != nil {
		return Stats{}
	}
	return Stats{
		Stats:      s.failover.Stats(),
		Batches:    s.store.sender.batches.Load(),
		Remembered: s.store.remembered.Load(),
		Unsettled:  s.store.unsettled.lost.Load(),
	}
}

// Kind returns "redis", the store's name in metrics.
func (s *Store) Kind() string { return "redis" }

// Health implements [failover.Reporter]: it is a part of [Store.Stats].
func (s *Store) Health() failover.Stats { return s.Stats().Stats }
