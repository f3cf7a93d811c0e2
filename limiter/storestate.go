package limiter

import "time"

// State is what a store remembers of one key: a few integers whose meaning depends on the
// algorithm, and for some algorithms a list of entries. The zero State is a key that was never
// seen. A store writes and reads a State unchanged.
type State struct {
	// Quota is the quota under which the state was written. [Quota.Take] and [Quota.Settle] set
	// it. If a rule's limit changes, it says which limit the numbers below belong to. Nil means
	// the Quota that the state is passed to. A store that writes states elsewhere must keep, of the
	// Quota, its Limit and Settles.
	Quota *Quota

	// Last is when the state last changed, in microseconds since 1970. If the clock steps back,
	// Last does not.
	Last int64

	// Level is how full the bucket is, or the count in the window of Last, or the units in the
	// log. Debts can make it up to twice the limit.
	Level int64

	// Prev is the count in the previous window. In a log it is the debt: the part of Level that no
	// entry of Log covers.
	Prev int64

	// Log is sorted by time. In a SlidingLog an entry is an event with its units, and there are at most
	// Events entries. In a TokenBucket with [Quota.Settles] an entry is the bucket's lowest level since
	// the entry's time, and there are at most 8 entries. Other algorithms have none. Take
	// appends in place if the capacity of Log allows it.
	Log []Entry

	// Others has the same events as limits count them that differ from Quota in more than their number of events,
	// at most 3. Most keys have none. [State.FreeAfter] says when all states are free.
	Others []State

	// Taken is set in Others: when the limit was last in use.
	Taken int64

	// Cut is set if there are Others: some of the units that were taken until then are not counted in all
	// states, and cannot be refunded there.
	Cut int64
}

// An Entry of a State's Log has a time, in microseconds since 1970, and a number of units, at least 1.
type Entry struct{ At, N int64 }

// The methods of [Quota] for authors of stores, over the State of a key.

// Take returns s after an event of that cost at time now, in microseconds since 1970. If there is no
// room, it returns s itself and false. Cost 0 takes nothing and succeeds. A negative cost fails, and so
// does a cost above the capacity.
//
// s may be written under other limits. What was used under a limit with the same algorithm and period,
// or a bucket with the same rate, keeps its time under q. For limits that differ in more than their number of
// events, s has a state each (State.Others), in which every event counts. The first event that is taken
// under such a limit converts its state from another one, once: the units in use stay in use, or under a
// shorter period as large a part of them as the period is shorter, and stop to count as if they had been used evenly.
// Debts stay too, up to one more capacity. A state whose limit took no event for the longest of their periods is
// dropped.
//
// A store must write the returned State only if an event with a cost was taken.
func (q *Quota) Take(s State, now, cost int64) (State, bool) {
	if cost <= 0 || cost > q.capacity {
		return s, cost == 0
	}
	known := s.current(now)
	from, u, log, used := q.view(&known, now)
	if used+cost > q.capacity {
		return s, false
	}
	from, u, log, _ = q.adopt(from, u, log, now)
	u, log = q.take(u, log, cost)
	return q.taken(&known, from, u, log, now, cost), true
}

