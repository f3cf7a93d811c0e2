package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/internal/counters"
	"github.com/weirgo/weir/redis/internal/wire"
)

// store decides in Redis, without outage policies.
type store struct {
	names   counters.Names
	redis   *wire.Transport
	script  *wire.Script
	clock   *counters.Clock
	batches *atomic.Uint64 // sent
	denied  *denyCache     // nil, which works: no refusal is remembered

	tries    bool          // whether a proxy splits
	timeout  time.Duration // of a decision
	batchers []*batcher    // one, or a power of two of them in a Cluster

	parallel int // batches of a batcher in flight, where a round trip is long

	unsettled  *unsettled
	holders    *holders
	remembered *atomic.Uint64 // decisions
	claimed    *sync.Map      // names of rules
	warned     *sync.Once     // of a foreign value
	log        *slog.Logger   // nil: slog.Default
}

// Within is the store with that deadline on every decision.
func (s *store) Within(timeout time.Duration) limiter.Store {
	other := *s
	redis, led := s.redis.Within(timeout)
	other.redis, other.timeout = redis, timeout
	other.batchers = make([]*batcher, len(s.batchers))
	for i := range other.batchers {
		other.batchers[i] = newBatcher(led, maxBatch, s.parallel, timeout, other.send)
	}
	s.holders.add(other.batchers)
	return &other
}

// batcher returns the batcher of the keys with this tag.
func (s *store) batcher(tag keyfunc.Digest) *batcher { return s.batchers[s.part(tag)] }

// part returns the number of a tag's batcher. In a Cluster each batcher has a range of slots,
// which is mostly on one node, so a node that is down delays only its own keys.
func (s *store) part(tag keyfunc.Digest) int {
	if len(s.batchers) == 1 {
		return 0
	}
	return int(wire.SlotOf(tag[:])) * len(s.batchers) / wire.Slots
}

// Part tells package failover what fails apart from what.
func (s *store) Part(c *limiter.Charge) int {
	if len(s.batchers) == 1 {
		return 0
	}
	return s.part(s.names.Digest(c.Key))
}

// Claim notes that a limiter counts under rule.
func (s *store) Claim(rule string) error {
	if _, taken := s.claimed.LoadOrStore(rule, struct{}{}); taken {
		return limiter.ErrClaimed
	}
	return nil
}

// Decide implements [limiter.Store].
func (s *store) Decide(ctx context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil || len(charges) == 0 {
		return err
	}
	if s.denied.decide(charges) {
		s.remembered.Add(1)
		return nil
	}
	if len(charges) > 1 && s.redis.IsSplit() {
		return s.decideSplit(ctx, charges)
	}
	g, err := s.ask(ctx, take, charges)
	if err == nil {
		s.conclude(g)
		g.free()
	}
	return err
}

// ask sends charges that a script can reach together, and waits for the answer.
func (s *store) ask(ctx context.Context, op op, charges []limiter.Charge) (*group, error) {
	g := s.group(op, charges)
	return g, s.check(ctx, g, s.batcher(g.tag).ask(ctx, g))
}

// receive waits for the answer to a group that was sent.
func (s *store) receive(ctx context.Context, g *group) error {
	return s.check(ctx, g, s.batcher(g.tag).await(ctx, g))
}

func (s *store) group(op op, charges []limiter.Charge) *group {
	g := newGroup(op)
	g.charges, g.asked = charges, s.denied.asking()
	for i := range charges {
		c := &charges[i]
		tag := s.names.Digest(c.Key)
		if i == 0 {
			g.tag = tag
		}
		g.add(s.names.Name(tag, c.Quota), c)
	}
	return g
}

// check returns why a group was not decided, if it was not. The group is then no longer the
// caller's.
func (s *store) check(ctx context.Context, g *group, isAnswered bool) error {
	err, charges := context.DeadlineExceeded, g.indexes
	switch {
	case !isAnswered:
		if err := ctx.Err(); err != nil {
			return err
		}
	case g.err != nil:
		err = g.err
		g.free()
	default:
		foreign := g.foreign()
		if foreign == nil {
			return nil
		}
		g.free()
		s.warn(foreign)
		return foreign
	}
	s.denied.doubt()
	err = s.redis.Failed("redisstore", err, s.timeout)
	if charges != nil {
		return &partError{err, charges}
	}
	return err
}

