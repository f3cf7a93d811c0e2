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
		v.Places = append(v.Places, b.Stats()...)
	}
	for _, p := range v.Places {
		for _, l := range p.Levels {
			v.add(l)
		}
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
