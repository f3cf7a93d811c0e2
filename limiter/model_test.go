package limiter_test

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
)

// A model is an algorithm written down from its definition, in exact fractions and
// without a thought for speed. What a decision says follows from room alone.
type model struct {
	quota    *limiter.Quota
	capacity int64
	last     *int64 // the time of the last change
	room     func(t int64) *big.Rat
	add      func(t, n int64)
	back     func(t, n, at int64) // what was taken at that time; 0: last
	owe      func(t, n int64)
	delay    func(t int64) *big.Rat
}

func newModel(q *limiter.Quota) *model {
	m := algorithmModel(q)
	m.quota = q
	return m
}

func algorithmModel(q *limiter.Quota) *model {
	switch q.Algorithm() {
	case limiter.TokenBucket:
		return bucketModel(q, cmp.Or(q.Limit().Burst, q.Limit().Events))
	case limiter.LeakyBucket:
		m := bucketModel(q, cmp.Or(q.Limit().Burst, q.Limit().Events)+1)
		unit, refill := rateOf(q)
		m.delay = func(t int64) *big.Rat {
			queue := new(big.Rat).Sub(whole(m.capacity), m.room(t))
			return queue.Quo(queue, big.NewRat(refill, unit))
		}
		last := m.back
		m.back = func(t, n, end int64) {
			queue := m.delay(t)
			if queue.Sign() == 0 || unit < refill || t+ceil(queue).Microseconds() != end {
				n = 0
			}
			last(t, n, 0)
		}
		return m
	case limiter.FixedWindow:
		return windowModel(q, func(int64) *big.Rat { return new(big.Rat) })
	case limiter.SlidingCounter:
		per := q.Limit().Per.Microseconds()
		return windowModel(q, func(into int64) *big.Rat { return big.NewRat(per-into, per) })
	default:
		return logModel(q)
	}
}

// rateOf returns what an event adds to the level of a bucket, and what a microsecond takes away.
func rateOf(q *limiter.Quota) (unit, refill int64) {
	numbers := q.Numbers(0)
	return numbers[1], numbers[2]
}

// stepOf returns how many microseconds a step takes in which the previous window fades.
func stepOf(q *limiter.Quota) int64 {
	if q.Algorithm() != limiter.SlidingCounter {
		return 1
	}
	return q.Numbers(0)[2]
}

// bucketModel leaks at the compiled rate; that this is the rate asked for is another test.
func bucketModel(q *limiter.Quota, capacity int64) *model {
	m := &model{capacity: capacity, last: new(int64)}
	unit, refill := rateOf(q)
	rate := big.NewRat(refill, unit)
	level := new(big.Rat)
	var past []moment
	at := func(t int64) *big.Rat {
		leaked := new(big.Rat).Mul(rate, whole(t-*m.last))
		return notNegative(leaked.Sub(level, leaked))
	}
	m.room = func(t int64) *big.Rat { return new(big.Rat).Sub(whole(capacity), at(t)) }
	m.add = func(t, n int64) {
		before := at(t)
		level = new(big.Rat).Add(before, whole(n))
		past = append(past, moment{t, before, level})
	}
	m.owe = func(t, n int64) {
		m.add(t, n)
		if most := whole(2 * capacity); level.Cmp(most) > 0 {
			level = most
			past[len(past)-1].after = most
		}
	}
	m.back = func(t, n, taken int64) {
		before, back := at(t), whole(n)
		switch {
		case taken == 0:
		case q.Settles:
			back = least(back, lowest(past, taken, before))
			for i, p := range past { // as if they had not been taken
				if p.isSince(taken, past[i+1:]) {
					past[i].after = new(big.Rat).Sub(p.after, back)
				}
				if p.at > taken {
					past[i].before = new(big.Rat).Sub(p.before, back)
				}
			}
		default: // the bucket stood still for them
			drained := new(big.Rat).Mul(rate, whole(max(0, t-taken)))
			back = notNegative(back.Sub(back, drained))
		}
		level = notNegative(back.Sub(before, back))
		past = append(past, moment{t, level, level})
	}
	return m
}

