package leasestore

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/weirgo/weir/limiter"
)

// How Synchronized charges are decided on. An entry's state is what Redis said last, with
// what was counted here since. It may be above the limit, by what others admitted at the
// same time.

// A counter is the limiter.Store of Synchronized rules, for package failover to be put
// around. It never waits. While counts cannot be exchanged it gives the reason for an error.
type counter struct{ *Store }

// Unwrap hides what the exact store says of itself, which is not true of the counts.
func (c counter) Unwrap() limiter.Store { return nil }

// Within implements [limiter.Bounded]: no call takes any time.
func (c counter) Within(time.Duration) limiter.Store { return c }

// TryWrite implements [limiter.Writer]: a refusal here says as much about Redis
// as anything, since it came after an exchange.
func (c counter) TryWrite(context.Context, []limiter.Charge) error {
	if lost := c.lost.Load(); lost != nil {
		return *lost
	}
	return nil
}

// Diagnose implements [limiter.Diagnoser], if the ledger does.
func (c counter) Diagnose(part int, err error) (server string, _ error) {
	if l, ok := c.ledger.(limiter.Diagnoser); ok {
		return l.Diagnose(part, err)
	}
	return "", err
}

// now is Redis's time, at least.
func (c counter) redisNow() int64 { return c.offset.Load() + c.Store.now() }

