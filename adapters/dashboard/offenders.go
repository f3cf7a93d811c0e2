package dashboard

import (
	"cmp"
	"slices"

	"github.com/weirgo/weir/middleware/offenders"
)

const (
	topKeys  = 10 // that are shown of a rule
	topRules = 24 // of which they are shown
)

// A topView is who asks most of a rule, and who is refused most.
type topView struct {
	Rule    string   `json:"rule"`
	Asked   uint64   `json:"asked"` // in all
	Refused uint64   `json:"refused"`
	Most    []topKey `json:"most"`    // those refused most
	Busiest []topKey `json:"busiest"` // those who ask most
}

type topKey struct {
	Key     string `json:"key"` // empty: of all together
	Whole   bool   `json:"whole,omitempty"`
	Asked   uint64 `json:"asked"`
	Refused uint64 `json:"refused"`
	Error   uint64 `json:"error,omitempty"` // by which what the list is ordered by may be too high
}

// lookAtTop are the keys of those rules that refused most, then of those that were asked
// most.
func (d *Dashboard) lookAtTop() []topView {
	rules := d.options.Offenders.Rules()
	slices.SortStableFunc(rules, func(a, b offenders.Rule) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.All, a.All))
	})
	top := []topView{}
	for _, r := range rules[:min(len(rules), topRules)] {
		v := topView{Rule: r.Name, Asked: r.All, Refused: r.Refused, Most: []topKey{}, Busiest: []topKey{}}
		for _, o := range d.options.Offenders.Top(r.Name, topKeys) {
			v.Most = append(v.Most, topKey{quoteKey(o.Key), o.Whole, o.All.N, o.Refused.N, o.Refused.Error})
		}
		for _, o := range d.options.Offenders.Busiest(r.Name, topKeys) {
			v.Busiest = append(v.Busiest, topKey{quoteKey(o.Key), o.Whole, o.All.N, o.Refused.N, o.All.Error})
		}
		top = append(top, v)
	}
	return top
}
