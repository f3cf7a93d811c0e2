package failover

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/store"
)

// few is how many charges are decided in an outage without an allocation.
const few = 8

// decideWithout decides on a batch: the policies on the charges that have a cause, and the inner store on
// the others. All are taken or none. The policies come first, because undoing what the local counters took
// cannot fail. If a call fails, the charges that its error is about get a cause, and all are decided anew.
func (s *Store) decideWithout(ctx context.Context, charges []limiter.Charge, causes []error) error {
	for {
		var room [few]limiter.Charge
		local := room[:0]
		for i, c := range charges {
			switch {
			case causes[i] == nil:
			case c.Quota.OnOutage == limiter.FailClosed && !c.Optional:
				s.counters.closed.Add(1)
				return fmt.Errorf("%w, and rule %q is closed meanwhile: %w", ErrUnavailable, c.Quota.Rule(), causes[i])
			case s.toShare(&c):
				local = append(local, c)
			}
		}
		_ = s.local.Decide(context.Background(), local) // which cannot fail
		taken, up := store.Taken(local), askable(charges, causes)
		if !taken {
			up = looks(up) // to describe them
		}
		more, err := s.ask(ctx, up, s.inner.Decide)
		if taken && (err != nil || !store.Taken(up)) {
			s.undo(local)
			taken = false
		}
		if more == nil {
			if err == nil {
				s.conclude(charges, causes, up, local, taken)
			}
			return err
		}
		for i := range causes {
			if causes[i] == nil {
				causes[i], more = more[0], more[1:]
			}
		}
	}
}

// conclude sets the decisions on a batch, from the decisions of the inner store and of the local counters,
// and notes what is owed for it.
func (s *Store) conclude(charges []limiter.Charge, causes []error, up, local []limiter.Charge, taken bool) {
	if len(local) > 0 {
		s.counters.local.Add(1)
	} else {
		s.counters.open.Add(1)
	}
	for i := range charges {
		c := &charges[i]
		switch q := c.Quota; {
		case causes[i] == nil:
			c.Decision, up = up[0].Decision, up[1:]
		case q.OnOutage == limiter.FailOpen:
			c.Decision = limiter.Decision{Allowed: true, Degraded: true, Receipt: limiter.Receipt{By: limiter.ByNobody}}
		case q.OnOutage == limiter.FailClosed: // and Optional
			c.Decision = limiter.Decision{Degraded: true}
		default:
			counted := &local[0]
			local = local[1:]
			c.Decision = counted.Decision
			c.Decision.Degraded, c.Decision.Receipt.By = true, limiter.ByShare
			if share := counted.Quota; share != q {
				start, end := share.WindowAt(c.Decision.Receipt.At) // both are 0 for buckets and logs
				c.Decision.Window = cmp.Or(time.Duration(end-start)*time.Microsecond, share.Window())
			}
			if !c.Decision.Allowed {
				s.debts.add(c, debt{isPressed: true, share: counted.Quota})
			} else if taken {
				s.debts.add(c, debt{units: counted.Cost, share: counted.Quota})
			}
		}
	}
}

// undo refunds what the local counters took, and turns those charges into looks.
func (s *Store) undo(local []limiter.Charge) {
	for i := range local {
		if c := &local[i]; c.Decision.Allowed {
			c.Decision.Receipt = c.Quota.Undo(&c.Decision)
			_ = s.local.Settle(context.Background(), []limiter.Settlement{{Charge: *c}}) // which cannot fail
			c.Cost = 0
			_ = s.local.Decide(context.Background(), local[i:i+1])
		}
	}
}

// askable returns copies of the charges without a cause.
func askable(charges []limiter.Charge, causes []error) (up []limiter.Charge) {
	for i := range charges {
		if causes == nil || causes[i] == nil {
			up = append(up, charges[i])
		}
	}
	return up
}

// looks returns copies of charges with cost 0.
func looks(charges []limiter.Charge) []limiter.Charge {
	looks := append([]limiter.Charge(nil), charges...)
	for i := range looks {
		looks[i].Cost = 0
	}
	return looks
}
