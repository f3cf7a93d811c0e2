package leasestore

import (
	"context"

	"github.com/weirgo/weir/limiter"
)

// isLook reports whether charges take nothing.
func isLook(charges []limiter.Charge) bool {
	for i := range charges {
		if charges[i].Cost != 0 {
			return false
		}
	}
	return true
}

// hear asks Redis about Synchronized charges of a look of which this process has heard nothing
// lately: exchanges are about keys that are asked for. Events are counted on what it knows; a
// look would find that nothing was used. It fills in those decisions.
func (s *Store) hear(ctx context.Context, charges []limiter.Charge, decisions []limiter.Decision) error {
	c := counter{s}
	var counts []count
	var of []int
	for i := range charges {
		p := s.planOf(charges[i].Quota)
		if p == nil || p.mode != Synchronized || decisions[i].Degraded {
			continue
		}
		sh, e, _ := c.lock(p, charges[i].Key)
		if e.heard == 0 || s.now()-e.heard > 2*exchangeEvery.Microseconds() {
			counts, of = append(counts, count{tag: e.tag, quota: p.quota}), append(of, i)
		}
		sh.mu.Unlock()
	}
	if len(counts) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	now, err := s.ledger.Exchange(ctx, counts)
	for i := range counts {
		charge := &charges[of[i]]
		switch {
		case counts[i].done:
		case charge.Quota.OnOutage == limiter.FailClosed:
			return err
		default:
			decisions[of[i]].Degraded = true // it is what this process knows alone
			continue
		}
		p := s.planOf(charge.Quota)
		if p == nil {
			continue // the Store is closed
		}
		var d limiter.Decision
		sh, e, _ := c.lock(p, charge.Key)
		told := entry{hash: e.hash, plan: p.number}
		told.hear(counts[i].state, counts[i].state.Last, now, now)
		c.decide(p, &told, max(now, told.last), 0, &d)
		// Of what was counted here since, Redis knows nothing. It is told within an exchange.
		if !e.isUntold() || e.pending+e.owed > 0 && d.IsTighterThan(&decisions[of[i]]) {
			decisions[of[i]] = d
		}
		sh.mu.Unlock()
	}
	return nil
}
