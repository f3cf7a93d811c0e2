package limiter

import "slices"

// Two limits may count on one counter: the limits of two releases, of two plans, or before and after a change.
//
// Limits of one shape count alike: they differ in their numbers of events alone. Their states have the same
// numbers, so one state serves all of them, and nothing changes its time.
//
// Limits of different shapes need a state each. A key has one for each shape that is in use, and an event counts
// in all of them. So every limit sees every event at its time. A shape gets its state at the first event that is
// taken under it: it is converted from another one, once.

// mostOthers is the most states in State.Others. A further shape replaces the state that was unused for longest.
const mostOthers = 3

// hasShapeOf reports whether q and p have one shape.
func (q *Quota) hasShapeOf(p *Quota) bool {
	return q == p || q.algorithm == p.algorithm && q.window == p.window && q.limit.calendar == p.limit.calendar &&
		(!q.isBucket || q.unit == p.unit && q.refill == p.refill)
}

// view returns s as q sees it at time now: the state of q's shape, or if there is none yet, the state to convert, with
// the quota that wrote it and the units that are used under q. The log may be changed in place.
func (q *Quota) view(s *State, now int64) (from *Quota, u usage, log []Entry, used int64) {
	of := *q.stateOf(s)
	of.Log = of.Quota.own(of.Log)
	return q.viewOf(&of, now)
}

// stateOf returns the state in s of q's shape, or the state to convert from.
func (q *Quota) stateOf(s *State) *State {
	of := s
	if s.Quota != nil && !q.hasShapeOf(s.Quota) {
		for i := range s.Others {
			o := &s.Others[i]
			if q.hasShapeOf(o.Quota) {
				of = o
				break
			}
			if o.Quota.span() > of.Quota.span() {
				of = o
			}
		}
	}
	return of
}

// viewOf is view of one of a key's states. It may change s.Log in place.
func (q *Quota) viewOf(s *State, now int64) (from *Quota, u usage, log []Entry, used int64) {
	from = s.Quota
	if from == nil {
		from = q
	}
	u, log, used = from.at(from.usage(s.Last, s.Level, s.Prev), s.Log, now)
	if from != q && !q.hasShapeOf(from) {
		used = q.convertedUnits(from, used)
	}
	return from, u, log, used
}

// span returns for how many microseconds q's events count. Of a calendar, that is the usual length of its windows.
func (q *Quota) span() int64 {
	switch {
	case q.queue:
		return divUp((q.capacity-1)*q.unit, q.refill)
	case q.isBucket:
		return q.drain
	}
	return q.window
}

// fractions is the resolution of part.
const fractions = 1024

// part returns a/b in units of 1/fractions, for a < b, rounded down.
func part(a, b int64) int64 {
	if b > 1<<40 { // the product would not be exact in Lua
		return min(a/(b/fractions), fractions)
	}
	return a * fractions / b
}

// A ratio converts units of one shape to another: as if they were used evenly over the longer span, so a shorter
// one has as large a part of them. It is 1/by if by is above 1, and otherwise of/fractions.
type ratio struct{ by, of int64 }

// largeRatio is where a whole number is exact enough.
const largeRatio = 32

// ratioOf returns how q converts units of p. All of them stay used if p allows no more at once than q: then a change of
// the limit admits nothing extra. If p allows more, a client below both limits may have used more than q's capacity.
func (q *Quota) ratioOf(p *Quota) ratio {
	to, from := q.span(), p.span()
	switch {
	case to >= from-from/largeRatio || to == 0 || p.capacity <= q.capacity:
		return ratio{1, fractions}
	case from/to >= largeRatio:
		return ratio{from / to, 0}
	}
	return ratio{1, part(to, from)}
}

// convert returns n units of the other shape in units of this one.
func (r ratio) convert(n int64) int64 {
	if r.by > 1 {
		return n / r.by
	}
	return n * r.of / fractions
}

// most returns the most units of the other shape that convert to n.
func (r ratio) most(n int64) int64 {
	if r.by > 1 {
		return (n+1)*r.by - 1
	}
	return ((n+1)*fractions - 1) / r.of
}