// A moment is when the level of a bucket changed.
type moment struct {
	at            int64
	before, after *big.Rat
}

// isSince reports whether a level was reached when all of a time had happened. What follows the
// moment tells whether it is the last of its time.
func (m moment) isSince(since int64, following []moment) bool {
	return m.at > since || m.at == since && (len(following) == 0 || following[0].at > since)
}

// lowest is how low a bucket was since what happened at a time, until now.
func lowest(past []moment, since int64, now *big.Rat) *big.Rat {
	low := now
	for i, p := range past {
		if p.at > since {
			low = least(low, p.before)
		}
		if p.isSince(since, past[i+1:]) {
			low = least(low, p.after)
		}
	}
	return low
}

// windowModel counts in windows, and the one before by its share(how far into this one),
// in whole units.
func windowModel(q *limiter.Quota, share func(into int64) *big.Rat) *model {
	m := &model{capacity: q.Limit().Events, last: new(int64)}
	per := q.Limit().Per.Microseconds()
	index := indexer(q.Limit())
	counts := map[int64]int64{}
	above := func(window int64) int64 { return max(0, counts[window]-m.capacity) }
	m.room = func(t int64) *big.Rat {
		w := index(t)
		before := whole(min(m.capacity, counts[w-1]+above(w-2)))
		return whole(m.capacity - counts[w] - above(w-1) - floor(before.Mul(before, share(t%per))))
	}
	carry := func(t int64) { // what is above one capacity is the next window's
		for w := index(t) - 1; w <= index(t); w++ {
			over := above(w - 1)
			counts[w-1] -= over
			counts[w] += over
		}
	}
	m.add = func(t, n int64) {
		carry(t)
		counts[index(t)] += n
	}
	m.owe = func(t, n int64) {
		m.add(t, n)
		counts[index(t)] = min(counts[index(t)], 2*m.capacity)
	}
	m.back = func(t, n, at int64) {
		carry(t)
		if at != 0 {
			counts[index(at)] = max(0, counts[index(at)]-n)
			return
		}
		w := index(t)
		if counts[w] -= n; counts[w] < 0 {
			// More comes back than this window has: the rest is the last one's.
			counts[w-1] = max(0, counts[w-1]+counts[w])
			counts[w] = 0
		}
	}
	return m
}

func logModel(q *limiter.Quota) *model {
	m := &model{capacity: q.Limit().Events, last: new(int64)}
	per := q.Limit().Per.Microseconds()
	var log []int64 // of each unit
	var owed int64  // those that wait for room in it
	at := func(t int64) (live []int64, waiting int64) {
		live, waiting = slices.Clone(log), owed
		for len(live) > 0 && live[0]+per <= t {
			if waiting > 0 {
				waiting--
				live = append(live, live[0]+per)
			}
			live = live[1:]
		}
		return live, waiting
	}
	admit := func(t int64) {
		for ; owed > 0 && int64(len(log)) < m.capacity; owed-- {
			log = append(log, t)
		}
	}
	m.room = func(t int64) *big.Rat {
		live, waiting := at(t)
		return whole(m.capacity - int64(len(live)) - waiting)
	}
	m.add = func(t, n int64) {
		log, owed = at(t)
		for ; n > 0; n-- {
			log = append(log, t)
		}
	}
	m.owe = func(t, n int64) {
		log, owed = at(t)
		owed += min(n, 2*m.capacity-int64(len(log))-owed)
		admit(t)
	}
	m.back = func(t, n, taken int64) {
		log, owed = at(t)
		if taken == 0 {
			first := min(n, owed)
			owed, n = owed-first, n-first
		}
		for i := len(log) - 1; i >= 0 && n > 0; i-- {
			if taken == 0 || log[i] == taken {
				log = slices.Delete(log, i, i+1)
				n--
			}
		}
		admit(t)
	}
	return m
}

// remaining is how many whole units there is room for. A clock that is behind has to catch up,
// unless it is too far behind.
func (m *model) remaining(now int64) int64 {
	if m.isAhead(now) {
		return m.capacity
	}
	return max(0, floor(m.room(max(now, *m.last))))
}

