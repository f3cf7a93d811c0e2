package dashboard

import (
	"cmp"
	"slices"

	"github.com/weirgo/weir/middleware/shed"
)

// An overloadView is the state of the overload limits.
type overloadView struct {
	Places []shed.Stats `json:"places"`         // of the service, or of each route: the fullest first
	More   int          `json:"more,omitempty"` // routes that are not shown
	Levels []shed.Level `json:"levels"`         // of priority, the highest first
}

const maxPlaces = 6

// bounded is an Overload that reports its state, such as a shed.Limiter.
type bounded interface{ Stats() []shed.Stats }

// lookAtOverload is nil if no limiter has an overload limit. It looks once at one that several limiters have.
func (d *Dashboard) lookAtOverload() *overloadView {
	v, known := &overloadView{}, []bounded{}
	for _, limits := range d.all() {
		b, ok := limits.Overload().(bounded)
		if !ok || slices.Contains(known, b) {
			continue
		}
		known = append(known, b)
		for _, place := range b.Stats() {
			v.Places = append(v.Places, place)
			for _, level := range place.Levels {
				v.add(level)
			}
		}
	}
	if len(known) == 0 {
		return nil
	}
	slices.SortStableFunc(v.Places, func(a, b shed.Stats) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.InFlight*a.Limit, a.InFlight*b.Limit))
	})
	if n := len(v.Places); n > maxPlaces {
		v.Places, v.More = v.Places[:maxPlaces], n-maxPlaces
	}
	return v
}

// add adds a level to the level of the same name.
func (v *overloadView) add(l shed.Level) {
	i := slices.IndexFunc(v.Levels, func(known shed.Level) bool { return known.Name == l.Name })
	if i < 0 {
		v.Levels = append(v.Levels, l)
		return
	}
	sum := &v.Levels[i]
	sum.Overloaded = sum.Overloaded || l.Overloaded
	sum.Admitted += l.Admitted
	sum.Shed += l.Shed
}
