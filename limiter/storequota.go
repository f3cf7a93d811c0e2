package limiter

import "time"

// The methods of [Quota] for authors of stores, over the State of a key.

// Take returns s after an event of that cost at time now, in microseconds since 1970. If there is no
// room, it returns s itself and false. Cost 0 takes nothing and succeeds. A negative cost fails, and so
// does a cost above the capacity.
//
// If s was written under another limit, the used units stay used, up to q's capacity, as if they had
// been used now. Debts stay too, up to one more capacity. A store must write the returned State only if
// an event with a cost was taken. Under a lower limit, the State is cut to that limit's capacity. If a
// check of cost 0 wrote it, the units cut off would be free again under a higher limit.
func (q *Quota) Take(s State, now, cost int64) (State, bool) {
	if cost <= 0 || cost > q.capacity {
		return s, cost == 0
	}
	u, log, used := q.present(s, now)
	if used+cost > q.capacity {
		return s, false
	}
	return q.state(q.take(u, log, cost)), true
}

// present returns s as a usage of q at time now, with a log that may be changed in place.
func (q *Quota) present(s State, now int64) (_ usage, _ []Entry, used int64) {
	u, log := q.convert(s, now)
	return q.at(u, q.own(log), now)
}

// convert returns s as a usage of q, as [Quota.Take] says. Under an equal limit the usage stays the same.
func (q *Quota) convert(s State, now int64) (usage, []Entry) {
	u, log := q.usage(s.Last, s.Level, s.Prev), s.Log
	switch from := s.Quota; {
	case from == nil || from == q:
		return u, log
	case from.limit == q.limit:
		if q.bursts && !q.hasLows() {
			log = nil
		}
		return u, log
	case q.InFlight() && from.InFlight():
		return u, log // all that are in flight are, whatever the limit is now
	}
	from := s.Quota
	used := from.usedOf(s, now)
	owed := max(0, used-from.capacity)
	u, log, _ = q.at(usage{}, nil, now)
	if used > 0 {
		u, log = q.take(u, log, min(used-owed, q.capacity))
	}
	return q.algorithm.owe(q, u, log, min(owed, q.capacity))
}

// Settle returns s at time now, once it is known that c cost Actual units and not Cost. It may change
// s.Log in place.
//
// If less was used, the difference is refunded, up to the units that were taken at [Receipt.At].
// Remaining never exceeds Limit. What returns depends on the algorithm:
//
//   - Windows: the units return to the window that they were taken in, if it still counts.
//   - SlidingLog: the units return to the entries of that time, if they still count.
//   - TokenBucket: only units return that the bucket has not refilled since then. These are at most the
//     lowest State.Level since [Receipt.At]. That level is recorded only with [Quota.Settles]; without
//     it, a refund after a time d leaves out all units that can refill in d.
//   - LeakyBucket: only the units of the last event in the queue return. Later events keep their turns.
//
// If the time is unknown (0), the units that were taken last return, and a LeakyBucket returns none. If
// other events took those units, more than the limit may pass.
//
// If more was used, the difference is a debt, even if there is no room. The debt is at most one
// capacity above the limit; the rest is forgiven. Later events are refused until the debt is paid.
// Units above the limit outlive their window and count first in the next one.
//
// If s was written under another limit, a refund leaves s.Quota as it is. A debt sets s.Quota to q, as
// Take does, unless q's limit is lower than the other: units used above q's limit would then be
// forgotten.
func (q *Quota) Settle(s State, now int64, c Settlement) State {
	from := s.Quota
	if from == nil || q.InFlight() { // a lower limit may be in force, and all of the slots are released
		from = q
	}
	owed := c.Actual - c.Cost
	switch {
	case owed == 0:
		return s
	case owed < 0 && from.isOver(s, now):
		s.Quota = from
		return s
	case owed < 0:
		u, log, _ := from.at(from.usage(s.Last, s.Level, s.Prev), s.Log, now)
		return from.state(from.algorithm.refund(from, u, log, min(-owed, from.capacity), c.Decision.Receipt.At))
	}
	u, log := q.convert(s, now)
	settled := q.state(q.owe(u, log, now, owed))
	if from.limit == q.limit || from.isOver(s, now) || from.usedOf(s, now) == 0 {
		return settled
	}
	u, log = from.owe(from.usage(s.Last, s.Level, s.Prev), s.Log, now, owed)
	if kept := from.state(u, log); from.usedOf(kept, now) > q.usedOf(settled, now) {
		return kept
	}
	return settled
}

// usedOf returns how many units of a state of q are used or owed, up to twice the capacity.
func (q *Quota) usedOf(s State, now int64) int64 {
	_, _, used := q.at(q.usage(s.Last, s.Level, s.Prev), q.own(s.Log), now)
	return used
}

// owe returns the usage at time now with n units more used.
func (q *Quota) owe(u usage, log []Entry, now, n int64) (usage, []Entry) {
	u, log, _ = q.at(u, log, now)
	return q.algorithm.owe(q, u, log, min(n, 2*q.capacity))
}

// isOver reports whether s is of a calendar's window that has ended. No units return to such a
// window, and a debt begins a state of the next one: a store's server knows only the window of
// a state and the next one ([Quota.Numbers]).
func (q *Quota) isOver(s State, now int64) bool {
	return q.calendar != nil && now >= q.calendar.at(s.Last).end
}

// Undo returns the receipt with which a store refunds d at once, when it has taken this charge but
// cannot take the whole batch. For a bucket and for slots the receipt's At is zero, which marks an
// undo: a bucket returns all units of the charge, even units that it has refilled since, and slots
// leave the event out of their average duration.
func (q *Quota) Undo(d *Decision) Receipt {
	r := d.Receipt
	if q.bursts && !q.queue || q.InFlight() {
		r.At = 0
	}
	return r
}

// Describe returns the Decision on an event of that cost, where s and allowed are the results
// of Take.
func (q *Quota) Describe(s State, now, cost int64, allowed bool) (d Decision) {
	u, log, used := q.present(s, now)
	asked := cost
	if allowed || cost <= q.capacity-used { // s has the event, or has room for it by now
		asked = 0
	}
	q.decide(u, log, used, asked, &d)
	behind := micros(u.at - now) // nothing drains until the clock has caught up
	if d.Remaining < d.Limit {
		d.NextAfter += behind
		d.ResetAfter += behind
	}
	switch d.Allowed = allowed; {
	case allowed && q.queue:
		d.Delay = micros(q.byRefill.up(max(0, u.n-cost*q.unit)))
	case allowed:
	case cost < 0:
		d.RetryAfter, d.Delay = Never, 0
	case d.RetryAfter < Never:
		d.RetryAfter, d.Delay = max(time.Microsecond, d.RetryAfter+behind), 0
	}
	return d
}

// Numbers returns the numbers from which package store's Lua compiles q, all below 2^53. For a calendar limit they
// are the start of the window that contains at, and the lengths of that window and of the next. At is
// in microseconds since 1970. Near the end of the window, the server's clock decides which of the two
// windows counts.
func (q *Quota) Numbers(at int64) [3]int64 {
	if q.calendar != nil {
		const second, longest = 1_000_000, 1 << 25 // more than a year has
		w := q.calendar.at(at)
		return [3]int64{q.capacity, w.start, (w.end-w.start)/second*longest + (w.followedTo-w.end)/second}
	}
	if q.algorithm.bursts {
		return [3]int64{q.capacity, q.unit, q.refill}
	}
	return [3]int64{q.capacity, q.window, q.step}
}
