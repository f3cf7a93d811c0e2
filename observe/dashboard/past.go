package dashboard

import (
	"net/url"
	"time"
)

// A past is what a counter counted in the last hour and the last day, by points of some
// seconds each. There are as many as the last minutes have seconds, so that they make a chart of
// the same width. Nothing of it outlives the process.
type past [len(steps)]struct {
	folded uint64 // the total when the present point began
	points [span]uint32
}

// steps are how many seconds a point is of, in each of spans.
var (
	steps = [...]int64{3600 / span, 86400 / span}
	spans = [...]string{"hour", "day"}
)

// fold ends the points that were counted, as now is later than the second that was.
func (p *past) fold(total uint64, last, now int64) {
	for i, step := range steps {
		present, next := last/step, now/step
		if present == next {
			continue
		}
		p[i].points[present%span] = uint32(total - p[i].folded)
		p[i].folded = total
		for idle := max(present+1, next-span); idle < next; idle++ {
			p[i].points[idle%span] = 0
		}
	}
}

// rates are what was counted a second, the oldest point first, and the present one, as far as
// it is over, last. The counts are folded to now.
func (p *past) rates(i int, total uint64, now int64) []float64 {
	step, list := steps[i], make([]float64, 0, span)
	begun := now % step
	first := now/step - span
	if begun > 0 {
		first++ // the present one takes the place of the oldest
	}
	for point := first; point < now/step; point++ {
		n := uint32(0)
		if point >= 0 {
			n = p[i].points[point%span]
		}
		list = append(list, perPoint(uint64(n), step))
	}
	if begun > 0 {
		list = append(list, perPoint(total-p[i].folded, begun))
	}
	return list
}

// sum is what was counted in the points of rates.
func (p *past) sum(i int, total uint64, now int64) (sum uint64) {
	for point := max(0, now/steps[i]-span); point < now/steps[i]; point++ {
		sum += uint64(p[i].points[point%span])
	}
	return sum + total - p[i].folded
}

// perPoint is to a thousandth, which is one request in sixteen minutes.
func perPoint(n uint64, seconds int64) float64 {
	return float64(n*1000/uint64(seconds)) / 1000
}

// A pastView is what the page draws of an hour or a day. Numbers are requests a second.
type pastView struct {
	End   int64       `json:"end"`   // Unix seconds
	Step  int64       `json:"step"`  // seconds from a point to the next; the last point may be of fewer
	Known int         `json:"known"` // the last points, before which the process did not run, or did not know the rule
	All   [][]float64 `json:"all"`   // by outcome

	// Of the rule that was asked for, if anything is known of it.
	Asked   []float64 `json:"asked,omitempty"`
	Refused []float64 `json:"refused,omitempty"`
}

// lookBack is the past that a query of the page names.
func (d *Dashboard) lookBack(query url.Values) (*pastView, error) {
	i := -1
	for at, name := range spans {
		if name == query.Get("span") {
			i = at
		}
	}
	if i < 0 {
		return nil, mistakef("there is no span %.20q: it is %q or %q", query.Get("span"), spans[0], spans[1])
	}
	c := &d.counts
	c.mu.Lock()
	defer c.mu.Unlock()
	now := d.now()
	c.fold(now)
	v := &pastView{End: time.Now().Unix(), Step: steps[i]}
	began := int64(0)
	for j := range c.outcome {
		v.All = append(v.All, c.outcomePast[j].rates(i, c.outcome[j].folded, now))
	}
	if s := c.byName[seriesName{query.Get("rule"), query.Get("tier")}]; s != nil && query.Has("rule") {
		v.Asked, v.Refused = s.askedPast.rates(i, s.asked.folded, now), s.refusedPast.rates(i, s.refused.folded, now)
		began = s.began
	}
	v.Known = int(min(span, (now+steps[i]-1)/steps[i]-began/steps[i]))
	return v, nil
}
