package redisstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/internal/wire"
)

// settled ends a settlement whose group g is answered or will not be.
func (s *store) settled(g *group) {
	s.denied.invalidate(g.charges) // what was heard meanwhile may be of before
	s.unsettled.remove(g.err != nil || g.foreign() != nil)
}

// settle queues a group that corrects a charge, and for which no caller waits. It travels with the next
// batch, before the next decision on its counter, or alone after a moment.
func (b *batcher) settle(g *group) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.admit(g, time.Now())
	b.holdings.arm(g.since.Add(linger))
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

// close ends settlements without waiting and renewals of slots. It waits a while until Redis
// has all settlements and releases.
func (s *store) close(patience time.Duration) error {
	s.unsettled.closed.Store(true)
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		count, reported := s.unsettled.count.Load(), s.holders.close()
		switch {
		case count == 0 && reported:
			return nil
		case time.Now().Before(end):
			continue
		case count > 0:
			return wire.Errorf("redisstore", "Redis has not answered to %d settlements in %v", count, patience)
		}
		return wire.Errorf("redisstore", "Redis did not confirm in %v that all slots are released", patience)
	}
}

// Settle implements [limiter.Store]. It waits for Redis, also if ctx ends, with settlements beyond
// mostUnsettled and of events that this process counted in an outage, as package failover needs to know
// whether Redis has those.
func (s *store) Settle(ctx context.Context, settlements []limiter.Settlement) error {
	if err := limiter.CheckSettlements(settlements); err != nil {
		return err
	}
	owed := make([]limiter.Charge, 0, len(settlements)) // or refunded, where the cost is below 0
	for i := range settlements {
		c := settlements[i].Charge
		if c.Cost = settlements[i].Actual - c.Cost; c.Cost != 0 {
			owed = append(owed, c)
		}
	}
	s.denied.invalidate(owed)
	for i, c := range owed {
		if c.Quota.InFlight() {
			s.correctSlots(owed[i : i+1])
			continue
		}
		if c.Decision.Receipt.By == limiter.ByShare || !s.unsettled.add() {
			return s.change(context.WithoutCancel(ctx), settle, owed[i:])
		}
		g := s.group(settle, owed[i:i+1])
		g.ended = s.settled
		s.batcher(g.tag).settle(g)
	}
	return nil
}
