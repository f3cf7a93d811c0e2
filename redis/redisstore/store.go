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

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	stores "github.com/weirgo/weir/limiter/store"
	"github.com/weirgo/weir/redis/internal/counters"
	"github.com/weirgo/weir/redis/internal/wire"
)

// shared is what a Store has for all deadlines.
type shared struct {
	names     counters.Names
	transport *wire.Transport
	script    *wire.Script
	tries     bool // whether a proxy splits
	clock     counters.Clock
	denied    *denyCache // nil, which works: no refusal is remembered
	unsettled unsettled

	batches    atomic.Uint64 // sent
	remembered atomic.Uint64 // decisions
	claimed    sync.Map      // names of rules
	warned     sync.Once     // of a foreign value
	log        *slog.Logger  // nil: slog.Default
}

func newShared(client redis.UniversalClient, o Options) *shared {
	s := &shared{
		names:     counters.New(o.Prefix, o.Secret, counters.Format),
		transport: wire.NewTransport(client, o.OneTag),
		script:    script,
		log:       o.Failover.Logger,
	}
	if !o.ForgetRefusals {
		s.denied = newDenyCache()
	}
	return s
}

// Claim notes that a limiter counts under rule.
func (s *shared) Claim(rule string) error {
	if _, taken := s.claimed.LoadOrStore(rule, struct{}{}); taken {
		return limiter.ErrClaimed
	}
	return nil
}

// store decides in Redis with a deadline, without outage policies.
type store struct {
	*shared
	timeout time.Duration
	strict  *wire.Transport // for callers that lead: it waits for the timeout
	patient *wire.Transport // for batches that go on when their callers have left
	pipes   []*pipe         // one, or a power of two of them in a Cluster
	slots   *slots
}

const (
	// clusterPipes is how many ranges of slots have a pipe of their own in a Cluster.
	clusterPipes = 32

	// maxBatch is the most charges in one batch. The charges of one decision are never split. It bounds
	// how long a script runs: some 4 microseconds for each charge.
	maxBatch = 256

	// parallel is how many batches are in flight at once where a round trip is long.
	parallel = 8

	// connecting is how long a call waits at most while no connection was ever made.
	connecting = time.Second
)

func newStore(of *shared, timeout time.Duration) *store {
	s := &store{shared: of, timeout: timeout, strict: of.transport.Within(timeout), patient: of.transport.Within(unawaited * timeout)}
	s.slots = newSlots(s)
	c := config{
		idle: of.transport.HasIdle, most: maxBatch, timeout: timeout, long: longTrip,
		first: min(connecting, of.transport.DialTimeout()), waited: new(atomic.Int64),
	}
	s.pipes = make([]*pipe, 1)
	switch client := of.transport.Client.(type) {
	case *redis.Client:
		c.parallel = min(parallel, max(2, client.Options().PoolSize/2)) // others need connections too
		c.leads = true
	default:
		s.pipes = make([]*pipe, clusterPipes)
		c.parallel = 2 // the pipes share connections
	}
	for i := range s.pipes {
		c := c
		c.reach = func() error {
			ctx, cancel := context.WithTimeout(context.Background(), connecting)
			defer cancel()
			return of.transport.Reach(ctx, i, len(s.pipes))
		}
		s.pipes[i] = newPipe(c, s.send)
	}
	return s
}

// pipe returns the pipe of the keys with this tag.
func (s *store) pipe(tag keyfunc.Digest) *pipe { return s.pipes[s.part(tag)] }

// part returns the number of a tag's pipe. In a Cluster each pipe has a range of slots,
// which is mostly on one node, so a node that is down delays only its own keys.
func (s *store) part(tag keyfunc.Digest) int {
	if len(s.pipes) == 1 {
		return 0
	}
	return int(wire.SlotOf(tag[:])) * len(s.pipes) / wire.Slots
}

// Part tells package failover what fails apart from what.
func (s *store) Part(c *limiter.Charge) int {
	if len(s.pipes) == 1 {
		return 0
	}
	return s.part(s.names.Digest(c.Key))
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
		s.slots.waited(charges)
		return nil
	}
	if slices.ContainsFunc(charges, ofSlots) {
		return s.decideWithSlots(ctx, charges)
	}
	if len(charges) > 1 && s.transport.IsSplit() {
		return s.decideRates(ctx, take, charges, all(charges))
	}
	c := s.call(take, charges)
	if err := s.askOne(ctx, c); err != nil {
		return err
	}
	s.conclude(c)
	c.free()
	return nil
}

// all returns the indexes of charges.
func all(charges []limiter.Charge) []int {
	at := make([]int, len(charges))
	for i := range at {
		at[i] = i
	}
	return at
}

func ofSlots(c limiter.Charge) bool { return c.Quota.InFlight() }

