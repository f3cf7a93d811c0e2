package simulate

import (
	"container/heap"
	"iter"
	"math"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/limiter"
)

// How requests wait for a place: each is decided about in a coroutine, which is suspended until
// the place is free by the simulation's clock, or the request has waited for too long. Nothing
// runs at the same time.

// A turn is a request that is being decided about.
type turn struct {
	requests *Requests
	response discarding
	of       *accesslog.Entry
	decision Decision

	// Of one that may wait:
	goOn  func() (struct{}, bool) // until it is decided or waits
	stop  func()
	pause func(struct{}) bool
	at    int64 // when it came

	decided bool
	called  bool // it is to ask for a place; false: it has waited for too long
	waits   int  // how often one has waited
}

// turns are all there are.
type turns struct {
	now     *turn                     // that is being decided about
	waiting map[<-chan struct{}]*turn // for a place
	called  []*turn                   // of these, in order
	idle    []*turn                   // that others can have
	ends    endings
}

// newTurn is one that decides about the entries that it is given, by decide.
func newTurn(requests *Requests, decide func(*turn)) *turn {
	own := *requests // what it remembers it shares
	own.header = map[string][]string{}
	t := &turn{requests: &own, response: discarding{}}
	t.goOn, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.pause = yield
		for more := true; more; more = yield(struct{}{}) {
			decide(t)
			t.decided = true
		}
	})
	return t
}

// Await implements waiting.Clock, for the request that is being decided about.
func (s *store) Await(called <-chan struct{}, until time.Time) bool {
	if called == nil { // a delay: see Simulation.decide
		return false
	}
	select {
	case <-called:
		return true
	default:
	}
	t := s.turns.now
	t.waits++
	heap.Push(&s.turns.ends, ending{at: until.UnixMicro(), turn: t, wait: t.waits})
	s.turns.waiting[called] = t
	t.pause(struct{}{})
	delete(s.turns.waiting, called)
	if t.called {
		<-called
	}
	return t.called
}

// Called implements waiting.Clock.
func (s *store) Called(waits <-chan struct{}) {
	if t := s.turns.waiting[waits]; t != nil {
		s.turns.called = append(s.turns.called, t)
	}
}

// Now implements waiting.Clock.
func (s *store) Now() time.Time { return time.UnixMicro(s.clock.now) }

// Places implements limiter.Placer: what has a place returns it.
func (s *store) Places(*limiter.Quota) error { return nil }

// doInTurn is Do where requests may wait. It returns nil for one that does.
func (s *Simulation) doInTurn(e *accesslog.Entry) *Decision {
	var t *turn
	if n := len(s.turns.idle); n > 0 {
		t, s.turns.idle = s.turns.idle[n-1], s.turns.idle[:n-1]
	} else {
		t = newTurn(s.requests, s.decide)
	}
	t.of, t.at = e, s.clock.now
	t.decided = false
	s.run(t)
	d := &t.decision
	if !t.decided {
		d = nil
	} else {
		s.turns.idle = append(s.turns.idle, t)
	}
	s.call()
	return d
}

// run has a turn go on.
func (s *Simulation) run(t *turn) {
	s.turns.now = t
	t.goOn()
}

// resume has one go on that waited, and tells what became of it.
func (s *Simulation) resume(t *turn, called bool) {
	t.waits++
	t.called = called
	s.run(t)
	if t.decided {
		s.later(t.of, t.at, &t.decision)
		s.turns.idle = append(s.turns.idle, t)
	}
}

// call has those ask for a place that were called.
func (s *Simulation) call() {
	for len(s.turns.called) > 0 {
		t := s.turns.called[0]
		s.turns.called = s.turns.called[1:]
		s.resume(t, true)
	}
}

// Finish ends all requests, as a log has ended: those that wait are decided about.
func (s *Simulation) Finish() {
	s.end(math.MaxInt64)
	for _, t := range s.turns.idle {
		t.stop()
	}
	s.turns.idle = nil
}

// end ends what ended before a time: requests, and patience with which they waited.
func (s *Simulation) end(before int64) {
	for len(s.turns.ends) > 0 && s.turns.ends[0].at < before {
		e := heap.Pop(&s.turns.ends).(ending)
		if e.turn != nil {
			if e.turn.waits == e.wait {
				s.clock.now = max(s.clock.now, e.at)
				s.resume(e.turn, false)
			}
		} else {
			s.clock.now = max(s.clock.now, e.at)
			e.finish(e.status)
		}
		s.call()
	}
}

// An ending is the end of a request that some rule goes by, or of its patience.
type ending struct {
	at     int64
	status int
	finish func(status int)

	turn *turn // that waits
	wait int   // for which time: it may be another by then
}

// endings is a heap, by time.
type endings []ending

func (e endings) Len() int           { return len(e) }
func (e endings) Less(i, j int) bool { return e[i].at < e[j].at }
func (e endings) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *endings) Push(x any)        { *e = append(*e, x.(ending)) }
func (e *endings) Pop() any {
	last := (*e)[len(*e)-1]
	(*e)[len(*e)-1] = ending{}
	*e = (*e)[:len(*e)-1]
	return last
}
