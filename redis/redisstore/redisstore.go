package redisstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/redis/internal/wire"
)

// Options is what [New] takes. The zero value has the defaults.
type Options struct {
	// Prefix begins the names of all counters: up to 64 characters of printable ASCII without a
	// space or a brace. Applications that share a Redis need different prefixes. Empty means
	// "weir".
	Prefix string

	// Secret is the HMAC key of the digests that stand for clients in Redis. Without a secret, anyone
	// who can read Redis can find addresses and short tokens by trying them all. All processes need the
	// same secret. A new secret starts all counters anew. It has 16 bytes or more, or none.
	Secret []byte

	// ForgetRefusals makes every request of a refused key reach Redis. Otherwise the process
	// remembers a refusal for up to a second.
	ForgetRefusals bool

	// OneTag says that a script can reach the counters of one client only, as in a Cluster. Set it if
	// the client's address is a proxy that sends each script to one of several servers, by its first
	// key: otherwise each of N servers admits the limit. It costs a script for each client in a batch.
	// Proxies that forward connections, such as HAProxy in mode tcp, do not need it. If a trial finds
	// such a proxy, the store logs weir-proxy-splits and goes on as with OneTag.
	OneTag bool

	// Failover says how to decide while Redis gives no answer. Its Logger gets the store's own warning
	// too: a key holds something else than a counter (code weir-foreign-value).
	Failover failover.Options
}

// Validate returns everything that is wrong with o, joined, or nil. A [Store] with such options
// cannot be used.
func (o Options) Validate() error {
	errs := wire.Check("redisstore", o.Prefix, o.Secret)
	if err := o.Failover.Validate(); err != nil {
		errs = append(errs, wire.Errorf("redisstore", "Failover: %w", err))
	}
	return errors.Join(errs...)
}

// Store is a [limiter.Store] whose counters are in Redis.
type Store struct {
	*shared
	failover *failover.Store
	invalid  error // why there are none of these

	mu      sync.Mutex
	bounded []*store
}

// New returns a Store on a client of go-redis: a *redis.Client, for one server or Sentinel, or a
// *redis.ClusterClient. It asks nothing of Redis, which may be down ([Store.Connect]). The caller closes the client.
//
// New returns no error, so that it can be written within a Config. If there is no client, or one of
// another kind (a Ring, an AutoPipeline, a wrapper), or [Options.Validate] refuses the options, making a
// limiter fails ([Store.Check]), and every decision is an error.
func New(client redis.UniversalClient, o Options) *Store {
	if err := errors.Join(wire.CheckClient("redisstore", client), o.Validate()); err != nil {
		return &Store{invalid: err}
	}
	s := &Store{shared: newShared(client, o)}
	s.tries = true
	s.failover = failover.Must(failover.New(s, o.Failover)) // which Validate has looked at
	return s
}

// Connect makes a connection and waits until Redis answers, or returns why it does not. It is for programs that want
// this before their first request: otherwise the first decision does it. If ctx has no deadline, Connect waits for a
// second at most.
func (s *Store) Connect(ctx context.Context) error {
	if s.invalid != nil {
		return s.invalid
	}
	_, err := wire.Call(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.transport.Connect(ctx) })
	return s.transport.Failed("redisstore", err, 0)
}

// Check returns why the store cannot be used at all, or nil.
func (s *Store) Check(*limiter.Quota) error { return s.invalid }

// Decide implements [limiter.Store].
func (s *Store) Decide(ctx context.Context, charges []limiter.Charge) error {
	if s.invalid != nil {
		return s.invalid
	}
	return s.failover.Decide(ctx, charges)
}

// Settle implements [limiter.Store]. The caller does not wait for Redis, unless 1,024 settlements are
// waiting already. A settlement travels with the next decision of this process on the same key, with a
// decision on another key, or alone after 5 milliseconds.
func (s *Store) Settle(ctx context.Context, settlements []limiter.Settlement) error {
	if s.invalid != nil {
		return s.invalid
	}
	return s.failover.Settle(ctx, settlements)
}

// Close waits until Redis has all settlements and released slots. After a second it returns an error.
// The Store can still decide, and later settlements are sent at once. Slots that are still held are not
// renewed and count for ten more seconds, so release them first. The client stays open. A program
// without settlements and slots need not call Close.
func (s *Store) Close() error {
	if s.invalid != nil {
		return nil
	}
	s.unsettled.closed.Store(true)
	for end := time.Now().Add(closePatience); ; time.Sleep(time.Millisecond) {
		count, released := s.unsettled.count.Load(), s.release()
		switch {
		case count == 0 && released:
			return nil
		case time.Now().Before(end):
			continue
		case count > 0:
			return wire.Errorf("redisstore", "Redis has not answered to %d settlements in %v", count, closePatience)
		}
		return wire.Errorf("redisstore", "Redis did not confirm in %v that all slots are released", closePatience)
	}
}

// closePatience is how long Close waits at most.
const closePatience = time.Second

// release ends renewals of slots, and reports whether Redis has confirmed all that were released.
func (s *Store) release() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	released := true
	for _, b := range s.bounded {
		released = b.slots.close() && released
	}
	return released
}

// Reset implements [limiter.Store]. Other processes may refuse the key for up to a second more.
func (s *Store) Reset(ctx context.Context, charges []limiter.Charge) error {
	if s.invalid != nil {
		return s.invalid
	}
	return s.failover.Reset(ctx, charges)
}

// Within returns the store without its outage policies. Its calls fail if Redis gives no answer within
// the deadline. It is for package failover: [failover.New] around a Store uses its own options in place
// of the Store's Options.Failover.
func (s *Store) Within(deadline time.Duration) limiter.Store {
	if s.invalid != nil {
		return s
	}
	b := newStore(s.shared, deadline)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bounded = append(s.bounded, b)
	return b
}

// Claim implements [limiter.Claimer]. It looks only at the limiters of this process, because
// limiters of other processes are meant to share counters.
func (s *Store) Claim(rule string) error {
	if s.invalid != nil {
		return s.invalid
	}
	return s.shared.Claim(rule)
}

// Stats is what [Store.Stats] returns.
type Stats struct {
	failover.Stats

	Batches    uint64 // sent to Redis
	Remembered uint64 // refusals that this process decided from memory, without Redis
	Unsettled  uint64 // settlements that Redis did not answer; their units may stay charged
}

// Stats returns what the store has done since it was made.
func (s *Store) Stats() Stats {
	if s.invalid != nil {
		return Stats{}
	}
	return Stats{
		Stats:      s.failover.Health(),
		Batches:    s.batches.Load(),
		Remembered: s.remembered.Load(),
		Unsettled:  s.unsettled.lost.Load(),
	}
}

// Kind returns "redis", the store's name in metrics.
func (s *Store) Kind() string { return "redis" }

// Health implements [failover.Reporter]: it is a part of [Store.Stats].
func (s *Store) Health() failover.Stats { return s.Stats().Stats }
