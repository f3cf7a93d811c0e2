package leasestore

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/internal/counters"
	"github.com/weirgo/weir/redis/internal/wire"
	"github.com/weirgo/weir/redis/redisstore"
)

// What the package documentation and docs/redis.md say in words.
const (
	tick     = 10 * time.Millisecond  // from one round of refills to the next
	horizon  = 75 * time.Millisecond  // the demand that is leased ahead
	hungry   = 200 * time.Millisecond // for how long more is asked for of a key that has run out
	life     = 5 * time.Second        // of a lease, and of what is known of a key
	grace    = time.Second            // after it, in which what was not spent can be returned
	patience = 250 * time.Millisecond // of a trip in the background
)

// A ledger grants units and takes them back: a [redisLedger], or a fake in tests.
type ledger interface {
	Tag(key string) keyfunc.Digest
	Refill(ctx context.Context, refills []refill) error
}

// Store is a [limiter.Store] that decides in memory, with units that Redis granted in advance.
type Store struct {
	exact  limiter.Store
	ledger ledger
	plans  *plans
	table  *table
	start  time.Time

	wake   chan struct{} // for the loop
	stop   chan struct{}
	ended  chan struct{}
	once   sync.Once
	closed atomic.Bool

	round []refill  // that go to Redis at once; only the loop uses this and what follows
	swept time.Time // when entries without requests were last checked
}

// New returns a Store that counts in Redis, through a client of go-redis for one server, Sentinel or
// a Cluster. It starts a goroutine that refills what the process holds; [Store.Close] ends it. The Store
// sends nothing to Redis before the first decision. The caller closes the client.
func New(client redis.UniversalClient, options Options) (*Store, error) {
	if err := options.Validate(); err != nil {
		return nil, err
	}
	if err := wire.CheckClient("leasestore", client); err != nil {
		return nil, err
	}
	o := options.complete()
	names := counters.New(o.Redis.Prefix, o.Redis.Secret, counters.Format)
	ledger := newLedger(client, o.Redis.OneTag, names, o.Ahead, life, patience)
	ledger.log = o.Redis.Failover.Logger
	return newStore(redisstore.New(client, o.Redis), ledger, o), nil
}

func newStore(exact limiter.Store, l ledger, o Options) *Store {
	s := &Store{
		exact: exact, ledger: l, plans: &plans{seed: maphash.MakeSeed(), options: &o},
		table: newTable(o.MaxKeys), start: time.Now(),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	go s.loop()
	return s
}

// Unwrap implements [limiter.Wrapper]. It returns the [redisstore.Store] that makes the decisions that
// leases cannot make.
func (s *Store) Unwrap() limiter.Store { return s.exact }

func (s *Store) now() localTime { return localTime(time.Since(s.start).Microseconds() + 1) }

func (s *Store) hash(p *plan, key string) uint64 {
	return maphash.String(s.plans.seed, key) ^ p.salt
}

// planOf returns q's plan, or nil if Redis decides each time: because of the limit, or because
// the Store is closed.
func (s *Store) planOf(q *limiter.Quota) *plan {
	p := s.plans.of(q)
	if p.exact || s.closed.Load() {
		return nil
	}
	return p
}

// Settle implements [limiter.Store]. Redis settles later, as in redisstore. If a Receipt does not say
// when the units were taken, a refund first sends the units that this process holds for the key back to
// Redis.
func (s *Store) Settle(ctx context.Context, settlements []limiter.Settlement) error {
	if err := limiter.CheckSettlements(settlements); err != nil {
		return err
	}
	settlements = slices.Clone(settlements)
	for i := range settlements {
		c := &settlements[i]
		if p := s.planOf(c.Quota); p != nil && c.Decision.Receipt.By == 0 && c.Actual < c.Cost {
			c.Cost += min(s.surrender(p, c.Key, false), math.MaxInt64-c.Cost)
		}
	}
	return s.exact.Settle(ctx, settlements)
}

// Reset implements [limiter.Store]. Until another process next asks Redis about the key, it may still
// spend the units that it holds, or refuse the key.
func (s *Store) Reset(ctx context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	for i := range charges {
		if p := s.planOf(charges[i].Quota); p != nil {
			s.surrender(p, charges[i].Key, true)
		}
	}
	return s.exact.Reset(ctx, charges)
}

// Close returns to Redis the units that this process holds, finishes settlements, and ends the Store's
// goroutine. It takes at most two seconds. Redis makes all later decisions. Close returns an error if
// it could not send everything to Redis. Units that were not returned count as spent.
func (s *Store) Close() error {
	var err error
	s.once.Do(func() {
		s.closed.Store(true)
		close(s.stop)
		<-s.ended
		if err = s.returnAll(); err != nil {
			err = fmt.Errorf("leasestore: close: %w", err)
		}
		if exact, ok := s.exact.(io.Closer); ok {
			err = errors.Join(err, exact.Close())
		}
	})
	return err
}

// Stats is what [Store.Stats] returns.
type Stats struct {
	Local uint64 // charges of leased rules that were decided here
	Asked uint64 // charges of leased rules that Redis was asked about
	Keys  int    // keys that the store remembers
	Held  int64  // units held in leases

	// Crowded counts how often Redis granted no units of a key because other processes held all of
	// [Options].Ahead. Redis then decides each request of the key. A larger Ahead helps.
	Crowded uint64
}

// Stats returns what the store has done since it was made. It locks each shard for a moment,
// one after the other.
func (s *Store) Stats() Stats {
	var stats Stats
	for i := range s.table.shards {
		sh := &s.table.shards[i]
		sh.mu.Lock()
		stats.Local += sh.local
		stats.Asked += sh.asked
		stats.Crowded += sh.crowded
		stats.Keys += len(sh.entries)
		for _, e := range sh.entries {
			stats.Held += e.hand.units
		}
		sh.mu.Unlock()
	}
	return stats
}