// A partError is the error of one of the groups of a decision that was split.
type partError struct {
	error
	charges []int
}

// Charges returns the indexes of the group's charges, for package failover.
func (e *partError) Charges() []int { return e.charges }

func (e *partError) Unwrap() error { return e.error }

// A foreignError is about keys that hold no counter, and says nothing about the server.
type foreignError struct {
	name    string // of the first key
	charges []int
}

func (e *foreignError) Error() string {
	return fmt.Sprintf("redisstore: key %q holds no counter", e.name)
}

// Charges returns the indexes of the charges of these keys, for package failover.
func (e *foreignError) Charges() []int { return e.charges }

// OfOneKey tells package failover that it is no outage.
func (e *foreignError) OfOneKey() bool { return true }

// warn logs the first foreign key.
func (s *store) warn(err *foreignError) {
	s.warned.Do(func() {
		cmp.Or(s.log, slog.Default()).Warn("weir: a key in Redis holds no counter, so its rule's OnOutage decides; reset or delete the key, or give one of the applications another Options.Prefix",
			"code", "weir-foreign-value", "key", err.name)
	})
}

// conclude turns g's answer into decisions, and reports whether g was taken.
func (s *store) conclude(g *group) (taken bool) {
	taken = g.answer.decide(g.charges)
	s.denied.learn(g, taken)
	return taken
}

// Reset implements [limiter.Store].
func (s *store) Reset(ctx context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	return s.change(ctx, reset, charges)
}

// change settles or resets charges. It waits for Redis.
func (s *store) change(ctx context.Context, op op, charges []limiter.Charge) error {
	if err := ctx.Err(); err != nil || len(charges) == 0 {
		return err
	}
	defer s.denied.invalidate(charges)
	if op == settle {
		s.correctSlots(charges)
	}
	if !s.redis.IsSplit() {
		g, err := s.ask(ctx, op, charges)
		if err == nil {
			g.free()
		}
		return err
	}
	var failed []error
	for _, g := range s.split(op, charges) {
		if err := s.receive(ctx, g); err != nil {
			failed = append(failed, err)
		} else {
			g.free()
		}
	}
	return errors.Join(failed...)
}

// correctSlots changes which slots this process holds. Redis learns of it with the next message
// about the key.
func (s *store) correctSlots(charges []limiter.Charge) {
	for i := range charges {
		c := &charges[i]
		if !c.Quota.InFlight() {
			continue
		}
		tag := s.names.Digest(c.Key)
		name, b := s.names.Name(tag, c.Quota), s.batcher(tag)
		if c.Cost < 0 {
			b.release(name, -c.Cost, c.Decision.Receipt.At)
		} else if c.Cost > 0 {
			b.hold(name, tag, c.Quota, c.Cost)
		}
	}
}

// Check implements [limiter.Checker].
func (s *store) Check(*limiter.Quota) error { return nil }

// probeSuffix names what TryWrite writes. No counter is named like this: a tier's name is not
// empty, and has no colon.
const probeSuffix = "::probe"

// TryWrite writes to where the charges are counted, beside their counters, for package
// failover to find out whether Redis can be written.
func (s *store) TryWrite(ctx context.Context, charges []limiter.Charge) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var tags []keyfunc.Digest
	var names []string
	for i := range charges {
		tag := s.names.Digest(charges[i].Key)
		if slices.Contains(tags, tag) {
			continue
		}
		tags = append(tags, tag)
		names = append(names, s.names.Name(tag, charges[i].Quota)+probeSuffix)
	}
	if err := s.redis.TryWrite(ctx, probeLife, names...); err != nil {
		s.denied.doubt() // the refusal that came before is no sign of life
		return s.redis.Failed("redisstore", err, s.timeout)
	}
	return nil
}

// probeLife is how long what TryWrite wrote is there.
const probeLife = time.Second

// Diagnose implements what package failover asks for.
func (s *store) Diagnose(part int, err error) (server string, _ error) {
	return s.redis.Diagnose(part, len(s.batchers), err)
}
