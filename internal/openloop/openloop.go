// Package openloop simulates a service and its traffic, to measure limits on requests in
// flight. The traffic does not slow down when the service does. Time is virtual and there is
// one goroutine: a world always has the same result, and a minute takes milliseconds.
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
	Service func(*rand.Rand) time.Duration // draws the service time of a request
	Mean    time.Duration                  // of Service
	Shared  bool                           // the workers are processors, which all requests in the service share
	Slower  func(at time.Duration) float64 // factor on the service time of a request that comes at this time; nil: 1

	High    float64                        // share of the requests of the high tier
	Load    func(at time.Duration) float64 // arrivals, as a multiple of the capacity
	Streams int                            // requests that last from the beginning to the end
	Seed    uint64
}

// Capacity returns requests per second.
func (w *World) Capacity() float64 { return float64(w.Workers) / w.Mean.Seconds() }

// Good is the most that a good answer takes beyond its service time.
const Good = 500 * time.Millisecond

// A Tally counts the requests that came within a period.
type Tally struct{ Came, Good, Late, Refused int }

// Both are the tallies of two tiers, the high one first.
type Both [2]Tally

// Good returns the good answers of both tiers.
func (b Both) Good() int { return b[0].Good + b[1].Good }

// Late returns the late answers of both tiers.
func (b Both) Late() int { return b[0].Late + b[1].Late }

// Refused returns the refusals of both tiers.
func (b Both) Refused() int { return b[0].Refused + b[1].Refused }

// A Job is a request in the world.
type Job struct {
	Tier   int  // 0: high, 1: low
	Stream bool // it needs no worker
	State  any  // the limit's own value

	came    time.Duration
	service time.Duration
	count   *Tally
	ends    time.Duration // in a shared service: Run.work at its end
}

// A Limit decides about jobs. It calls Run.Start or Run.Refuse, in Ask or later.
type Limit interface {
	Ask(*Run, *Job)
	Leave(*Run, *Job) // called when the job ends
}

// A Run is a simulation of a world.
type Run struct {
	*World
	limit   Limit
	random  *rand.Rand
	until   time.Duration
	now     time.Duration
	events  []event // future events, the next one first
	seconds []Both
	streams Tally

	queue []*Job // jobs that wait for a worker
	busy  int

	// In a shared service: the work that each request has had since the beginning, the time of
	// that figure, and the requests in the order in which they end.
	work   time.Duration
	at     time.Duration
	inside []*Job
	shares int // counts changes of inside
}

// Do simulates arrivals for the duration d, and then runs until the last answer. If pass is
// not nil, Do calls it with the time to the next event before that event.
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

// Now returns the time since the run began.
func (r *Run) Now() time.Duration { return r.now }

// Sum returns the tallies of the requests that came in these seconds.
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

// Cut returns how many streams were refused.
func (r *Run) Cut() int { return r.streams.Refused }

// An event happens at a time. Events of the same time happen in the order of their making.
type event struct {
	at time.Duration
	do func()
}

// After calls do after the duration d.
func (r *Run) After(d time.Duration, do func()) {
	at := r.now + max(0, d)
	r.events = insert(r.events, event{at, do}, func(e event) bool { return e.at > at })
}

// insert inserts v into an ordered list before the first later element.
func insert[T any](list []T, v T, isLater func(T) bool) []T {
	return slices.Insert(list, sort.Search(len(list), func(i int) bool { return isLater(list[i]) }), v)
}

// arrive schedules the next request.
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

// Refuse counts a job as refused.
func (r *Run) Refuse(j *Job) { j.count.Refused++ }

// Start starts a job, or queues it for a worker.
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

// each returns each request's share of a processor in a shared service.
func (r *Run) each() float64 { return min(1, float64(r.Workers)/float64(len(r.inside))) }

// share updates work and at. It must be called before inside changes.
func (r *Run) share() {
	if len(r.inside) > 0 {
		r.work += time.Duration(float64(r.now-r.at) * r.each())
	}
	r.at = r.now
}

// shareOn schedules the end of the first request, after inside changed.
func (r *Run) shareOn() {
	r.shares++
	if len(r.inside) == 0 {
		return
	}
	shares := r.shares
	r.After(time.Duration(float64(r.inside[0].ends-r.work)/r.each())+1, func() {
		if r.shares != shares {
			return // inside has changed since
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
