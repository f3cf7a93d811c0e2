package shed

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Stats is how a limit is. Of a Limiter there is one or, with Options.PerRoute, one for each
// route, beside that of requests without.
type Stats struct {
	Route string // its pattern; empty for the whole service, and for requests without a route

	Limit    int // how many may be in flight now
	InFlight int // how many are, without streams
	Streams  int // how many go on for longer than others while they are sent, or wait for slow clients
	Waiting  int

	// Rate is requests per second that the service is capable of, as far as is known, and
	// Latency how long the faster three quarters take on average when nothing waits. Zero: not
	// known yet.
	Rate    float64
	Latency time.Duration

	// Levels are those of the priority, the first to be served first.
	Levels []Level
}

// A Level is what became of the requests of one level of priority.
type Level struct {
	Name       string // the tier's, or "others"; empty: there is one level
	Overloaded bool   // its requests are refused after a short wait
	Admitted   uint64
	Shed       uint64 // of which some had waited
}

// Stats tells how the limits are, by route.
func (l *Limiter) Stats() []Stats {
	all := []Stats{l.all.stats("", l.levels)}
	l.mu.RLock()
	defer l.mu.RUnlock()
	for route, g := range l.routes {
		all = append(all, g.stats(route, l.levels))
	}
	slices.SortFunc(all, func(a, b Stats) int { return cmp.Compare(a.Route, b.Route) })
	return all
}

func (g *gate) stats(route string, names []string) Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Stats{
		Route: route, Limit: g.meter.bound(), InFlight: g.meter.inFlight, Streams: g.streams, Waiting: g.queue.n,
		Rate: g.meter.rate, Latency: time.Duration(g.meter.base * float64(time.Second)), Levels: slices.Clone(g.counts),
	}
	for i := range s.Levels {
		s.Levels[i].Overloaded = i >= g.cut
		if len(names) > 1 { // the only one has no name
			s.Levels[i].Name = names[i]
		}
	}
	return s
}

// Explain tells what place a request would take, for people.
func (l *Limiter) Explain(r *http.Request) string {
	if l.options.Exempt != nil && l.options.Exempt.Matches(r) {
		return "exempt from the overload limit"
	}
	text := "takes a place of the service's overload limit"
	if l.options.PerRoute && r.Pattern != "" {
		text = "takes a place of its route's overload limit"
	}
	if n := len(l.levels); n > 1 {
		level := l.level(r)
		text += fmt.Sprintf(", in level %q, %d of %d", l.levels[level], level+1, n)
	}
	return text
}