// convertedUnits converts used units of p to units of q. Debts stay debts.
func (q *Quota) convertedUnits(p *Quota, used int64) int64 {
	owed := max(0, used-p.capacity)
	return min(q.ratioOf(p).convert(used-owed), q.capacity) + min(owed, q.capacity)
}

// unitsOf returns how many units fit under p when n units fit under q.
func (q *Quota) unitsOf(p *Quota, n int64) int64 {
	room := q.capacity - n
	if !q.hasShapeOf(p) {
		r := q.ratioOf(p)
		if whole := min(r.convert(p.capacity), q.capacity); whole <= room {
			room += p.capacity - whole // debts stand in the way
		} else {
			room = r.most(room)
		}
	}
	return p.capacity - room
}

// converted returns the usage of q at time now for a usage of p. Its units stop to count as if they had been used evenly
// until now. But in a fixed window units count until it ends, so only the units that were used in it are.
func (q *Quota) converted(p *Quota, of usage, entries []Entry, now int64) (u usage, log []Entry) {
	_, _, used := p.algorithm.advance(p, of, nil, of.at)
	owed := max(0, used-p.capacity)
	n := min(q.ratioOf(p).convert(used-owed), q.capacity)
	span := min(p.span(), q.span())
	u, log, _ = q.at(usage{}, nil, now)
	switch {
	case n == 0:
	case q.logs && p.logs:
		u.n, log = latest(entries, u.at, q.window, n)
	case q.logs:
		count := min(n, convertedEntries)
		for i := range count { // the first expires next
			at := u.at - min((count-i)*(span/count), q.window-1)
			log = append(log, Entry{max(0, at), n*(i+1)/count - n*i/count})
		}
		u.n = n
	case q.fades && span == q.window:
		u.prev = n
		_, _, share := advanceWindow(q, u, nil, u.at)
		u.n = n - share
	case q.fades:
		u.n = usedSince(n, u.at-u.index*q.window, span)
		u.prev = n - u.n
	case q.window > 0:
		u.n = min(n, q.inWindow(u, p, of, entries, n, span))
	default:
		u, log = q.take(u, log, n)
	}
	if owed > 0 {
		u, log = q.algorithm.owe(q, u, log, min(owed, q.capacity))
	}
	return u, log
}

// latest returns the latest of up to n units of the entries of a window that ends now.
func latest(entries []Entry, now, window, n int64) (units int64, log []Entry) {
	for i := len(entries) - 1; i >= 0 && units < n && entries[i].At > now-window; i-- {
		e := Entry{min(now, entries[i].At), min(entries[i].N, n-units)}
		units += e.N
		log = append(log, e)
	}
	slices.Reverse(log)
	return units, log
}

// inWindow returns how many of n units, which p counted within a span, were used in u's window.
func (q *Quota) inWindow(u usage, p *Quota, of usage, entries []Entry, n, span int64) int64 {
	_, start, _, _ := q.windowsAround(u)
	switch {
	case p.window == 0:
		return n
	case p.logs:
		used := int64(0)
		for _, e := range entries[entriesUpTo(entries, start-1):] {
			used += e.N
		}
		return used
	}
	if _, began, _, _ := p.windowsAround(of); began == start {
		return of.n
	} else if !p.fades {
		span = min(span, max(0, u.at-began))
	}
	return usedSince(n, u.at-start, span)
}

// convertedEntries is the most entries that converted makes.
const convertedEntries = 16

// usedSince returns how many of n units, used evenly over a span, were used in the last age microseconds of it.
func usedSince(n, age, span int64) int64 {
	if age >= span {
		return n
	}
	return divUp(n*part(age, span), fractions)
}

// adopt returns the usage that from wrote as one of q, and the units that are used. If it does not fit q, it stays
// one of from: the previous window may have more units than q's limit, and after the clock has stepped back, q may not
// accept its time.
func (q *Quota) adopt(from *Quota, u usage, log []Entry, now int64) (_ *Quota, _ usage, _ []Entry, used int64) {
	switch {
	case from == q:
	case !q.hasShapeOf(from):
		u, log = q.converted(from, u, log, now)
	case q.fades && u.prev > q.capacity, u.at > now && q.refusesTime(u.at, now):
		q = from
	case q.logs:
		u, log = payBack(u, log, u.at, q.capacity-(u.n-u.prev))
	case q.isBucket && !q.hasLows():
		log = nil
	}
	u, log, used = q.algorithm.advance(q, u, log, u.at)
	return q, u, log, used
}