// isAhead reports whether the clock is behind the last change by more than a period, or before
// the calendar's window of that by more than the window's length.
func (m *model) isAhead(now int64) bool { return isAhead(m.quota, *m.last, now) }

func isAhead(q *limiter.Quota, last, now int64) bool {
	if q.Limit().Calendar() != "" {
		start, end := q.WindowAt(last)
		return start-now > end-start
	}
	return last-now > q.Window().Microseconds()
}

// change has something happen now, or as soon as the clock has caught up.
func (m *model) change(now int64, happen func(t int64)) {
	if m.isAhead(now) {
		*m = *newModel(m.quota)
	}
	now = max(now, *m.last)
	happen(now)
	*m.last = now
}

func (m *model) take(now, cost int64) bool {
	if cost > m.remaining(now) {
		return cost == 0
	}
	if cost > 0 {
		m.change(now, func(t int64) { m.add(t, cost) })
	}
	return true
}

func (m *model) owes(now, n int64) {
	if n > 0 {
		m.change(now, func(t int64) { m.owe(t, min(n, 2*m.capacity)) })
	}
}

func (m *model) refund(now, n, at int64) {
	if _, end := m.quota.WindowAt(*m.last); n <= 0 || m.quota.Limit().Calendar() != "" && now >= end {
		return
	}
	m.change(now, func(t int64) { m.back(t, min(n, m.capacity), at) })
}

// decide is a whole decision. What it says of the future is found by trying.
func (m *model) decide(now, cost int64) limiter.Decision {
	var delay time.Duration
	if m.delay != nil && !m.isAhead(now) {
		delay = ceil(m.delay(max(now, *m.last)))
	}
	d := limiter.Decision{Allowed: m.take(now, cost), Limit: m.capacity, Remaining: m.remaining(now)}
	d.Receipt = limiter.Receipt{max(now, *m.last), limiter.ByStore}
	if m.isAhead(now) {
		d.Receipt.At = now
	}
	after := func(units int64) time.Duration {
		return first(func(wait int64) bool { return m.remaining(now+wait) >= units })
	}
	if d.Remaining < d.Limit {
		d.NextAfter = after(d.Remaining + 1)
		d.ResetAfter = after(d.Limit)
	}
	if m.delay != nil && d.ResetAfter > 0 {
		d.Receipt.At = now + d.ResetAfter.Microseconds()
	}
	switch {
	case d.Allowed:
		d.Delay = delay
	case cost > m.capacity:
		d.RetryAfter = limiter.Never
	default:
		d.RetryAfter = after(cost)
	}
	return d
}

// first is the first microsecond at which something comes true that then stays true.
func first(holds func(wait int64) bool) time.Duration {
	end := int64(1)
	for !holds(end) {
		end *= 2
	}
	from := end / 2
	for from < end {
		if middle := from + (end-from)/2; holds(middle) {
			end = middle
		} else {
			from = middle + 1
		}
	}
	return micros(end)
}

