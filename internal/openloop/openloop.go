// Package openloop simulates a service and the traffic to it, which does not slow down with
// the service: in virtual time, in one goroutine, so that a run of a world has one result, and
// a minute of it takes milliseconds. It is what limits on requests in flight are measured by.
package openloop

import (
	"math/rand/v2"
	"slices"
	"sort"
	"time"
)

// A World is a service and the traffic to it.
type World struct {
	Workers int                            // how many requests the service works on at once
	Service func(*rand.Rand) time.Duration // how long each takes
	Mean    time.Duration                  // of that
	Shared  bool                           // the workers are processors, which all requests in the service share
	Slower  func(at time.Duration) float64 // how many times as long a request takes that comes then; nil: 1

	High    float64                        // part of the requests that are of the high tier
	Load    func(at time.Duration) float64 // arrivals, in parts of the capacity
	Streams int                            // come at the beginning, and go on until the end
	Seed    uint64
}

// Capacity is requests per second.
func (w *World) Capacity() float64 { return float64(w.Workers) / w.Mean.Seconds() }

// Good is how much longer than its own service time a good answer takes.
const Good = 500 * time.Millisecond

// A Tally counts the requests that came in a part of the time.
type Tally struct{ Came, Good, Late, Refused int }

// Both are the tallies of two tiers, the high one first.
type Both [2]Tally

// Good are the good answers of both tiers.
func (b Both) Good() int { return b[0].Good + b[1].Good }

// Late are the late answers of both tiers.
func (b Both) Late() int { return b[0].Late + b[1].Late }

// Refused are the refusals of both tiers.
func (b Both) Refused() int { return b[0].Refused + b[1].Refused }

// A Job is a request in the world.
type Job struct {
	Tier   int  // 0: the high one
	Stream bool // it asks for no work
	Place  any  // whatever its limit holds for it

	came    time.Duration
	service time.Duration
	count   *Tally
	ends    time.Duration // how much of a shared service's work it has got when it is done
}

// A Limit decides about jobs. It calls Start or Refuse, in Ask or later.
type Limit interface {
	Ask(*Run, *Job)
	Leave(*Run, *Job) // when it is answered
}

// A Run is what happens in a world.
type Run struct {
	*World
	limit   Limit
	random  *rand.Rand
	until   time.Duration
	now     time.Duration
	events  []event // to come, the first in front
	seconds []Both
	streams Tally

	queue []*Job // in front of the workers
	busy  int

	// Of a shared service: how much of its work each request in it has got, when that was, and
	// these requests in the order in which they have enough.
	work   time.Duration
	at     time.Duration
	inside []*Job
	shares int // how often others shared it than before
}

// Do has traffic come for so long, and all of it be answered. Pass is told how far the time
// goes on, before what happens then; nil: nothing is.
func (w *World) Do(limit Limit, d time.Duration, pass func(time.Duration)) *Run {
	r := &Run{World: w, limit: limit, until: d, random: rand.New(rand.NewPCG(w.Seed, 1))}
	r.seconds = make([]Both, int(d/time.Second)+1)
	for range w.Streams {
		limit.Ask(r, &Job{Tier: 1, Stream: true, count: &r.streams})
	}
	r.arrive()
	for len(r.events) > 0 {
		e := r.events[0]
		r.events = r.events[1:]
		if pass != nil && e.at > r.now {
			pass(e.at - r.now)
		}
		r.now = e.at
		e.do()
	}
	return r
}

// Now is how long the run goes on.
func (r *Run) Now() time.Duration { return r.now }

// Sum is what became of the requests that came in these seconds.
func (r *Run) Sum(from, to int) (sum Both) {
	for _, s := range r.seconds[from:min(to, len(r.seconds))] {
		for i := range s {
			sum[i].Came += s[i].Came
			sum[i].Good += s[i].Good
			sum[i].Late += s[i].Late
			sum[i].Refused += s[i].Refused
		}
	}
	return sum
}

// Cut is how many streams were refused.
func (r *Run) Cut() int { return r.streams.Refused }

// An event happens at a time. Of several at one time, the one that was made first is first.
type event struct {
	at time.Duration
	do func()
}

// After has something happen later.
func (r *Run) After(d time.Duration, do func()) {
	at := r.now + max(0, d)
	r.events = insert(r.events, event{at, do}, func(e event) bool { return e.at > at })
}

// insert inserts v into an ordered list in front of what is later.
func insert[T any](list []T, v T, isLater func(T) bool) []T {
	return slices.Insert(list, sort.Search(len(list), func(i int) bool { return isLater(list[i]) }), v)
}

// arrive has the next request come.
func (r *Run) arrive() {
	in := time.Duration(r.random.ExpFloat64() / (r.Load(r.now) * r.Capacity()) * float64(time.Second))
	if r.now+in >= r.until {
		return
	}
	r.After(in, func() {
		j := &Job{came: r.now, Tier: 1}
		if r.random.Float64() < r.High {
			j.Tier = 0
		}
		j.service = r.Service(r.random)
		if r.Slower != nil {
			j.service = time.Duration(float64(j.service) * r.Slower(r.now))
		}
		j.count = &r.seconds[int(r.now/time.Second)][j.Tier]
		j.count.Came++
		r.limit.Ask(r, j)
		r.arrive()
	})
}

// Refuse is for a job that the limit has no room for.
func (r *Run) Refuse(j *Job) { j.count.Refused++ }

// Start has the service begin with a job, or have it wait for a worker.
func (r *Run) Start(j *Job) {
	switch {
	case j.Stream:
		r.After(r.until-r.now, func() { r.limit.Leave(r, j) })
	case r.Shared:
		r.share()
		j.ends = r.work + j.service
		r.inside = insert(r.inside, j, func(other *Job) bool { return other.ends > j.ends })
		r.shareOn()
	case r.busy == r.Workers:
		r.queue = append(r.queue, j)
	default:
		r.busy++
		r.After(j.service, func() {
			r.answer(j)
			r.busy--
			if len(r.queue) > 0 && r.busy < r.Workers {
				next := r.queue[0]
				r.queue = r.queue[1:]
				r.Start(next)
			}
		})
	}
}

func (r *Run) answer(j *Job) {
	if r.now-j.came <= j.service+Good {
		j.count.Good++
	} else {
		j.count.Late++
	}
	r.limit.Leave(r, j)
}

// each is how much of a processor each request in a shared service has.
func (r *Run) each() float64 { return min(1, float64(r.Workers)/float64(len(r.inside))) }

// share brings the work that each has got up to date, before others share it.
func (r *Run) share() {
	if len(r.inside) > 0 {
		r.work += time.Duration(float64(r.now-r.at) * r.each())
	}
	r.at = r.now
}

// shareOn finds out when the first is done, after others share it.
func (r *Run) shareOn() {
	r.shares++
	if len(r.inside) == 0 {
		return
	}
	shares := r.shares
	r.After(time.Duration(float64(r.inside[0].ends-r.work)/r.each())+1, func() {
		if r.shares != shares {
			return // it is at another time
		}
		r.share()
		for len(r.inside) > 0 && r.inside[0].ends <= r.work {
			done := r.inside[0]
			r.inside = r.inside[1:]
			r.answer(done)
		}
		r.shareOn()
	})
}
