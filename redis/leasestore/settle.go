package leasestore

import (
	"context"
	"math"
	"time"
)

// list has the loop look at an entry next. The shard is locked.
func (s *Store) list(sh *shard, e *entry, cell uint32) {
	if e.listed {
		return
	}
	e.listed = true
	sh.listed = append(sh.listed, cell)
	if s.dozing.Load() {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// A round is what the loop brings to Redis at once.
type round struct {
	leases []lease
	of     []uint64 // their hashes
}

// mostInRound bounds a round; what does not fit is in the next one.
const mostInRound = 2048

func (r *round) reset() {
	r.leases, r.of = r.leases[:0], r.of[:0]
}

// settle is one round of leases.
func (s *Store) settle() error {
	r := &s.rounds
	r.reset()
	s.gather(r)
	if len(r.leases) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	asked := s.now()
	err := s.ledger.Settle(ctx, r.leases)
	heard := s.now()
	for i := range r.leases {
		s.settled(&r.leases[i], r.of[i], asked, heard)
	}
	return err
}

// gather collects what listed entries want of Redis, and of some others what is due.
func (s *Store) gather(r *round) {
	passed := time.Since(s.swept)
	s.swept, s.holding = time.Now(), false
	for sh := range s.table.occupied() {
		sh.mu.Lock()
		now := s.now()
		list := sh.listed
		n := 0
		for ; n < len(list) && len(r.leases) < mostInRound; n++ {
			if e := &sh.cells[list[n]]; e.listed { // a freed cell may be listed
				e.listed = false
				s.propose(r, e, now, true)
			}
		}
		sh.listed = append(list[:0], list[n:]...)
		s.sweep(r, sh, now, passed)
		sh.mu.Unlock()
	}
}

// sweep looks at some of the entries that are not asked for: it returns what they hold, and
// forgets them in the end.
func (s *Store) sweep(r *round, sh *shard, now int64, passed time.Duration) {
	const laps = 4 // in the life of a lease
	share := 1 + float64(len(sh.cells))*laps*passed.Seconds()/life.Seconds()
	for range int(min(share, float64(len(sh.cells)))) {
		sh.swept = (sh.swept + 1) % len(sh.cells)
		e := &sh.cells[sh.swept]
		if !e.used || e.busy || e.listed || len(r.leases) >= mostInRound {
			continue
		}
		switch idle := now - e.touched; {
		case e.stock > 0 || e.back > 0:
			s.holding = true
			s.propose(r, e, now, false)
		case idle > life.Microseconds():
			sh.remove(uint32(sh.swept))
		}
	}
}

// propose adds to r what is to be settled about an entry, if anything is.
func (s *Store) propose(r *round, e *entry, now int64, isAsked bool) {
	if e.busy {
		return
	}
	p := s.plans.numbered(e.plan)
	e.expire(now, now-e.touched > life.Microseconds()/2)
	l := lease{tag: e.tag, quota: p.quota, since: e.since}
	due := e.back > 0
	if isAsked {
		due = e.proposeAsked(&l, p, now) || e.back > 0
	}
	if !due {
		return
	}
	l.back, l.keep = e.back, e.stock
	e.back = 0
	e.busy, e.crossed = true, 0
	r.leases = append(r.leases, l)
	r.of = append(r.of, e.hash)
}

// proposeAsked is propose for an entry that was asked for: it wants units before it runs
// out, returns those that others are short of, or keeps what it has for longer.
func (e *entry) proposeAsked(l *lease, p *plan, now int64) (due bool) {
	e.measure(now)
	need := max(1, min(int64(math.Ceil(e.rate*horizon.Seconds())), p.room))
	isHalfFree := e.heard == 0 || 2*e.inUse(p, now) <= p.capacity
	target := need
	if isHalfFree {
		target = max(need, p.chunk)
	}
	switch {
	case e.sights > 1 && 2*e.stock <= target:
		l.need = max(0, need-e.stock)
		l.want = max(l.need, p.chunk-e.stock)
		return true
	case !isHalfFree && e.stock > need:
		e.back += e.stock - need
		e.stock = need
		return true
	default:
		return e.stock > 0 && e.until-now < life.Microseconds()/2
	}
}

// inUse is how many units of the limit are in use by what Redis said last.
func (e *entry) inUse(p *plan, now int64) int64 {
	at := e.earliest(now)
	d := p.quota.Describe(e.state(), at, 0, true)
	return p.capacity - max(0, d.Remaining)
}

// measure brings the estimate of the demand up to date: at once halfway to more, and slowly
// to less.
func (e *entry) measure(now int64) {
	passed := float64(max(now-e.counted, tick.Microseconds()/2)) / 1e6
	rate := float64(e.recent) / passed
	weight := 0.5
	if rate < e.rate {
		weight = min(1, passed/0.2)
	}
	e.rate += (rate - e.rate) * weight
	e.recent, e.counted = 0, now
	if now-e.watched >= 4*tick.Microseconds() {
		e.often = int64(e.asks)*2*tick.Microseconds() >= now-e.watched
		e.asks, e.watched = 0, now
	}
}

// settled takes in what Redis said about a lease.
func (s *Store) settled(l *lease, hash uint64, asked, heard int64) {
	sh := s.table.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e, cell := sh.find(hash)
	if e == nil || !e.busy {
		return
	}
	e.busy = false
	p := s.plans.numbered(e.plan)
	if l.quota != p.quota {
		return
	}
	switch {
	case !l.done:
		return // what was returned is gone, what was granted too
	case l.foreign:
		e.heard, e.scarce = 0, false
		return
	}
	redisNow := l.now
	e.until = asked + life.Microseconds()
	if p.windows {
		// A window's units are spent in that window. Its end comes no later on our clock than
		// it does on Redis's.
		start, end := p.quota.WindowAt(redisNow)
		if e.since < start || e.since >= end {
			e.stock, e.back = 0, 0
		}
		e.until = min(e.until, asked+end-redisNow)
	}
	if l.granted > 0 || e.stock == 0 {
		e.since = redisNow
	}
	e.stock += l.granted
	e.hear(l.state, redisNow, asked, heard)
	e.exact, e.whole = e.crossed, e.crossed == 0
	e.scarce = p.quota.Describe(l.state, redisNow, 0, true).Remaining <= 0
	if e.scarce && e.stock == 0 && heard-e.touched < hungry.Microseconds() {
		s.list(sh, e, cell) // ask again, before a request needs it
	}
}

// settleAll returns all that is held. The loop has ended.
func (s *Store) settleAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	for ctx.Err() == nil {
		r := &s.rounds
		r.reset()
		for sh := range s.table.occupied() {
			sh.mu.Lock()
			for cell := range sh.cells {
				e := &sh.cells[cell]
				if len(r.leases) >= mostInRound || !e.used {
					continue
				}
				p := s.plans.numbered(e.plan)
				e.expire(s.now(), true)
				if e.back > 0 {
					e.busy = true
					r.leases = append(r.leases, lease{tag: e.tag, quota: p.quota, since: e.since, back: e.back})
					e.back = 0
				}
			}
			sh.mu.Unlock()
		}
		if len(r.leases) == 0 {
			return nil
		}
		if err := s.ledger.Settle(ctx, r.leases); err != nil {
			return err
		}
	}
	return ctx.Err()
}