// decideWithSlots acquires slots, and then takes the other charges. If one is refused or fails, the slots are
// released: that is exact and can be repeated, where a refund is neither. If a slot is refused, the other charges are
// looked at.
func (s *store) decideWithSlots(ctx context.Context, charges []limiter.Charge) error {
	own, rates := split(charges)
	parts, err := s.slots.take(ctx, charges, own)
	report(charges, parts)
	isTaken := err == nil
	for _, c := range parts {
		isTaken = isTaken && stores.Taken(c.charges)
	}
	if err == nil && len(rates) > 0 {
		op := take
		if !isTaken {
			op = look
		}
		err = s.decideRates(ctx, op, charges, rates)
		isTaken = isTaken && err == nil && stores.Taken(charges)
	}
	if isTaken {
		s.slots.keep(parts)
	} else {
		s.slots.undo(parts)
		report(charges, parts)
	}
	for _, c := range parts {
		c.free()
	}
	return err
}

// split returns the indexes of charges for slots, and of the others.
func split(charges []limiter.Charge) (slots, rates []int) {
	for i, c := range charges {
		if ofSlots(c) {
			slots = append(slots, i)
		} else {
			rates = append(rates, i)
		}
	}
	return slots, rates
}

// report copies the decisions of calls to the charges that they were made of.
func report(charges []limiter.Charge, calls []*call) {
	for _, c := range calls {
		for i, index := range c.indexes {
			charges[index].Decision = c.charges[i].Decision
		}
	}
}

// decideRates decides about the charges at the indexes, which have no slots, and takes them if op is take. One script
// may not reach all keys: then each key has a call of its own, and if one is refused or fails, the others are refunded.
func (s *store) decideRates(ctx context.Context, op op, charges []limiter.Charge, at []int) error {
	calls := s.calls(op, charges, at)
	all, decided := true, calls[:0]
	var failed []error
	for i, err := range s.ask(ctx, calls) {
		if err != nil {
			failed = append(failed, err)
			continue
		}
		all = s.conclude(calls[i]) && all
		decided = append(decided, calls[i])
	}
	if op == take && (!all || failed != nil) {
		s.undo(decided)
	}
	report(charges, decided)
	for _, c := range decided {
		c.free()
	}
	return errors.Join(failed...)
}

// undo refunds the calls that were taken, and describes them as looks. It goes on after the caller has
// left. Units that cannot be refunded stay used, which admits nothing.
func (s *store) undo(decided []*call) {
	var refunds []*call
	for _, c := range decided {
		if !stores.Taken(c.charges) {
			continue
		}
		for i := range c.charges {
			if c := &c.charges[i]; c.Decision.Allowed {
				c.Cost, c.Decision.Receipt = -c.Cost, c.Quota.Undo(&c.Decision)
			} else {
				c.Cost = 0 // it is optional, and took nothing
			}
		}
		refund := s.call(settle, c.charges)
		s.pipe(c.tag).enqueue(refund)
		refunds = append(refunds, refund)
	}
	for _, c := range refunds {
		if s.receive(context.Background(), c) == nil {
			c.reply.look(c.charges)
			s.denied.learn(c, false)
			c.free()
		}
	}
}

// call makes a call of charges.
func (s *store) call(op op, charges []limiter.Charge) *call {
	c := newCall(op)
	c.charges, c.asked = charges, s.denied.asking()
	for i := range charges {
		tag := s.names.Digest(charges[i].Key)
		if i == 0 {
			c.tag = tag
		}
		c.add(s.names.Name(tag, charges[i].Quota), &charges[i])
	}
	return c
}

// calls makes calls of the charges at the indexes: one, or one for each key if a script can reach one key only. A key
// is in one slot of a Cluster, and so on one node.
func (s *store) calls(op op, charges []limiter.Charge, at []int) (calls []*call) {
	isSplit, asked := s.transport.IsSplit(), s.denied.asking()
	for _, i := range at {
		charge := &charges[i]
		tag := s.names.Digest(charge.Key)
		p := slices.IndexFunc(calls, func(c *call) bool { return !isSplit || c.tag == tag })
		if p < 0 {
			p = len(calls)
			calls = append(calls, newCall(op))
			calls[p].tag, calls[p].asked = tag, asked
		}
		c := calls[p]
		c.add(s.names.Name(tag, charge.Quota), charge)
		c.charges, c.indexes = append(c.charges, *charge), append(c.indexes, i)
	}
	return calls
}

// ask sends calls, all at the same time, and returns for each why it was not decided.
func (s *store) ask(ctx context.Context, calls []*call) []error {
	errs := make([]error, len(calls))
	if len(calls) == 1 {
		errs[0] = s.askOne(ctx, calls[0])
		return errs
	}
	for _, c := range calls {
		s.pipe(c.tag).enqueue(c)
	}
	for i, c := range calls {
		errs[i] = s.receive(ctx, c)
	}
	return errs
}

// askOne sends a call and waits for the reply.
func (s *store) askOne(ctx context.Context, c *call) error {
	return s.check(ctx, c, s.pipe(c.tag).ask(ctx, c))
}

