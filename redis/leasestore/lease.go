package leasestore

import (
	"time"

	"github.com/weirgo/weir/limiter"
)

// How a leased charge is decided on, with what is in hand.

// A hand is units in hand that one charge uses, and Redis's time when they were granted.
type hand struct{ units, since int64 }

// date sets the time at which all units of a decision were counted: those in h and those that
// Redis took. For a window it is the earlier time, or units of the previous window could be
// refunded to the next. For a bucket it is the later time: the bucket may have been almost
// empty at the earlier one, and then less would be refunded.
func (h hand) date(p *plan, d *limiter.Decision) {
	if h.units > 0 && d.Receipt.By == limiter.ByStore && p.windows {
		d.Receipt.At = h.since
	}
}

// spend decides on a charge with the units in hand, if there are enough. Otherwise it takes all
// units in hand, and Redis must add the rest.
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
		if e.back == 0 && !e.settling {
			e.plan, e.said, e.sights = p, answer{}, 0
		}
		return false, hand{}
	}
	e.expire(now, false)
	if cost == 0 {
		return false, hand{} // a look
	}
	e.touch(p, cost, now)
	switch {
	case cost > p.capacity:
		return false, hand{}
	case cost <= e.stock:
		e.stock -= cost
		e.describe(p, now, d)
		d.Receipt.At = e.since // when Redis counted them
		s.list(sh, e)
		return true, hand{cost, e.since}
	}
	h = hand{e.stock, e.since}
	e.stock = 0
	return false, h
}

// touch counts an event that asks for the key.
func (e *entry) touch(p *plan, cost, now int64) {
	e.touched = now
	e.sights = min(e.sights, 1) + 1
	e.recent = min(e.recent+min(cost, p.capacity), p.capacity)
}

// expire takes units out of hand: those whose lease has ended, or all of them. They are
// returned, unless their lease ended so long ago that Redis no longer counts them as held.
func (e *entry) expire(now int64, all bool) {
	if e.stock > 0 && (all || now >= e.until) {
		e.back += e.stock
		e.stock = 0
	}
	if e.back > 0 && now >= e.until+grace.Microseconds() {
		e.back = 0
	}
}

// view returns the state of the counter as Redis would see it at that time if it had never
// granted the units in hand.
func (e *entry) view(p *plan, at int64) limiter.State {
	s := e.state()
	if p.windows && !p.sameWindow(e.said.now, at) {
		return s // what was taken of the window before is not of this one, and nothing is in hand
	}
	return p.quota.Settle(s, at, limiter.Settlement{Charge: limiter.Charge{Cost: e.stock}})
}

// describe fills in the decision on an admitted event, or on one that was put back: the last answer of Redis, less
// what this process has spent since.
func (e *entry) describe(p *plan, now int64, d *limiter.Decision) {
	at := e.earliest(now)
	*d = p.quota.Describe(e.view(p, at), at, 0, true)
}

// asked notes the result of a charge that Redis was asked about, and returns how many units are
// in hand. Units that the charge used are put back unless the charge was taken. An unknown key
// becomes known, but one request leases nothing. If Redis did not decide, it charged nothing.
func (s *Store) asked(p *plan, key string, cost int64, h hand, taken, undecided bool) (inHand int64) {
	hash := s.hash(p, key)
	sh, e := s.table.lock(hash)
	defer sh.mu.Unlock()
	now := s.now()
	if e == nil && cost > 0 {
		if e = sh.add(hash, s.table.most); e != nil {
			e.tag, e.plan, e.counted = s.ledger.Tag(key), p, now-time.Second.Microseconds()
			e.touch(p, cost, now)
		}
	}
	if e == nil || !e.plan.isOf(p) {
		return 0 // it is lost, and comes back as if it had been spent
	}
	switch {
	case taken && undecided:
	case taken && cost > 0:
		e.count(p, cost, now)
	case !taken && (!p.windows || p.sameWindow(e.since, h.since)):
		e.stock += h.units // and what is of another window is lost
	}
	e.expire(now, false)
	if cost > 0 || e.back > 0 {
		s.list(sh, e)
	}
	return e.stock
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

// surrender takes all units of a key out of hand, returns how many there were, and forgets what
// Redis said. Units of a window that has ended do not count. Units that Redis is granting at
// this moment are kept, unless the key is reset.
func (s *Store) surrender(p *plan, key string, isReset bool) (units int64) {
	sh, e := s.table.lock(s.hash(p, key))
	defer sh.mu.Unlock()
	if e == nil {
		return 0
	}
	e.expire(s.now(), false)
	s.list(sh, e) // the others may hold that much more
	units = min(e.stock, p.capacity)
	e.stock, e.said = 0, answer{}
	if isReset {
		e.back, e.settling = 0, false
	}
	if !e.plan.isOf(p) {
		return 0
	}
	return units
}
