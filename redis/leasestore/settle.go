package leasestore

import (
	"context"
	"math"
	"slices"
	"time"
)

const (
	longestPause = time.Second            // between settlements that fail
	sweepEvery   = 250 * time.Millisecond // how often entries are looked at that are not asked for
)

// loop is the Store's goroutine. Only it settles leases while it runs. Without requests it
// sleeps.
func (s *Store) loop() {
	defer close(s.ended)
	pause := tick // between settlements; longer while they fail
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
		if _, err := s.settle(patience, false); err != nil {
			pause = min(2*pause, longestPause)
		} else {
			pause = tick
		}
	}
}

// wakeLoop makes the loop settle soon.
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

// mostInRound is the most leases in a round. Further leases go in the next one.
const mostInRound = 2048

// settle makes one round of the leases that are due, or of all leases when the Store closes,
// which are then returned. It returns how many there were.
func (s *Store) settle(timeout time.Duration, isClosing bool) (count int, err error) {
	s.gather(isClosing)
	if len(s.round) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	asked := s.now()
	err = s.ledger.Settle(ctx, s.round)
	heard := s.now()
	for i := range s.round {
		s.settled(&s.round[i], asked, heard)
	}
	return len(s.round), err
}

// gather collects the leases of listed entries.
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
				s.propose(e, now, isClosing || e.isIdle(now))
			}
		}
		if sh.listed = slices.Delete(list, 0, n); len(sh.listed) > 0 {
			s.wakeLoop()
		}
		sh.mu.Unlock()
	}
}

// isIdle reports whether nobody has asked for the key for so long that all units are returned.
func (e *entry) isIdle(now int64) bool { return now-e.touched > life.Microseconds()/2 }

// sweep lists entries that hold units and that nobody asks for, and later removes them.
func (s *Store) sweep(sh *shard, now int64, isClosing bool) {
	for _, e := range sh.entries {
		switch {
		case e.settling || e.listed:
		case e.stock > 0 || e.back > 0:
			if isClosing || e.isIdle(now) {
				s.list(sh, e)
			}
		case now-e.touched > life.Microseconds():
			sh.remove(e)
		}
	}
}

// propose adds an entry's lease to the round, if one is due.
func (s *Store) propose(e *entry, now int64, isIdle bool) {
	if e.settling {
		return
	}
	p := e.plan
	e.expire(now, isIdle)
	l := lease{hash: e.hash, tag: e.tag, quota: p.quota, since: e.since}
	due := !isIdle && e.proposeAsked(&l, p, now)
	if !due && e.back == 0 {
		return
	}
	l.back, l.keep = e.back, e.stock
	e.back = 0
	e.settling = true
	s.round = append(s.round, l)
}

// proposeAsked is propose for an entry that requests ask for. It asks for units before they run
// out, returns units that other processes need, or extends the lease.
func (e *entry) proposeAsked(l *lease, p *plan, now int64) (due bool) {
	e.measure(now)
	need := max(1, min(int64(math.Ceil(e.rate*horizon.Seconds())), p.room))
	isHalfFree := e.said.heard == 0 || 2*e.free(p, now) >= p.capacity
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

// free returns how many units of the limit are free, by Redis's last answer.
func (e *entry) free(p *plan, now int64) int64 {
	return p.quota.Describe(e.state(), e.earliest(now), 0, true).Remaining
}

// measure updates the estimate of the demand: halfway to a higher rate at once, and slowly to a
// lower one.
func (e *entry) measure(now int64) {
	passed := float64(max(now-e.counted, tick.Microseconds()/2)) / 1e6
	rate := float64(e.recent) / passed
	weight := 0.5
	if rate < e.rate {
		weight = min(1, passed/0.2)
	}
	e.rate += (rate - e.rate) * weight
	e.recent, e.counted = 0, now
}

// settled applies Redis's answer about a lease.
func (s *Store) settled(l *lease, asked, heard int64) {
	sh, e := s.table.lock(l.hash)
	defer sh.mu.Unlock()
	if e == nil || !e.settling {
		return
	}
	e.settling = false
	p := e.plan
	if l.quota != p.quota {
		return
	}
	switch {
	case !l.done:
		return // what was returned is gone, what was granted too
	case l.foreign:
		e.said = answer{} // what is in hand stays charged, and returns when its lease ends
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
	e.said = answer{l.state.Last, l.state.Level, l.state.Prev, redisNow, heard}
	if l.need > 0 && l.granted == 0 && e.free(p, heard) > 0 {
		sh.crowded++
	}
	if e.stock == 0 && heard-e.touched < hungry.Microseconds() {
		s.list(sh, e) // ask again, before a request needs it
	}
}

// settleAll returns all units. The loop has ended.
func (s *Store) settleAll() error {
	for end := time.Now().Add(4 * patience); ; {
		left := time.Until(end)
		if left <= 0 {
			return context.DeadlineExceeded
		}
		if count, err := s.settle(left, true); count == 0 || err != nil {
			return err
		}
	}
}
