package leasestore

import (
	"context"
	"slices"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/store"
)

// A leased is what is known of one charge of a call.
type leased struct {
	plan *plan // nil: Redis decides
	done bool  // decided with units in hand
	hand hand  // what the charge took out of hand
}

// Decide implements [limiter.Store]. While the process holds enough units, a charge takes one lock and
// one reading of the clock, and allocates nothing.
func (s *Store) Decide(ctx context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	var few [4]leased
	all := few[:]
	if len(charges) > len(few) {
		all = make([]leased, len(charges))
	}
	all = all[:len(charges)]
	isExact := true
	for i := range charges {
		all[i].plan = s.planOf(charges[i].Quota)
		isExact = isExact && all[i].plan == nil
	}
	if isExact {
		return s.exact.Decide(ctx, charges)
	}
	isDone := true
	for i := range all {
		if l := &all[i]; l.plan != nil {
			l.done, l.hand = s.spend(l.plan, &charges[i])
		}
		isDone = isDone && all[i].done
	}
	if isDone {
		return nil
	}
	return s.ask(ctx, charges, slices.Clone(all)) // the clone keeps few on the stack
}

// ask has Redis decide on the charges that are not done. Then the units that all charges took out of
// hand are spent, or put back.
func (s *Store) ask(ctx context.Context, charges []limiter.Charge, all []leased) error {
	var numbers []int
	var asked []limiter.Charge
	for i := range all {
		if l := &all[i]; !l.done {
			c := charges[i]
			c.Cost -= l.hand.units
			numbers, asked = append(numbers, i), append(asked, c)
		}
	}
	err := s.exact.Decide(ctx, asked)
	for i, n := range numbers {
		charges[n].Decision = asked[i].Decision
	}
	isTaken := err == nil && store.Taken(asked)
	for i := range all {
		l, c := &all[i], &charges[i]
		d := &c.Decision
		switch {
		case l.plan == nil:
		case err != nil:
			s.end(l, c.Key, 0, false, false)
		case !l.done:
			taken := isTaken && d.Allowed
			inHand := s.end(l, c.Key, c.Cost-l.hand.units, taken, taken && !d.Degraded)
			l.date(d)
			addHand(d, l.plan, inHand)
		case !isTaken:
			s.end(l, c.Key, 0, false, false)
			s.look(l.plan, c)
		}
	}
	return err
}

// look describes a charge whose units were put back.
func (s *Store) look(p *plan, c *limiter.Charge) {
	sh, e := s.table.lock(s.hash(p, c.Key))
	defer sh.mu.Unlock()
	if e != nil && e.plan.isOf(p) {
		e.describe(p, s.now(), &c.Decision)
	}
}

// date sets the time at which all units of a decision were counted: those from the hand and those that
// Redis took. For a window it is the earlier time, or units of the previous window could be refunded to
// the next. For a bucket it is the later time: the bucket may have been almost empty at the earlier
// one, and then less would be refunded.
func (l *leased) date(d *limiter.Decision) {
	if l.hand.units > 0 && d.Receipt.By == limiter.ByStore && l.plan.windows {
		d.Receipt.At = int64(l.hand.since)
	}
}

// spend decides on a charge with the units in hand, if there are enough. Otherwise it takes all units in
// hand, and Redis must add the rest.
func (s *Store) spend(p *plan, c *limiter.Charge) (done bool, h hand) {
	sh, e := s.table.lock(s.hash(p, c.Key))
	defer sh.mu.Unlock()
	if e != nil {
		done, h = s.spendFrom(sh, e, p, c.Cost, &c.Decision)
	}
	if done {
		sh.local++
	} else {
		sh.asked++
	}
	return done, h
}

