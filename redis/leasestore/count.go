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
			c.count(e, p, after, charges[0].Cost)
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

// advanced is s at a time. Of what was taken when 1970 began there is nothing to be refunded.
func (p *plan) advanced(s limiter.State, at int64) limiter.State {
	return p.quota.Refund(s, at, 1, 1)
}

// state is e's as one of p's ([limiter.Quota.Convert]).
func (c counter) state(e *entry, p *plan, at int64) limiter.State {
	before := p
	if e.plan != p.number {
		before = c.plans.numbered(e.plan)
	}
	s := before.present(e, at)
	if before.quota.Settles {
		s.Log = c.table.shard(e.hash).lows[e.hash]
	}
	return p.quota.Convert(before.quota, s, at)
}

// set writes a state of p's.
func (c counter) set(e *entry, p *plan, s limiter.State) {
	e.plan = p.number
	e.last, e.level, e.prev = s.Last, s.Level, s.Prev
	c.table.shard(e.hash).keepLows(e.hash, s.Log)
}

// decide fills in the decision on a charge, returns the state after it, and changes nothing.
func (c counter) decide(p *plan, e *entry, at, cost int64, d *limiter.Decision) (after limiter.State) {
	s, ok := p.quota.Take(c.state(e, p, at), at, cost)
	if !ok || cost == 0 || e.pending <= p.capacity-cost {
		*d = p.quota.Describe(s, at, cost, ok)
		return s
	}
	// No process admits more than a burst that others have not heard of, even where the limit has
	// brought back more since the last exchange.
	s = c.state(e, p, at)
	*d = p.quota.Describe(s, at, 0, true)
	d.Allowed, d.Remaining = false, min(d.Remaining, cost-1)
	d.RetryAfter, d.NextAfter = exchangeEvery, exchangeEvery
	d.ResetAfter = max(d.ResetAfter, d.NextAfter)
	return s
}

// count writes the state after what was admitted.
func (c counter) count(e *entry, p *plan, after limiter.State, cost int64) {
	if cost > 0 {
		c.set(e, p, after)
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
			decisions[i] = p.quota.Describe(limiter.State{}, at, charges[i].Cost, charges[i].Cost <= p.capacity)
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
			c.count(e, p, after[i], charges[i].Cost)
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
	c.refund(charges)
	return nil
}

func (c counter) refund(charges []limiter.Charge) {
	c.change(charges, func(e *entry, p *plan, s limiter.State, n, at int64) limiter.State {
		after := p.quota.Refund(s, s.Last, n, at)
		back := s.Level - after.Level
		if after.Level == 0 {
			back += p.unit - 1 // of a unit that has drained in part, the rest
		}
		e.pending -= back / p.unit
		if past := s.Prev - after.Prev; past > 0 && at == 0 {
			e.pending -= past
		} else if past > 0 {
			if e.past > 0 && !p.sameWindow(at, e.pastAt) {
				e.past = 0 // which is of a window before
			}
			e.past, e.pastAt = e.past+past, at
		}
		return after
	})
}

// Owe implements [limiter.Store].
func (c counter) Owe(_ context.Context, charges []limiter.Charge) error {
	if lost := c.lost.Load(); lost != nil {
		return *lost
	}
	c.owe(charges)
	return nil
}

func (c counter) owe(charges []limiter.Charge) {
	c.change(charges, func(e *entry, p *plan, s limiter.State, n, _ int64) limiter.State {
		e.owed = min(e.owed+min(n, 2*p.capacity), 2*p.capacity)
		return p.owe(s, n)
	})
}

// owe is Quota.Owe for a state at the present that may be further above the limit.
func (p *plan) owe(s limiter.State, n int64) limiter.State {
	if s.Level >= 2*p.capacity*p.unit {
		return s
	}
	return p.quota.Owe(s, s.Last, n)
}

// Settle implements [limiter.Settler]. Redis is told in the next exchange, even if that comes after
// an outage.
func (c counter) Settle(_ context.Context, settlements []limiter.Settlement) error {
	refunds, debts := limiter.Corrections(settlements)
	c.refund(refunds)
	c.owe(debts)
	return nil
}

// counted is the plan that e's state is of, if something is used, and else p. What is corrected
// stays under it, as a lower limit would forget what was used above it.
func (c counter) counted(e *entry, p *plan, at int64) *plan {
	before := c.plans.numbered(e.plan)
	if before == p || before.mode != Synchronized {
		return p
	}
	if d := before.quota.Describe(before.present(e, at), at, 0, true); d.Remaining < d.Limit {
		return before
	}
	return p
}

// change writes what f makes of the states of charges.
func (c counter) change(charges []limiter.Charge, f func(e *entry, p *plan, s limiter.State, n, at int64) limiter.State) {
	for i := range charges {
		charge := &charges[i]
		p := c.plans.of(charge.Quota)
		sh, e, cell := c.lock(p, charge.Key)
		now := c.Store.now()
		at := c.offset.Load() + now
		if charge.Cost > 0 {
			p := c.counted(e, p, at)
			s := p.advanced(c.state(e, p, at), at)
			c.set(e, p, f(e, p, s, charge.Cost, charge.At))
		}
		c.touch(sh, e, cell, now)
		sh.mu.Unlock()
	}
}

// Reset implements [limiter.Store]. It waits for Redis.
func (c counter) Reset(ctx context.Context, charges []limiter.Charge) error {
	for i := range charges {
		p := c.plans.of(charges[i].Quota)
		sh, e, _ := c.lock(p, charges[i].Key)
		tag := e.tag
		e.last, e.level, e.prev = 0, 0, 0
		e.pending, e.owed, e.past = 0, 0, 0
		sh.keepLows(e.hash, nil)
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
	if e.stock != 0 || e.back != 0 || e.isUntold() {
		return -1
	}
	p := s.plans.numbered(e.plan)
	if p.mode != Synchronized {
		return max(0, e.touched+life.Microseconds()-s.now())
	}
	at := counter{s}.redisNow()
	reset := p.quota.Describe(p.present(e, at), at, 0, true).ResetAfter
	return min(reset.Microseconds(), math.MaxInt64/2)
}

// sweepCount forgets an entry that is back in its initial state and is not asked for.
func (s *Store) sweepCount(sh *shard, e *entry, cell uint32, p *plan, now int64) {
	switch {
	case e.isUntold():
		s.list(sh, e, cell, counted)
	case len(sh.index) > s.table.most, now-e.touched > life.Microseconds() && s.worth(e) == 0:
		sh.remove(cell)
	}
}