func whole(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func floor(r *big.Rat) int64 { return new(big.Int).Div(r.Num(), r.Denom()).Int64() }

func ceil(r *big.Rat) time.Duration {
	n := new(big.Int).Sub(new(big.Int).Add(r.Num(), r.Denom()), big.NewInt(1))
	return micros(n.Div(n, r.Denom()).Int64())
}

func notNegative(r *big.Rat) *big.Rat {
	if r.Sign() < 0 {
		return new(big.Rat)
	}
	return r
}

func least(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

// anyLimit draws from all valid limits, of every order of magnitude.
func anyLimit(algorithms ...limiter.Algorithm) *rapid.Generator[limiter.Limit] {
	if len(algorithms) == 0 {
		algorithms = everyAlgorithm
	}
	return rapid.Custom(func(t *rapid.T) limiter.Limit {
		l := limiter.Limit{Algorithm: rapid.SampledFrom(algorithms).Draw(t, "algorithm")}
		per := magnitude(1, maxPeriod.Microseconds()).Draw(t, "per")
		if rapid.Bool().Draw(t, "round") {
			per = rapid.SampledFrom([]int64{1e6, 6e7, 3.6e9, 8.64e10}).Draw(t, "unit")
		}
		l.Per = micros(per)
		most := min(maxEvents, maxRate*per)
		if l.Algorithm == limiter.SlidingLog {
			most = min(most, 60) // beyond, the model takes too long
		}
		if l.Algorithm == limiter.FixedWindow && rapid.Bool().Draw(t, "calendar") {
			return anyCalendar(magnitude(1, maxEvents).Draw(t, "events")).Draw(t, "limit")
		}
		l.Events = magnitude(1, most).Draw(t, "events")
		if isBucket(l.Algorithm) && rapid.Bool().Draw(t, "bursts") {
			// As many as come back in 366 days, rounded down.
			back := new(big.Int).Mul(big.NewInt(l.Events), big.NewInt(maxPeriod.Microseconds()))
			back.Div(back, big.NewInt(per))
			most := int64(maxEvents)
			if back.IsInt64() {
				most = min(most, back.Int64())
			}
			l.Burst = magnitude(1, most).Draw(t, "burst")
		}
		return l
	})
}

// magnitude draws from low to high with every number of bits equally likely.
func magnitude(low, high int64) *rapid.Generator[int64] {
	return rapid.Custom(func(t *rapid.T) int64 {
		top := high
		for bits := rapid.IntRange(0, 62).Draw(t, "halvings"); bits > 0 && top/2 >= low; bits-- {
			top /= 2
		}
		return rapid.Int64Range(max(low, top/2), top).Draw(t, "value")
	})
}

// everyAlgorithm is those that a quota can have.
var everyAlgorithm = []limiter.Algorithm{
	limiter.TokenBucket, limiter.LeakyBucket, limiter.FixedWindow, limiter.SlidingLog, limiter.SlidingCounter,
}

func isBucket(a limiter.Algorithm) bool { return a == limiter.TokenBucket || a == limiter.LeakyBucket }

// The bounds of a limit.
const (
	maxEvents = 1_000_000_000_000
	maxPeriod = 366 * 24 * time.Hour
	maxRate   = 10 // events per microsecond
)

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// anyCost draws a cost that matters to a key of which so many units remain.
func anyCost(capacity, remaining int64) *rapid.Generator[int64] {
	return rapid.OneOf(
		rapid.SampledFrom([]int64{0, 1, 1, 1, 2}),
		rapid.SampledFrom([]int64{remaining, remaining + 1, capacity, capacity + 1}),
		magnitude(1, capacity),
	)
}

// anyOwed draws how many units are owed that were not asked for.
func anyOwed(capacity int64) *rapid.Generator[int64] {
	return rapid.OneOf(
		rapid.SampledFrom([]int64{1, 2, capacity, 2 * capacity, math.MaxInt64}),
		magnitude(1, 2*capacity),
	)
}

// anyStep draws how the clock moves: not at all, a little, to where d says that
// something happens or just before, far, or back.
func anyStep(q *limiter.Quota, d limiter.Decision) *rapid.Generator[int64] {
	retry := d.RetryAfter
	if retry == limiter.Never {
		retry = 0
	}
	window := q.Window().Microseconds()
	return rapid.OneOf(
		rapid.SampledFrom([]int64{0, 0, 1}),
		rapid.SampledFrom([]int64{
			retry.Microseconds(), retry.Microseconds() - 1,
			d.NextAfter.Microseconds(), d.NextAfter.Microseconds() - 1,
			d.ResetAfter.Microseconds(), d.ResetAfter.Microseconds() - 1,
		}),
		magnitude(1, window),
		magnitude(1, 3*window),
		rapid.Map(magnitude(1, 3_600_000_000), func(back int64) int64 { return -back }),
	)
}

// anyNow draws the time after anyStep, back by at most a period of the limit.
func anyNow(q *limiter.Quota, s limiter.State, now int64, d limiter.Decision) *rapid.Generator[int64] {
	return rapid.Map(anyStep(q, d), func(step int64) int64 {
		next := max(0, now+step)
		if isAhead(q, s.Last, next) {
			return s.Last
		}
		return next
	})
}

// anyStart draws a time of day in this century or the epoch's first.
func anyStart() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(1.7e15, 1.8e15), rapid.Int64Range(0, 1e9))
}
