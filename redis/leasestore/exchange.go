package leasestore

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errLost is what an error wraps that comes of counts which cannot be exchanged.
var errLost = errors.New("counts cannot be exchanged")

// exchange tells Redis what was counted here, and hears what all have counted. It reports
// whether there is more to tell. While counts are lost it asks for the time first, to find Redis's
// return: what is told without an answer may be told twice, or be lost.
func (s *Store) exchange(deadline time.Time) (more bool, _ error) {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	if s.lost.Load() != nil {
		now, err := s.ledger.Exchange(ctx, nil)
		if err != nil {
			return true, s.lose(err)
		}
		s.offset.Store(now - s.now())
	}
	r := &s.rounds
	r.reset()
	more = s.gatherCounts(r)
	if len(r.counts) == 0 {
		s.lost.Store(nil)
		return false, nil
	}
	now, err := s.ledger.Exchange(ctx, r.counts)
	heard := s.now()
	if now > 0 {
		s.offset.Store(now - heard)
	}
	for i := range r.counts {
		s.exchanged(&r.counts[i], r.of[i], heard)
	}
	if err == nil {
		s.lost.Store(nil)
		return more, nil
	}
	return more, s.lose(err)
}

// lose notes why counts cannot be exchanged.
func (s *Store) lose(err error) error {
	err = fmt.Errorf("%w (%w)", err, errLost)
	s.lost.Store(&err)
	return err
}

// gatherCounts collects the listed entries.
func (s *Store) gatherCounts(r *round) (more bool) {
	for sh := range s.table.occupied() {
		sh.mu.Lock()
		list := sh.listed[counted]
		n := 0
		for ; n < len(list) && len(r.counts) < mostInRound; n++ {
			e := &sh.cells[list[n]]
			p := s.plans.numbered(e.plan)
			if !e.listed || e.busy || p.mode != Synchronized { // which is another key's cell by now
				continue
			}
			e.listed, e.busy = false, true
			r.counts = append(r.counts, count{tag: e.tag, quota: p.quota, used: e.pending, owed: e.owed, past: e.past, pastAt: e.pastAt})
			r.of = append(r.of, e.hash)
		}
		sh.listed[counted] = append(list[:0], list[n:]...)
		more = more || len(sh.listed[counted]) > 0
		sh.mu.Unlock()
	}
	return more
}

// exchanged takes in what Redis said about a counter, to which what was counted since is
// added. Where it is not known whether Redis has heard it, what was used is told again, rather
// twice than never; what was refunded is not, rather never than twice.
func (s *Store) exchanged(c *count, hash uint64, heard int64) {
	sh := s.table.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e, cell := sh.find(hash)
	if e == nil || !e.busy {
		return
	}
	e.busy = false
	p := s.plans.numbered(e.plan)
	if !c.done {
		if c.used < 0 {
			e.pending -= c.used
		}
		e.past = max(0, e.past-c.past)
		s.list(sh, e, cell, counted)
		return
	}
	e.pending -= c.used
	e.owed -= c.owed
	e.past = max(0, e.past-c.past)
	if p.quota != c.quota {
		return
	}
	now := c.state
	now.Level = max(0, now.Level+e.pending*p.unit)
	if p.windows {
		now.Level, now.Prev = min(now.Level, 2*p.capacity), max(0, now.Prev-e.past)
	}
	now = p.owe(now, e.owed)
	e.hear(now, now.Last, heard, heard)
	if p.quota.Settles && !p.windows {
		now.Log = sh.lows[hash]
		sh.keepLows(hash, p.advanced(now, now.Last).Log)
	}
}
