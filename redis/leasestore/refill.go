package leasestore

import (
	"context"
	"slices"
	"time"
)

const (
	longestPause = time.Second            // between rounds that fail
	sweepEvery   = 250 * time.Millisecond // how often entries are looked at that are not asked for
)

// loop is the Store's goroutine. Only it refills hands while it runs. Without requests it sleeps.
func (s *Store) loop() {
	defer close(s.ended)
	pause := tick // between rounds; longer while they fail
	for {
		var sweep <-chan time.Time
		if s.table.keys() > 0 {
			sweep = time.After(sweepEvery)
		}
		select {
		case <-s.stop:
			return
		case <-sweep:
		case <-s.wake: // an entry is listed, and others may follow that can go along
		}
		select {
		case <-s.stop:
			return
		case <-time.After(pause):
		}
		if _, err := s.refill(patience, false); err != nil {
			pause = min(2*pause, longestPause)
		} else {
			pause = tick
		}
	}
}

// wakeLoop makes the loop start a round soon.
func (s *Store) wakeLoop() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// list makes the loop check an entry next. The shard is locked.
func (s *Store) list(sh *shard, e *entry) {
	if !e.listed {
		e.listed = true
		sh.listed = append(sh.listed, e)
		s.wakeLoop()
	}
}

// mostInRound is the most refills in a round. Further ones go in the next round.
const mostInRound = 2048

// refill makes one round of the refills that are due, or returns all units when the Store closes. It
// returns how many refills there were.
func (s *Store) refill(timeout time.Duration, isClosing bool) (count int, err error) {
	s.gather(isClosing)
	if len(s.round) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	asked := s.now()
	err = s.ledger.Refill(ctx, s.round)
	heard := s.now()
	for i := range s.round {
		s.apply(&s.round[i], asked, heard)
	}
	return len(s.round), err
}

// gather collects the refills of listed entries.
func (s *Store) gather(isClosing bool) {
	s.round = s.round[:0]
	isSweep := isClosing || time.Since(s.swept) >= sweepEvery
	if isSweep {
		s.swept = time.Now()
	}
	for i := range s.table.shards {
		sh := &s.table.shards[i]
		sh.mu.Lock()
		now := s.now()
		if isSweep {
			s.sweep(sh, now, isClosing)
		}
		list := sh.listed
		n := 0
		for ; n < len(list) && len(s.round) < mostInRound; n++ {
			if e := list[n]; e.listed { // it was not removed
				e.listed = false
				s.propose(e, now, isClosing || e.demand.isIdle(now))
			}
		}
		if sh.listed = slices.Delete(list, 0, n); len(sh.listed) > 0 {
			s.wakeLoop()
		}
		sh.mu.Unlock()
	}
}

// sweep lists entries that hold units and that nobody asks for, and later removes them.
func (s *Store) sweep(sh *shard, now localTime, isClosing bool) {
	for _, e := range sh.entries {
		switch {
		case e.refilling || e.listed:
		case e.hand.units > 0 || e.back > 0:
			if isClosing || e.demand.isIdle(now) {
				s.list(sh, e)
			}
		case now.sub(e.demand.touched) > life:
			sh.remove(e)
		}
	}
}

// propose adds an entry's refill to the round, if one is due.
func (s *Store) propose(e *entry, now localTime, isIdle bool) {
	if e.refilling {
		return
	}
	e.expire(now, isIdle)
	r := refill{hash: e.hash, tag: e.tag, quota: e.plan.quota, since: e.hand.since}
	isDue := !isIdle && e.proposeUnits(&r, now)
	if !isDue && e.back == 0 {
		return
	}
	r.back, r.keep = e.back, e.hand.units
	e.back = 0
	e.refilling = true
	s.round = append(s.round, r)
}

// proposeUnits is propose for an entry that requests ask for. It asks for units before they run out,
// returns units that other processes need, or extends the lease.
func (e *entry) proposeUnits(r *refill, now localTime) (isDue bool) {
	p, h := e.plan, &e.hand
	e.demand.measure(now)
	need := e.demand.ahead(p)
	isHalfFree := e.answer.heard == 0 || 2*e.answer.free(p, now) >= p.capacity
	target := need
	if isHalfFree {
		target = max(need, p.chunk)
	}
	switch {
	case e.demand.events > 1 && 2*h.units <= target:
		r.need = max(0, need-h.units)
		r.want = max(r.need, p.chunk-h.units)
		return true
	case !isHalfFree && h.units > need:
		e.back += h.units - need
		h.units = need
		return true
	default:
		return h.units > 0 && h.until.sub(now) < life/2
	}
}

// apply applies Redis's answer to a refill, which was asked for and heard at these times.
func (s *Store) apply(r *refill, asked, heard localTime) {
	sh, e := s.table.lock(r.hash)
	defer sh.mu.Unlock()
	if e == nil || !e.refilling {
		return
	}
	e.refilling = false
	p, h := e.plan, &e.hand
	switch {
	case r.quota != p.quota:
		return
	case !r.done:
		return // the units that were returned or granted are lost
	case r.foreign:
		e.answer = answer{} // units in hand stay charged, and return when their lease ends
		return
	}
	h.until = asked.add(life)
	if p.windows {
		// A window's units are spent in that window. Its end comes no later on our clock than on Redis's.
		if !p.sameWindow(r.now, h.since) {
			h.units, e.back = 0, 0
		}
		_, end := p.quota.WindowAt(int64(r.now))
		h.until = min(h.until, asked+localTime(end-int64(r.now)))
	}
	if r.granted > 0 || h.units == 0 {
		h.since = r.now
	}
	h.units += r.granted
	e.answer = answer{r.state.Last, r.state.Level, r.state.Prev, r.now, heard}
	if r.need > 0 && r.granted == 0 && e.answer.free(p, heard) > 0 {
		sh.crowded++
	}
	if h.units == 0 && heard.sub(e.demand.touched) < hungry {
		s.list(sh, e) // ask again, before a request needs it
	}
}

// returnAll returns all units. The loop has ended.
func (s *Store) returnAll() error {
	for end := time.Now().Add(4 * patience); ; {
		left := time.Until(end)
		if left <= 0 {
			return context.DeadlineExceeded
		}
		if count, err := s.refill(left, true); count == 0 || err != nil {
			return err
		}
	}
}
