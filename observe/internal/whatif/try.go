package whatif

import (
	"context"
	"math"

	"github.com/weirgo/weir/limiter"
)

// A Demand is what was recorded of the last hour, or since the Recorder began.
type Demand struct {
	Seconds int64 // that it is of
	Each    int64 // one key of so many is in it
	Keys    int64 // in it
	Units   int64 // that these asked for
	Odd     bool  // a unit is not a request: some cost more, or less

	begin int64 // the second
	asked [][]asked
}

// An asked is what one key asked for in one second.
type asked struct {
	second int64
	units  int64
	mask   uint8
}

// Demand is that of whole seconds up to now.
func (r *Recorder) Demand(now int64) *Demand {
	r.mu.Lock()
	defer r.mu.Unlock()
	level, from := r.level.Load(), now-Seconds
	for began := r.complete[highestLevel]; r.complete[level] > max(from, began); {
		level++ // keys that joined the sample later would seem to have asked less
	}
	d := &Demand{Each: 1 << level, Odd: r.odd.Load(), begin: max(from, r.complete[level])}
	d.Seconds = max(0, now-d.begin)
	second, at := r.oldest, make(map[uint64]int, r.known)
	for i := r.first; i < r.next; i++ {
		e := r.records[i%uint64(len(r.records))]
		if seconds, ok := e.pause(); ok {
			second += seconds
			continue
		}
		if second < d.begin || second >= now || !sampled(r.keys[e.slot()].Load(), level) {
			continue
		}
		k, known := at[e.slot()]
		if !known {
			k = len(d.asked)
			at[e.slot()] = k
			d.asked = append(d.asked, nil)
		}
		d.asked[k] = append(d.asked[k], asked{second, e.units(), e.mask()})
		d.Units += e.units()
	}
	d.Keys = int64(len(d.asked))
	return d
}

// A Result is what a limit would have refused of a Demand.
type Result struct {
	Keys  int64 // that it refused something
	Units int64 // that it refused

	squares float64 // the sum of the squares of what it refused to each key
	each    int64
}

// Try has a limit decide about a demand. All keys begin with nothing used, in the second in
// Unix time that the Recorder's second 0 is. Its error is that of ctx: a log of thousands of
// events for each key takes seconds.
func (d *Demand) Try(ctx context.Context, q *limiter.Quota, start int64) (Result, error) {
	r := Result{each: d.Each}
	var state limiter.State
	for _, key := range d.asked {
		state = limiter.State{Log: state.Log[:0]}
		refused := int64(0)
		for i, a := range key {
			if i%64 == 0 && ctx.Err() != nil {
				return Result{}, ctx.Err()
			}
			var no int64
			state, no = a.try(q, state, start)
			refused += no
		}
		if refused > 0 {
			r.Keys++
			r.Units += refused
			r.squares += float64(refused) * float64(refused)
		}
	}
	return r, nil
}

// try has a quota decide about a second. What came in several eighths is as much in each.
func (a asked) try(q *limiter.Quota, s limiter.State, start int64) (_ limiter.State, refused int64) {
	parts, left := int64(0), a.units
	for eighth := range Eighths {
		parts += int64(a.mask >> eighth & 1)
	}
	for eighth := range int64(Eighths) {
		if a.mask>>eighth&1 == 0 && (parts > 0 || eighth > 0) { // without any the first will do
			continue
		}
		n := (left + max(1, parts) - 1) / max(1, parts)
		left -= n
		parts--
		at := (start+a.second)*1e6 + eighth*1e6/Eighths
		var passed int64
		s, passed = takeMost(q, s, at, n)
		refused += n - passed
		if left == 0 {
			break
		}
	}
	return s, refused
}

// takeMost takes n units one by one, as far as there is room.
func takeMost(q *limiter.Quota, s limiter.State, at, n int64) (_ limiter.State, passed int64) {
	if after, ok := q.Take(s, at, n); ok {
		return after, n
	}
	room := min(n-1, q.Describe(s, at, 1, false).Remaining)
	if room == 0 {
		return s, 0
	}
	after, ok := q.Take(s, at, room)
	if !ok {
		return s, 0
	}
	return after, room
}

// An Estimate is a number that is found in a sample, and between which it is 19 times in 20.
type Estimate struct{ About, Low, High int64 }

// Exact reports whether all were counted.
func (e Estimate) Exact() bool { return e.Low == e.High }

// EstimateKeys is how many there are if so many are in a sample of one in each.
func EstimateKeys(n, each int64) Estimate {
	if each <= 1 {
		return Estimate{n, n, n}
	}
	// Of a Poisson variable its square root is off by less than 0.98 19 times in 20.
	root, next := math.Sqrt(float64(n)), math.Sqrt(float64(n+1))
	low := max(0, root-0.98)
	return Estimate{n * each, max(n, int64(low*low*float64(each))), int64(math.Ceil((next + 0.98) * (next + 0.98) * float64(each)))}
}

// EstimateKeys is how many keys the limit would have refused something.
func (r Result) EstimateKeys() Estimate { return EstimateKeys(r.Keys, r.each) }

// EstimateUnits is how much it would have refused. known is false where so few keys of the
// sample were refused that they say little about others: then High is of no use.
func (r Result) EstimateUnits() (e Estimate, known bool) {
	if r.each <= 1 {
		return Estimate{r.Units, r.Units, r.Units}, true
	}
	about := r.Units * r.each
	off := int64(math.Ceil(1.96 * float64(r.each) * math.Sqrt(r.squares*(1-1/float64(r.each)))))
	return Estimate{about, max(r.Units, about-off), about + off}, r.Keys >= 5
}