// refusesTime reports whether the clock has stepped back so far that q would not count a state of that time, or could
// not say in which window it is.
func (q *Quota) refusesTime(at, now int64) bool {
	return q.isBucket && q.isAhead(at, now) || q.calendar != nil && now < q.calendar.at(at).start
}

// joined returns the states of a key after a change under q, at time now. s has the states before the change, and state
// is the new state of q's shape. joined calls change for each other state that is still in use; change reports whether
// the other state had room for all units.
func (q *Quota) joined(s *State, state State, now int64, change func(*Quota, State) (State, bool)) State {
	if s.Quota == nil || len(s.Others) == 0 && q.hasShapeOf(s.Quota) || s.FreeAfter(now) <= 0 {
		return state
	}
	var others []State
	window := max(q.Window(), s.Quota.Window())
	for i := range s.Others {
		window = max(window, s.Others[i].Quota.Window())
	}
	longest := window.Microseconds()
	keep := func(o State, isOf *Quota) {
		if len(others) == mostOthers || now-o.Taken > longest || q.hasShapeOf(isOf) {
			return
		}
		changed, ok := change(isOf, o)
		if !ok {
			state.Cut = state.Last
		}
		changed.Taken = o.Taken
		others = append(others, changed)
	}
	state.Cut = s.Cut
	former := *s
	former.Others, former.Cut, former.Taken = nil, 0, now
	former.Log = slices.Clone(s.Log) // the store may reuse the array for state's
	keep(former, s.Quota)
	for _, o := range s.Others {
		keep(o, o.Quota)
	}
	if state.Others = others; len(others) == 0 {
		state.Cut = 0
	}
	return state
}

// count returns s after n units were taken under a limit of another shape, and whether q had room for all of them.
// Units without room are not counted; in a log they replace the earliest units.
func (q *Quota) count(s State, now, n int64) (_ State, ok bool) {
	if q.isOver(s, now) {
		return s, true
	}
	_, u, log, used := q.view(&s, now)
	room := max(0, q.capacity-used)
	ok = n <= room
	if n = min(n, q.capacity); !ok && q.logs {
		log = slices.Clone(log)
		for left := n - room; left > 0; {
			gone := min(left, log[0].N)
			left -= gone
			u.n -= gone
			if log[0].N -= gone; log[0].N == 0 {
				log = log[1:]
			}
		}
	} else {
		n = min(n, room)
	}
	if n > 0 {
		u, log = q.take(u, log, n)
	}
	return q.state(u, log), ok
}

// current returns s without states of a calendar's window that has ended, or that is too far ahead, unless
// something is owed. A store's server could not say which calendar they are of.
func (s State) current(now int64) State {
	isGone := func(s *State) bool {
		q := s.Quota
		return q.calendar != nil && (s.Last > now && q.isAhead(s.Last, now) ||
			now >= q.calendar.at(s.Last).followedTo || q.isOver(*s, now) && s.Level <= q.capacity)
	}
	if len(s.Others) == 0 {
		return s
	}
	others := slices.Clone(s.Others)
	others = slices.DeleteFunc(others, func(o State) bool { return isGone(&o) })
	if isGone(&s) {
		if len(others) == 0 {
			return State{}
		}
		cut := s.Cut
		s, others = others[0], others[1:]
		s.Cut, s.Taken = cut, 0
	}
	if s.Others = others; len(others) == 0 {
		s.Cut = 0
	}
	return s
}

// FreeAfter returns after how many microseconds s is as good as the zero State: all units are free, under each
// limit that s has a state of. Then a store may forget s.
func (s *State) FreeAfter(now int64) int64 {
	if s.Quota == nil {
		return 0
	}
	free := int64(0)
	if q, u, log, used := s.Quota.view(s, now); used > 0 {
		_, reset := q.algorithm.wait(q, u, log, 1)
		free = u.at + reset - now
	}
	for i := range s.Others {
		free = max(free, s.Others[i].FreeAfter(now))
	}
	return free
}
