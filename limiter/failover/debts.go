package failover

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
)

// A debtor is a key of a counter. Rules that are read anew have the same counters.
type debtor struct{ rule, tier, key string }

func debtorOf(c *limiter.Charge) debtor { return debtor{c.Quota.Rule(), c.Quota.Tier(), c.Key} }

// A debt is what this process admitted for a key by itself. The server is told when it answers about the
// key again, or each failed call would add to the limit.
type debt struct {
	units     int64
	share     *limiter.Quota // that counted them
	since     time.Time
	isPressed bool // the share has refused an event since
}

// debts are the debts of all keys.
type debts struct {
	count atomic.Int64 // of the keys, which spares healthy stores the lock
	mu    sync.Mutex
	of    map[debtor]debt
	swept time.Time

	forgiven atomic.Uint64 // keys that were displaced
}

// mostDebtors is how many keys may owe. A further key displaces any of them.
const mostDebtors = 1 << 16

// add adds to what a key owes for events that its share counted. Less than 0 units are a refund, which
// cannot take back what was repaid already. With no units, it notes that the share refused an event.
func (d *debts) add(c *limiter.Charge, more debt) {
	if more.share.InFlight() {
		return
	}
	who := debtorOf(c)
	d.mu.Lock()
	defer d.mu.Unlock()
	owed, known := d.of[who]
	if !known {
		owed = more
	} else {
		owed.units += more.units
		owed.isPressed = owed.isPressed || more.isPressed
	}
	owed.units = min(owed.units, 2*c.Quota.Capacity()) // servers forgive the rest
	switch {
	case owed.units <= 0:
		delete(d.of, who)
	case !known && len(d.of) >= mostDebtors:
		for other := range d.of {
			delete(d.of, other)
			d.forgiven.Add(1)
			break
		}
		fallthrough
	default:
		d.of[who] = owed
	}
	d.count.Store(int64(len(d.of)))
}

// take removes and returns what a key owes.
func (d *debts) take(c *limiter.Charge) (owed debt) {
	who := debtorOf(c)
	d.mu.Lock()
	defer d.mu.Unlock()
	owed = d.of[who]
	delete(d.of, who)
	d.count.Store(int64(len(d.of)))
	return owed
}

// sweep forgets the keys that owe nothing any more, once a minute.
func (d *debts) sweep(local *limiter.Memory) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Since(d.swept) < quiet {
		return
	}
	d.swept = time.Now()
	for who, owed := range d.of {
		if owed.due(local, who.key) == 0 {
			delete(d.of, who)
		}
	}
	d.count.Store(int64(len(d.of)))
}

// due returns how much of a debt the server must know. A key that kept to its share owes nothing that the
// share refilled, but for one burst, which the server may have counted before. A key that asked for more
// owes everything: other processes may have used what the server refilled. After a minute the units
// that still count are in the share.
func (d debt) due(local *limiter.Memory, key string) int64 {
	age := time.Since(d.since)
	switch {
	case d.units == 0 || age < quiet && d.isPressed:
		return d.units
	case age < quiet:
		l := d.share.Limit()
		refilled := age.Seconds()/l.Per.Seconds()*float64(l.Events) - float64(d.share.Capacity())
		return d.units - int64(min(max(0, refilled), float64(d.units))) // rounding is less than a unit
	}
	look := []limiter.Charge{{Quota: d.share, Key: key}}
	if err := local.Decide(context.Background(), look); err != nil {
		return d.units
	}
	return min(d.units, look[0].Decision.Limit-look[0].Decision.Remaining)
}

// repay charges the servers with what this process admitted by itself for the keys of charges that they
// have just allowed. A refusal shows that the server has no room: it would forgive what exceeds twice
// the capacity, so a debt waits until there is room. The share of a key that owes counts these charges,
// too: so all that a process in debt admits is within its share. If it is not known whether the servers
// charged a debt, they are charged again: that admits less, never more. Looks change nothing, so that a
// reservation can still be refunded.
func (s *Store) repay(ctx context.Context, charges []limiter.Charge) {
	s.debts.sweep(s.local)
	var settlements, onShare []limiter.Settlement
	var taken []debt
	for _, c := range charges {
		if c.Cost == 0 || !c.Decision.Allowed {
			continue
		}
		owed := s.debts.take(&c)
		due := owed.due(s.local, c.Key)
		if due == 0 {
			continue
		}
		now := min(due, c.Decision.Remaining+c.Quota.Capacity())
		if now < due { // what the share refilled is deducted already
			s.debts.add(&c, debt{units: due - now, share: owed.share, since: owed.since, isPressed: true})
			owed.units = now
		}
		onShare = append(onShare, limiter.Settlement{Charge: limiter.Charge{Quota: owed.share, Key: c.Key}, Actual: c.Cost})
		c.Cost, c.Decision = 0, limiter.Decision{Receipt: limiter.Receipt{By: limiter.ByShare}}
		settlements = append(settlements, limiter.Settlement{Charge: c, Actual: now})
		taken = append(taken, owed)
	}
	if len(settlements) == 0 {
		return
	}
	_ = s.local.Settle(context.Background(), onShare) // which cannot fail
	began := time.Now()
	err := s.timed(ctx, func(ctx context.Context) error { return s.inner.Settle(ctx, settlements) })
	if err == nil {
		return
	}
	causes, _ := s.blame(ctx, began, corrections(settlements), err)
	for i := range settlements {
		if causes == nil || causes[i] != nil {
			s.debts.add(&settlements[i].Charge, taken[i])
		}
	}
}
