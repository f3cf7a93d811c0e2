package shed

import (
	"time"

	"github.com/weirgo/weir/internal/openloop"
)

// A simulated gate is one in a simulated world.
type simulated struct {
	*gate
	run  *openloop.Run
	jobs map[*slot]*openloop.Job // which wait
}

func simulate(g *gate) *simulated {
	s := &simulated{gate: g, jobs: map[*slot]*openloop.Job{}}
	g.planSweep = func() { s.run.After(sweepEvery, func() { s.sweep(s.run.Now()) }) }
	g.answer = func(p *slot, admitted bool) {
		j := s.jobs[p]
		delete(s.jobs, p)
		if admitted {
			s.admitted(p, j)
		} else {
			s.run.Refuse(j)
		}
	}
	return s
}

// learning is a gate that knows nothing yet, with two levels.
func learning() *simulated { return simulate(newGate(2, defaultMaxWait)) }

// knowing is one that needs to find out nothing.
func knowing(w *openloop.World) *simulated {
	s := learning()
	m := &s.meter
	m.limit, m.rate, m.shrunk = float64(w.Workers), w.Capacity(), true
	m.complete, m.cohort, m.since = true, 1<<30, 1<<60 // its window never ends
	return s
}

func (s *simulated) Ask(r *openloop.Run, j *openloop.Job) {
	s.run = r
	p := &slot{gate: s.gate, level: j.Tier}
	s.jobs[p] = j
	if s.enter(p, r.Now()) {
		delete(s.jobs, p)
		s.admitted(p, j)
		return
	}
	s.wait(p)
}

// wait is the timer of one that waits.
func (s *simulated) wait(p *slot) {
	if s.jobs[p] != nil {
		s.run.After(s.maxWait, func() {
			s.expire(p, s.run.Now())
			s.wait(p)
		})
	}
}

func (s *simulated) admitted(p *slot, j *openloop.Job) {
	j.State, p.flushed = p, j.Stream // which flushes at once
	s.run.Start(j)
}

func (s *simulated) Leave(r *openloop.Run, j *openloop.Job) { s.leave(j.State.(*slot), r.Now()) }

// do has the traffic come for so many seconds.
func do(w *openloop.World, limit openloop.Limit, seconds int) *openloop.Run {
	return w.Do(limit, time.Duration(seconds)*time.Second, nil)
}
