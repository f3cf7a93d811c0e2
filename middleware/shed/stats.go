package shed

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Stats is the state of a limit. A Limiter has one limit; with Options.PerRoute it has one more for each
// route.
type Stats struct {
	Route string // the pattern; empty: the whole service, or requests without a route

	Limit    int // how many requests may be in flight now
	InFlight int // requests in flight, not counting streams
	Streams  int // requests in progress that are streams, or that wait for slow clients
	Waiting  int // requests that wait for a slot

	// Rate is how many requests per second the service can serve. Latency is the mean latency of the
	// fastest three quarters of the requests while no request waits for a slot. Zero: not known yet.
	Rate    float64
	Latency time.Duration

	// Levels are the levels of Options.Priority, the most important first.
	Levels []Level
}

// A Level counts the requests of one level of priority.
type Level struct {
	Name       string // the tier, or "others"; empty: there is only one level
	Overloaded bool   // whether its requests are now refused once they have waited for MaxWait
	Admitted   uint64
	Shed       uint64 // refused, at once or after a wait
}

// Stats returns the state of all limits, by route.
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

// Explain describes in words the limit and the level that apply to r.
func (l *Limiter) Explain(r *http.Request) string {
	if l.options.Exempt != nil && l.options.Exempt.Matches(r) {
		return "exempt from the overload limit"
	}
	text := "acquires a slot of the service's overload limit"
	if l.options.PerRoute && r.Pattern != "" {
		text = "acquires a slot of its route's overload limit"
	}
	if n := len(l.levels); n > 1 {
		level := l.level(r)
		text += fmt.Sprintf(", in level %q, %d of %d", l.levels[level], level+1, n)
	}
	return text
}