// Decide implements [limiter.Store].
func (c counter) Decide(ctx context.Context, charges []limiter.Charge, decisions []limiter.Decision) error {
	if lost := c.lost.Load(); lost != nil {
		return *lost
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(charges) == 1 {
		p := c.plans.of(charges[0].Quota)
		sh, e, cell := c.lock(p, charges[0].Key)
		now := c.Store.now()
		after := c.decide(p, e, c.offset.Load()+now, charges[0].Cost, &decisions[0])
		if decisions[0].Allowed {
			e.count(p, after, charges[0].Cost)
		}
		c.touch(sh, e, cell, now)
		sh.mu.Unlock()
		return nil
	}
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	return c.decideTogether(charges, decisions)
}

// lock finds or makes the entry of a key, and leaves its shard locked.
func (c counter) lock(p *plan, key string) (*shard, *entry, uint32) {
	hash := c.hash(p, key)
	sh := c.table.shard(hash)
	sh.mu.Lock()
	e, cell := sh.find(hash)
	if e == nil {
		sh.mu.Unlock()
		tag := c.ledger.Tag(key)
		sh.mu.Lock()
		if e, cell = sh.find(hash); e == nil {
			e = sh.add(hash, c.table.most, true, c.worth)
			_, cell = sh.find(hash)
			e.tag, e.plan = tag, p.number
		}
	}
	return sh, e, cell
}

// present is e's state at a time. A bucket that is above its limit takes longer to drain than
// a full one, which the quota's functions know nothing of: to them it is at the present.
func (p *plan) present(e *entry, at int64) limiter.State {
	s := e.state()
	if s.Level == 0 && s.Prev == 0 {
		s.Last = max(s.Last, at)
	} else if p.refill > 0 && at > s.Last {
		s.Level = max(0, s.Level-(at-s.Last)*p.refill)
		s.Last = at
	}
	return s
}

// state is e's as one of p's: under another limit, what was used stays used. It is written
// only with what is counted, or two limits that are asked in turn would make room for each
// other.
func (c counter) state(e *entry, p *plan, at int64) limiter.State {
	before := p
	if e.plan != p.number {
		before = c.plans.numbered(e.plan)
	}
	s := before.present(e, at)
	if before != p {
		s = limiter.State{Last: at, Level: min(p.capacity, before.inUse(s, at)) * p.unit}
	}
	return s
}

// set writes a state of p's.
func (e *entry) set(p *plan, s limiter.State) {
	e.plan = p.number
	e.last, e.level, e.prev = s.Last, s.Level, s.Prev
}

// decide fills in the decision on a charge, returns the state after it, and changes nothing.
func (c counter) decide(p *plan, e *entry, at, cost int64, d *limiter.Decision) (after limiter.State) {
	s, ok := p.quota.Take(c.state(e, p, at), at, cost)
	if !ok || cost == 0 || e.pending <= p.capacity-cost {
		*d = p.describe(s, at, cost, ok)
		return s
	}
	// No process admits more than a burst that others have not heard of, even where the limit has
	// brought back more since the last exchange.
	s = c.state(e, p, at)
	*d = p.describe(s, at, 0, true)
	d.Allowed, d.Remaining = false, min(d.Remaining, cost-1)
	d.RetryAfter, d.NextAfter = exchangeEvery, exchangeEvery
	d.ResetAfter = max(d.ResetAfter, d.NextAfter)
	return s
}

// describe is Quota.Describe for a state that may be above the limit.
func (p *plan) describe(s limiter.State, at, cost int64, ok bool) limiter.Decision {
	d := p.quota.Describe(s, at, cost, ok)
	if d.Remaining < 0 {
		d.Remaining = 0
		d.NextAfter = p.quota.Describe(s, at, 1, false).RetryAfter
	}
	return d
}

// count writes the state after what was admitted.
func (e *entry) count(p *plan, after limiter.State, cost int64) {
	if cost > 0 {
		e.set(p, after)
		e.pending += cost
	}
}

// touch has the entry exchanged: what others count on it matters as long as it is asked for.
func (c counter) touch(sh *shard, e *entry, cell uint32, now int64) {
	e.touched = now
	sh.local++
	c.list(sh, e, cell, counted)
}

// decideTogether locks all shards that charges touch, in one order, and counts only when all
// charges are allowed.
func (c counter) decideTogether(charges []limiter.Charge, decisions []limiter.Decision) error {
	for i := range charges {
		sh, _, _ := c.lock(c.plans.of(charges[i].Quota), charges[i].Key) // so that there is an entry
		sh.mu.Unlock()
	}
	held := c.lockAll(charges)
	defer func() {
		for _, sh := range held {
			sh.mu.Unlock()
		}
	}()
	all, now := true, c.Store.now()
	at := c.offset.Load() + now
	after := make([]limiter.State, len(charges))
	for i := range charges {
		_, e, _, p := c.entryOf(&charges[i])
		if e == nil { // it was evicted in between: as good as new
			decisions[i] = p.describe(limiter.State{}, at, charges[i].Cost, charges[i].Cost <= p.capacity)
		} else {
			after[i] = c.decide(p, e, at, charges[i].Cost, &decisions[i])
		}
		all = all && decisions[i].Allowed
	}
	for i := range charges {
		sh, e, cell, p := c.entryOf(&charges[i])
		if e == nil {
			continue
		}
		switch {
		case all:
			e.count(p, after[i], charges[i].Cost)
		case decisions[i].Allowed:
			c.decide(p, e, at, 0, &decisions[i])
		}
		c.touch(sh, e, cell, now)
	}
	return nil
}

func (c counter) entryOf(charge *limiter.Charge) (*shard, *entry, uint32, *plan) {
	p := c.plans.of(charge.Quota)
	hash := c.hash(p, charge.Key)
	sh := c.table.shard(hash)
	e, cell := sh.find(hash)
	return sh, e, cell, p
}

func (c counter) lockAll(charges []limiter.Charge) (held []*shard) {
	numbers := make([]int, 0, limiter.MaxCharges)
	for i := range charges {
		numbers = append(numbers, int(c.hash(c.plans.of(charges[i].Quota), charges[i].Key)>>58))
	}
	slices.Sort(numbers)
	for _, n := range slices.Compact(numbers) {
		sh := &c.table.shards[n]
		sh.mu.Lock()
		held = append(held, sh)
	}
	return held
}

// Refund implements [limiter.Store].
func (c counter) Refund(_ context.Context, charges []limiter.Charge) error {
	if lost := c.lost.Load(); lost != nil {
		return *lost
	}
	for i := range charges {
		p := c.plans.of(charges[i].Quota)
		sh, e, cell := c.lock(p, charges[i].Key)
		now := c.Store.now()
		at := c.offset.Load() + now
		s := c.state(e, p, at)
		n := min(charges[i].Cost, p.inUse(s, at))
		if n > 0 {
			after := p.quota.Refund(s, at, n, charges[i].At)
			if charges[i].At != 0 {
				n = p.inUse(s, at) - p.inUse(after, at) // what is gone is not returned
			}
			e.set(p, after)
			e.pending -= n
		}
		c.touch(sh, e, cell, now)
		sh.mu.Unlock()
	}
	return nil
}

// inUse is how many units of a limit are in use.
func (p *plan) inUse(s limiter.State, at int64) int64 {
	return p.capacity - max(0, p.quota.Describe(s, at, 0, true).Remaining)
}

// Reset implements [limiter.Store]. It waits for Redis.
func (c counter) Reset(ctx context.Context, charges []limiter.Charge) error {
	for i := range charges {
		p := c.plans.of(charges[i].Quota)
		sh, e, _ := c.lock(p, charges[i].Key)
		tag := e.tag
		e.last, e.level, e.prev, e.pending = 0, 0, 0, 0
		e.busy = false // what an exchange under way says is of before
		sh.mu.Unlock()
		if err := c.ledger.Forget(ctx, tag, p.quota); err != nil {
			return err
		}
	}
	return nil
}

// worth is what an entry is worth when there are too many; a negative worth keeps it. Of
// Synchronized keys those nearest to their initial state go first.
func (s *Store) worth(e *entry) int64 {
	if e.stock != 0 || e.back != 0 || e.pending != 0 {
		return -1
	}
	p := s.plans.numbered(e.plan)
	if p.mode != Synchronized {
		return max(0, e.touched+life.Microseconds()-s.now())
	}
	at := counter{s}.redisNow()
	reset := p.describe(p.present(e, at), at, 0, true).ResetAfter
	return min(reset.Microseconds(), math.MaxInt64/2)
}

// sweepCount forgets an entry that is back in its initial state and is not asked for.
func (s *Store) sweepCount(sh *shard, e *entry, cell uint32, p *plan, now int64) {
	switch {
	case e.pending != 0:
		s.list(sh, e, cell, counted)
	case len(sh.index) > s.table.most, now-e.touched > life.Microseconds() && s.worth(e) == 0:
		sh.remove(cell)
	}
}