// receive waits for the reply to a call that was sent.
func (s *store) receive(ctx context.Context, c *call) error {
	return s.check(ctx, c, s.pipe(c.tag).await(ctx, c))
}

// check returns why a call was not decided, if it was not. The call is then no longer the caller's.
func (s *store) check(ctx context.Context, c *call, isAnswered bool) error {
	err, charges := error(context.DeadlineExceeded), c.indexes
	switch {
	case !isAnswered:
		if err := ctx.Err(); err != nil {
			return err
		}
		if c.connects {
			err = errConnecting
		}
	case c.err != nil:
		err = c.err
		c.free()
	default:
		foreign := c.foreign()
		if foreign == nil {
			return nil
		}
		c.free()
		s.warn(foreign)
		return foreign
	}
	err = s.transport.Failed("redisstore", err, s.timeout)
	if charges != nil {
		return &partError{err, charges}
	}
	return err
}

// A partError is the error of some of the charges of a decision.
type partError struct {
	error
	charges []int
}

// Charges returns the indexes of the charges, for package failover.
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

// conclude turns c's reply into decisions, and reports whether c was taken.
func (s *store) conclude(c *call) (taken bool) {
	taken = c.reply.decide(c.charges, c.op != look)
	s.denied.learn(c, taken)
	return taken
}

// Reset implements [limiter.Store].
func (s *store) Reset(ctx context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	slots, rates := split(charges)
	return errors.Join(s.change(ctx, reset, charges, rates), s.change(ctx, resetSlots, charges, slots))
}

// change settles or resets the charges at the indexes. It waits for Redis.
func (s *store) change(ctx context.Context, op op, charges []limiter.Charge, at []int) error {
	if err := ctx.Err(); err != nil || len(at) == 0 {
		return err
	}
	defer s.denied.invalidate(charges)
	calls := s.calls(op, charges, at)
	errs := s.ask(ctx, calls)
	for i, c := range calls {
		if errs[i] == nil {
			c.free()
		}
	}
	return errors.Join(errs...)
}

// Settle implements [limiter.Store]. It waits for Redis, also if ctx ends, with settlements beyond
// mostUnsettled and of events that this process counted in an outage, as package failover needs to know
// whether Redis has those.
func (s *store) Settle(ctx context.Context, settlements []limiter.Settlement) error {
	if err := limiter.CheckSettlements(settlements); err != nil {
		return err
	}
	charges := make([]limiter.Charge, len(settlements)) // that are owed, or refunded, where the cost is below 0
	var owed []int
	for i := range settlements {
		c := &charges[i]
		*c = settlements[i].Charge
		if c.Cost = settlements[i].Actual - c.Cost; c.Cost == 0 {
			continue
		}
		if ofSlots(*c) {
			s.slots.correct(c)
		} else {
			owed = append(owed, i)
		}
		s.denied.invalidate(charges[i : i+1])
	}
	for n, i := range owed {
		if charges[i].Decision.Receipt.By == limiter.ByShare || !s.unsettled.add() {
			return s.change(context.WithoutCancel(ctx), settle, charges, owed[n:])
		}
		c := s.call(settle, charges[i:i+1])
		c.ended = s.settled
		s.pipe(c.tag).linger(c)
	}
	return nil
}

// settled ends a settlement that is answered or will not be.
func (s *store) settled(c *call) {
	s.denied.invalidate(c.charges) // what was heard meanwhile may be of before
	s.unsettled.remove(c.err != nil || c.foreign() != nil)
}

// mostUnsettled is how many settlements may wait without a caller. Callers of further
// settlements wait.
const mostUnsettled = 1024

// unsettled counts settlements without a caller that waits.
type unsettled struct {
	count  atomic.Int64
	lost   atomic.Uint64 // which Redis did not say that it has
	closed atomic.Bool   // callers wait for all others
}

// add reports whether there is room for another.
func (u *unsettled) add() bool {
	if u.count.Add(1) > mostUnsettled || u.closed.Load() {
		u.count.Add(-1)
		return false
	}
	return true
}

func (u *unsettled) remove(lost bool) {
	if lost {
		u.lost.Add(1)
	}
	u.count.Add(-1)
}

// Check implements [limiter.Checker].
func (s *store) Check(*limiter.Quota) error { return nil }

// probeSuffix names what TryWrite writes. No counter is named like this: a tier's name is not
// empty, and has no colon.
const probeSuffix = "::probe"

// TryWrite writes to where the charges are counted, beside their counters, for package
// failover to find out whether Redis can be written.
func (s *store) TryWrite(ctx context.Context, charges []limiter.Charge) error {
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
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_, err := wire.Call(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.strict.TryWrite(ctx, probeLife, names...)
	})
	return s.transport.Failed("redisstore", err, s.timeout)
}

// probeLife is how long what TryWrite wrote is there.
const probeLife = time.Second

// Diagnose implements what package failover asks for.
func (s *store) Diagnose(part int, err error) (server string, _ error) {
	return s.transport.Diagnose(part, len(s.pipes), err)
}