// taken returns the states of a key after an event of that cost was taken under q. The usage is of the state of
// q's shape after the event, which from wrote, and s are the states before the event.
func (q *Quota) taken(s *State, from *Quota, u usage, log []Entry, now, cost int64) State {
	return q.joined(s, from.state(u, log), now, func(o *Quota, s State) (State, bool) { return o.count(s, now, cost) })
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
// If s has states of several limits ([Quota.Take]), all of them are settled. Units are refunded to the
// states of other limits only if all units were counted there.
func (q *Quota) Settle(s State, now int64, c Settlement) State {
	if s.Quota == nil || q.InFlight() { // a lower limit may be in force, and all of the slots are released
		s.Quota = q
	}
	switch owed := c.Actual - c.Cost; {
	case owed < 0:
		return q.refunded(s.current(now), now, -owed, c.Decision.Receipt.At)
	case owed > 0:
		return q.indebted(s.current(now), now, owed)
	}
	return s
}

// refunded returns s after a refund of up to n units that were taken at a time.
func (q *Quota) refunded(s State, now, n, at int64) State {
	refund := func(s *State) State {
		o := s.Quota
		if o.isOver(*s, now) {
			return *s
		}
		_, u, log, _ := o.viewOf(s, now)
		if q.hasShapeOf(o) || s.Cut == 0 || !q.queue && at > s.Cut {
			u, log = o.algorithm.refund(o, u, log, min(n, o.capacity), at)
		}
		refunded := o.state(u, log)
		refunded.Others, refunded.Taken, refunded.Cut = s.Others, s.Taken, s.Cut
		return refunded
	}
	if s.Quota == nil {
		return s
	}
	cut := s.Cut
	s = refund(&s)
	for i := range s.Others {
		o := s.Others[i]
		o.Cut = cut
		o = refund(&o)
		o.Cut = 0
		s.Others[i] = o
	}
	return s
}

// indebted returns s after n units were owed under q.
func (q *Quota) indebted(s State, now, n int64) State {
	of := *q.stateOf(&s)
	if of.Quota != nil && !q.hasShapeOf(of.Quota) {
		of.Log = of.Quota.own(of.Log) // joined changes the state itself too
	}
	from, u, log, used := q.viewOf(&of, now)
	if from.isOver(of, now) || q.capacity >= from.capacity || used <= q.capacity || !q.hasShapeOf(from) {
		from, u, log, _ = q.adopt(from, u, log, now)
	}
	owe := func(o *Quota, u usage, log []Entry) State {
		return o.state(o.algorithm.owe(o, u, log, min(n, 2*o.capacity)))
	}
	return q.joined(&s, owe(from, u, log), now, func(o *Quota, s State) (State, bool) {
		if o.isOver(s, now) {
			return s, true
		}
		_, u, log, _ := o.viewOf(&s, now)
		return owe(o, u, log), true
	})
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
	if q.isBucket && !q.queue || q.InFlight() {
		r.At = 0
	}
	return r
}

// Describe returns the Decision on an event of that cost, where s and allowed are the results
// of Take.
func (q *Quota) Describe(s State, now, cost int64, allowed bool) (d Decision) {
	s = s.current(now)
	from, u, log, used := q.view(&s, now)
	asked := cost
	if allowed || cost <= q.capacity-used { // s has the event, or has room for it by now
		asked = 0
	}
	_, _, _ = q.decide(from, u, log, used, asked, 0, &d)
	behind := micros(u.at - now) // nothing drains until the clock has caught up
	if d.Remaining < d.Limit {
		d.NextAfter += behind
		d.ResetAfter += behind
	}
	switch d.Allowed = allowed; {
	case allowed && q.queue:
		d.Delay = micros(q.byRefill.up(max(0, q.level(from, u, used)-cost*q.unit)))
	case allowed:
	case cost < 0:
		d.RetryAfter, d.Delay = Never, 0
	case d.RetryAfter < Never:
		d.RetryAfter, d.Delay = max(time.Microsecond, d.RetryAfter+behind), 0
	}
	return d
}

// Late returns how long it takes until the queue of a LeakyBucket is short enough for a charge with that Within
// ([Charge]), or 0 if it is at time now. A store refuses a late charge, and says so in RetryAfter; package store's
// TakeAll does both.
func (q *Quota) Late(s State, now int64, within time.Duration) time.Duration {
	if !q.queue {
		return 0
	}
	s = s.current(now)
	from, u, log, used := q.view(&s, now)
	if late := q.late(from, u, log, used, within); late > 0 {
		return micros(u.at - now + late) // nothing drains until the clock has caught up
	}
	return 0
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
	if q.algorithm.isBucket {
		return [3]int64{q.capacity, q.unit, q.refill}
	}
	return [3]int64{q.capacity, q.window, q.step}
}
