package failover

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirgo/weir/limiter"
)

// probe tries the charges of a batch that was decided by policy on those of its parts
// that are due, each part with its own charges, so that what another part says does
// not count for it. taken is whether the batch's events may happen.
func (s *Store) probe(parts uint64, charges []limiter.Charge, taken bool) {
	for p := range s.inTrouble(parts) {
		if !p.beginProbe() {
			continue
		}
		var tried, owed []limiter.Charge
		owes := false
		for _, c := range charges {
			if s.partNumber(&c) != p.number {
				continue
			}
			happened := c.Cost
			if !taken || c.Quota.InFlight() { // an event ends where it began: here
				happened = 0
			}
			c.Cost = max(1, c.Cost) // a look would not find out whether the server can write
			tried = append(tried, c)
			c.Cost -= happened
			owed = append(owed, c)
			owes = owes || c.Cost > 0
		}
		if !owes {
			owed = nil
		}
		go s.try(p, tried, owed)
	}
}

// try is a probe. Of what it takes, it refunds what no event stands for. It has nothing of
// the request's context: a client that goes away does not end it.
//
// A refusal writes nothing, so after one the store is asked to write something else: a
// server that can be read but not written is still down, and one at which every key that
// is asked for is exhausted is not.
func (s *Store) try(p *part, charges, owed []limiter.Charge) {
	decisions := make([]limiter.Decision, len(charges))
	err := survive(func() error {
		return s.inner.Decide(context.Background(), charges, decisions)
	})
	taken := err == nil
	for i := range decisions {
		taken = taken && decisions[i].Allowed
	}
	if isOfOneKey(err) {
		err = nil // an answer, which wrote nothing either
	}
	if err == nil && !taken && s.tryWrite != nil {
		err = survive(func() error { return s.tryWrite(context.Background(), charges) })
	}
	mistake := errors.Is(err, limiter.ErrCharges) // which says nothing about the server
	if err != nil && !mistake {
		s.counters.failures.Add(1)
		_, err = s.news.examine(p.number, err)
	}
	p.endProbe(!mistake, err)
	if !taken || len(owed) == 0 {
		return
	}
	for i := range owed {
		owed[i].Receipt = owed[i].Quota.Undo(&decisions[i])
	}
	_ = survive(func() error { return s.inner.Refund(context.Background(), owed) })
}

// survive makes an error of a panic, which nothing would recover from in a goroutine
// that is no request's.
func survive(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("failover: the store panicked: %v", r)
		}
	}()
	return f()
}
