package dashboard

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/observe/internal/tally"
	"github.com/weirgo/weir/pace"
)

// calls is what was counted of requests to other servers, by rule and second, as counts is of
// requests of clients.
type calls struct {
	follows tally.Paced // the transports
	rules   sync.Map    // by name, *callSeries

	second atomic.Int64 // that is counted now
	mu     sync.Mutex
	known  int // rules
}

// A callSeries is what one rule did.
type callSeries struct {
	rule string

	sent, refused, retried, gaveUp counter

	waits latency // before requests were sent
}

const (
	maxCalls    = 100 // rules that are told apart
	waitsFor    = 60  // seconds: a quantile is of one to two times that
	beyondCalls = "others"
)

// ObserveAttempt implements [pace.Observer], for requests to other servers.
func (d *Dashboard) ObserveAttempt(o *pace.Observation) {
	if o.Outcome == pace.OutcomeUnmatched {
		return
	}
	c := &d.calls
	if now := d.now(); now > c.second.Load() && c.mu.TryLock() { // as in Observe
		c.fold(now)
		c.mu.Unlock()
	}
	s := c.of(o.Rule)
	switch o.Outcome {
	case pace.OutcomeRefused:
		s.refused.total.Add(1)
		fallthrough
	case pace.OutcomeServed, pace.OutcomeFailed:
		s.sent.total.Add(1)
		s.waits.add(o.Waited)
	default:
		s.gaveUp.total.Add(1)
	}
	if o.Retried {
		s.retried.total.Add(1)
	}
}

// FollowTransport shows what is sent by t: how many requests wait and for how long, and which
// cooldowns are in force. They are only counted if the Dashboard is in its Observer. It panics on
// nil, which no NewTransport returns without an error.
func (d *Dashboard) FollowTransport(t *pace.Transport) {
	if t == nil {
		panic("dashboard: FollowTransport needs a Transport, not nil")
	}
	d.calls.follows.Follow(t)
}

func (c *calls) of(rule string) *callSeries {
	if s, ok := c.rules.Load(rule); ok {
		return s.(*callSeries)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known >= maxCalls {
		rule = beyondCalls
	}
	s, known := c.rules.LoadOrStore(rule, &callSeries{rule: rule})
	if !known {
		c.known++
	}
	return s.(*callSeries)
}

// fold ends the second that was counted, as now is a later one.
func (c *calls) fold(now int64) {
	last := c.second.Load()
	if now <= last {
		return
	}
	c.rules.Range(func(_, v any) bool {
		s := v.(*callSeries)
		for _, counted := range []*counter{&s.sent, &s.refused, &s.retried, &s.gaveUp} {
			counted.fold(last, now)
		}
		s.waits.fold(last*generation/waitsFor, now*generation/waitsFor)
		return true
	})
	c.second.Store(now)
}

type callsView struct {
	List   []callView `json:"list"`
	Hidden int        `json:"hidden,omitempty"` // rules that are not shown
}

// A callView is how one rule does.
type callView struct {
	Rule    string  `json:"rule"`
	Sent    float64 `json:"sent"` // a second, in the last ten
	Waiting int64   `json:"waiting"`
	P95     string  `json:"p95,omitempty"`   // of waits, in the last one or two minutes
	Until   int64   `json:"until,omitempty"` // of a cooldown, in Unix milliseconds

	// In all the time that is shown.
	Refused uint64 `json:"refused,omitempty"`
	Retried uint64 `json:"retried,omitempty"`
	GaveUp  uint64 `json:"gaveUp,omitempty"`
}

// lookAtCalls is nil where no transport is known: then the page has no such section.
func (d *Dashboard) lookAtCalls(now int64) *callsView {
	c := &d.calls
	views := map[string]*callView{}
	of := func(rule string) *callView {
		if views[rule] == nil {
			views[rule] = &callView{Rule: rule}
		}
		return views[rule]
	}
	for _, s := range c.follows.Stats() {
		v := of(s.Rule)
		v.Waiting = s.Waiting
		if s.Until.After(time.Now()) {
			v.Until = s.Until.UnixMilli()
		}
	}
	c.mu.Lock()
	c.fold(now)
	c.rules.Range(func(_, value any) bool {
		s := value.(*callSeries)
		v := of(s.rule)
		v.Sent = float64(s.sent.sum(now, judged)) / float64(max(1, min(judged, now)))
		v.Refused, v.Retried, v.GaveUp = s.refused.sum(now, span), s.retried.sum(now, span), s.gaveUp.sum(now, span)
		if p95 := s.waits.quantile(0.95); p95 >= time.Millisecond {
			v.P95 = short(p95)
		} else if p95 > 0 {
			v.P95 = "0"
		}
		return true
	})
	c.mu.Unlock()
	if len(views) == 0 {
		return nil
	}
	view := &callsView{}
	for _, v := range views {
		view.List = append(view.List, *v)
	}
	slices.SortFunc(view.List, func(a, b callView) int { // those that are held back are not to be looked for
		return cmp.Or(cmp.Compare(min(b.Until, 1), min(a.Until, 1)), cmp.Compare(a.Rule, b.Rule))
	})
	if len(view.List) > maxCallsSeen {
		view.Hidden = len(view.List) - maxCallsSeen
		view.List = view.List[:maxCallsSeen]
	}
	return view
}

const maxCallsSeen = 30
