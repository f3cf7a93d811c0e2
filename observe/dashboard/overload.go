package dashboard

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weirgo/weir/middleware/shed"
)

// An overloadView is the state of the overload limits.
type overloadView struct {
	Places []placesView `json:"places"`         // of the service, or of each route: the fullest first
	More   int          `json:"more,omitempty"` // routes that are not shown
	Levels []levelView  `json:"levels"`         // of priority, the highest first
}

type placesView struct {
	Route    string  `json:"route,omitempty"`
	Limit    int     `json:"limit"`
	InFlight int     `json:"inFlight"`
	Waiting  int     `json:"waiting"`
	Streams  int     `json:"streams"`
	Rate     float64 `json:"rate,omitempty"`    // requests per second that it can serve; 0: not known
	Latency  string  `json:"latency,omitempty"` // without waiting
}

type levelView struct {
	Name       string `json:"name"`
	Overloaded bool   `json:"overloaded,omitempty"`
	Admitted   uint64 `json:"admitted"` // since the start
	Shed       uint64 `json:"shed"`
}

const maxPlaces = 6

// bounded is an Overload that reports its state, such as a shed.Limiter.
type bounded interface{ Stats() []shed.Stats }

// bounds returns the overload limits of all limiters, each once.
func (d *Dashboard) bounds() (all []bounded) {
	for _, l := range d.all() {
		if b, ok := l.Overload().(bounded); ok && !slices.Contains(all, b) {
			all = append(all, b)
		}
	}
	return all
}

// lookAtOverload is nil if no limiter has an overload limit.
func (d *Dashboard) lookAtOverload() *overloadView {
	all := d.bounds()
	if len(all) == 0 {
		return nil
	}
	v := &overloadView{}
	for _, b := range all {
		for _, s := range b.Stats() {
			p := placesView{Route: s.Route, Limit: s.Limit, InFlight: s.InFlight, Waiting: s.Waiting, Streams: s.Streams, Rate: s.Rate}
			if s.Latency > 0 {
				p.Latency = fmt.Sprintf("%.3g ms", s.Latency.Seconds()*1000)
			}
			v.Places = append(v.Places, p)
			for _, l := range s.Levels {
				v.add(l)
			}
		}
	}
	slices.SortStableFunc(v.Places, func(a, b placesView) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.InFlight*a.Limit, a.InFlight*b.Limit))
	})
	if n := len(v.Places); n > maxPlaces {
		v.Places, v.More = v.Places[:maxPlaces], n-maxPlaces
	}
	return v
}

// add adds a level to the level of the same name.
func (v *overloadView) add(l shed.Level) {
	i := slices.IndexFunc(v.Levels, func(known levelView) bool { return known.Name == l.Name })
	if i < 0 {
		i = len(v.Levels)
		v.Levels = append(v.Levels, levelView{Name: l.Name})
	}
	sum := &v.Levels[i]
	sum.Overloaded = sum.Overloaded || l.Overloaded
	sum.Admitted += l.Admitted
	sum.Shed += l.Shed
}