func (s *Store) spendFrom(sh *shard, e *entry, p *plan, cost int64, d *limiter.Decision) (done bool, h hand) {
	now := s.now()
	if !e.plan.isOf(p) {
		// The limit has changed. Redis converts what was used, for exact decisions.
		e.expire(now, true)
		s.list(sh, e)
		if e.back == 0 && !e.refilling {
			e.plan, e.answer, e.demand.events = p, answer{}, 0
		}
		return false, hand{}
	}
	e.expire(now, false)
	if cost == 0 {
		return false, hand{} // a look
	}
	e.demand.touch(p, cost, now)
	if cost > p.capacity {
		return false, hand{}
	}
	h = e.hand
	if cost > h.units {
		e.hand.units = 0
		return false, h
	}
	h.units = cost
	e.hand.units -= cost
	e.describe(p, now, d)
	d.Receipt.At = int64(h.since) // when Redis counted them
	s.list(sh, e)
	return true, h
}

// describe fills in the decision on an event that was admitted or put back. It describes the state that Redis would
// have if it had never granted the units in hand.
func (e *entry) describe(p *plan, now localTime, d *limiter.Decision) {
	at, state := e.answer.earliest(now), e.answer.state()
	if !p.windows || p.sameWindow(e.answer.now, at) { // units in hand are of the answer's window
		unspent := limiter.Settlement{Charge: limiter.Charge{Cost: e.hand.units}}
		state = p.quota.Settle(state, int64(at), unspent)
	}
	*d = p.quota.Describe(state, int64(at), 0, true)
}

// end notes the result of a charge that Redis was asked about, and returns how many units are in hand.
// Units that the charge took are put back unless it was taken. counted says that Redis counted cost, not
// an outage policy. An unknown key becomes known, but one request leases nothing.
func (s *Store) end(l *leased, key string, cost int64, taken, counted bool) (inHand int64) {
	p := l.plan
	hash := s.hash(p, key)
	sh, e := s.table.lock(hash)
	defer sh.mu.Unlock()
	now := s.now()
	if e == nil && cost > 0 {
		if e = sh.add(hash, s.table.most); e != nil {
			e.tag, e.plan, e.demand.counted = s.ledger.Tag(key), p, now.add(-time.Second)
			e.demand.touch(p, cost, now)
		}
	}
	if e == nil || !e.plan.isOf(p) {
		return 0 // the units are lost, and come back as if they had been spent
	}
	if counted && cost > 0 {
		e.answer.count(p, cost, now)
	}
	if !taken && (!p.windows || p.sameWindow(e.hand.since, l.hand.since)) { // units of another window are lost
		e.hand.units += l.hand.units
	}
	e.expire(now, false)
	if cost > 0 || e.back > 0 {
		s.list(sh, e)
	}
	return e.hand.units
}

// addHand adds the units in hand to Remaining, in a decision of Redis.
func addHand(d *limiter.Decision, p *plan, inHand int64) {
	if inHand == 0 || d.Degraded {
		return
	}
	d.Remaining = min(d.Limit, d.Remaining+inHand)
	if d.Remaining == d.Limit {
		d.NextAfter, d.ResetAfter = 0, 0
	} else if !p.windows {
		back := time.Duration(float64(p.quota.Window()) * float64(inHand) / float64(p.capacity))
		d.ResetAfter = max(d.NextAfter, d.ResetAfter-back.Truncate(time.Microsecond))
	}
}

// surrender takes all units of a key out of hand, returns how many there were, and forgets Redis's
// answer. Units of a window that has ended do not count. Units that Redis is granting at this moment are
// kept, unless the key is reset.
func (s *Store) surrender(p *plan, key string, isReset bool) (units int64) {
	sh, e := s.table.lock(s.hash(p, key))
	defer sh.mu.Unlock()
	if e == nil {
		return 0
	}
	e.expire(s.now(), false)
	s.list(sh, e) // the others may hold that much more
	units = min(e.hand.units, p.capacity)
	e.hand.units, e.answer = 0, answer{}
	if isReset {
		e.back, e.refilling = 0, false
	}
	if !e.plan.isOf(p) {
		return 0
	}
	return units
}
