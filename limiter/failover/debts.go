package failover

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
)

// A debtor is a key of a counter. Rules that are read anew have the same counters.
type debtor struct{ rule, tier, key string }

func debtorOf(c *limiter.Charge) debtor { return debtor{c.Quota.Rule(), c.Quota.Tier(), c.Key} }

// A debt is what this process admitted for a key by itself. The server is charged when it answers about the
// key again, or each failed call would add to the limit.
type debt struct {
	units       int64
	share       *limiter.Quota // that counted them
	first, last time.Time      // when the share counted them
	isPressed   bool           // the share or the server has refused an event since
}

// debts are the debts of all keys.
type debts struct {
	count    atomic.Int64  // of the keys, which spares healthy stores the lock
	forgiven atomic.Uint64 // keys that were displaced

	mu    sync.Mutex
	of    map[debtor]debt
	swept time.Time
}

// mostDebtors is how many keys may owe. A further key displaces any of them.
const mostDebtors = 1 << 16

// add adds to what a key owes. Less than 0 units are a refund, which cannot take back what was repaid
// already. With no units, add notes that an event was refused.
func (d *debts) add(c *limiter.Charge, more debt) {
	if c.Quota.InFlight() {
		return
	}
	who, now := debtorOf(c), time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	owed, known := d.of[who]
	if more.last = now; more.first.IsZero() {
		more.first = now
	}
	if known {
		more.units, more.share, more.first = more.units+owed.units, owed.share, owed.first
		more.isPressed = more.isPressed || owed.isPressed
	}
	more.units = min(more.units, 2*c.Quota.Capacity()) // servers forgive the rest
	if more.units > 0 && !known && len(d.of) >= mostDebtors {
		for other := range d.of {
			delete(d.of, other)
			d.forgiven.Add(1)
			break
		}
	}
	if d.of[who] = more; more.units <= 0 {
		delete(d.of, who)
	}
	d.count.Store(int64(len(d.of)))
}

// take removes and returns what a key owes. Once a minute it forgets the debts that no longer count.
func (d *debts) take(c *limiter.Charge) (owed debt) {
	who, now := debtorOf(c), time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	owed = d.of[who]
	delete(d.of, who)
	if now.Sub(d.swept) > time.Minute {
		d.swept = now
		maps.DeleteFunc(d.of, func(_ debtor, other debt) bool { return now.Sub(other.last) > 2*other.share.Window() })
	}
	d.count.Store(int64(len(d.of)))
	return owed
}

// due divides a debt of c's key, which the server has just allowed: units to charge now, and units to charge
// later.
//
// A key that was not refused does not owe what its bucket has refilled, except for one burst, which the server
// may have counted before the outage. Units of a window are charged later if all shares together fit into the
// server's room: charged now, they would count for a whole window from now on, and a client within its limit
// would be refused. The server forgives what exceeds twice the capacity, so that part waits, too.
func (s *Store) due(owed debt, c *limiter.Charge) (now, later int64) {
	now, share, room, age := owed.units, owed.share, c.Decision.Remaining, time.Since(owed.first)
	isBucket := share.Algorithm() == limiter.TokenBucket || share.Algorithm() == limiter.LeakyBucket
	switch {
	case age < share.Window()/10 || age < quiet && owed.isPressed:
	case age < quiet && isBucket:
		refilled := (age.Seconds()/share.Window().Seconds() - 1) * float64(share.Capacity())
		now -= int64(min(max(0, refilled), float64(now)))
	default: // what still counts is in the share
		look := []limiter.Charge{{Quota: share, Key: c.Key}}
		_ = s.local.Decide(context.Background(), look) // which cannot fail
		now = min(now, look[0].Decision.Limit-look[0].Decision.Remaining)
		if !owed.isPressed && now*int64(s.options.Replicas) <= room {
			return 0, now
		}
	}
	later = max(0, now-room-c.Quota.Capacity())
	return now - later, later
}

// repay charges the server with what this process admitted by itself for the keys of charges that the server
// has just allowed. The share of such a key counts these charges, too: so all that a process in debt admits
// is within its share. If it is not known whether the server charged a debt, it is charged again: that
// admits less, never more.
func (s *Store) repay(ctx context.Context, charges []limiter.Charge) {
	var settlements, onShare []limiter.Settlement
	var charged []debt
	for _, c := range charges {
		if !c.Decision.Allowed {
			s.debts.add(&c, debt{isPressed: true})
			continue
		}
		if c.Cost == 0 {
			continue // looks change nothing, so that a reservation can still be refunded
		}
		owed := s.debts.take(&c)
		if owed.units == 0 {
			continue
		}
		now, later := s.due(owed, &c)
		if owed.units = later; later > 0 {
			owed.isPressed = owed.isPressed || now > 0 // what was refilled is deducted already
			s.debts.add(&c, owed)
		}
		if now > 0 {
			shared := limiter.Charge{Quota: owed.share, Key: c.Key}
			onShare = append(onShare, limiter.Settlement{Charge: shared, Actual: c.Cost})
			c.Cost, c.Decision = 0, limiter.Decision{Receipt: limiter.Receipt{By: limiter.ByShare}}
			settlements = append(settlements, limiter.Settlement{Charge: c, Actual: now})
			owed.units = now
			charged = append(charged, owed)
		}
	}
	_ = s.local.Settle(context.Background(), onShare) // which cannot fail
	causes, err := s.settle(ctx, settlements)
	for i := range charged {
		if err != nil && (causes == nil || causes[i] != nil) {
			s.debts.add(&settlements[i].Charge, charged[i])
		}
	}
}
