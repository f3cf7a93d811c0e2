package dashboard

import (
	"cmp"
	"slices"

	"github.com/weirgo/weir/observe/offenders"
)

const (
	topKeys  = 10 // keys of a rule that are shown
	topRules = 24 // rules whose keys are shown
)

// A topView has the keys with the most requests and refusals of a rule.
type topView struct {
	Rule    string   `json:"rule"`
	Asked   uint64   `json:"asked"` // in all
	Refused uint64   `json:"refused"`
	Most    []topKey `json:"most"`    // refused most
	Busiest []topKey `json:"busiest"` // ask most
}

type topKey struct {
	Key     string          `json:"key"` // empty: all clients together
	Digest  string          `json:"digest"`
	Whole   bool            `json:"whole,omitempty"`
	Asked   offenders.Count `json:"asked"`
	Refused offenders.Count `json:"refused"`
}

// unlisted counts the rules whose keys are not shown.
type unlisted struct {
	Rules      int    `json:"rules"`      // beyond topRules
	Unfollowed uint64 `json:"unfollowed"` // offenders.Sketch.Unfollowed
}

// lookAtTop returns the top keys of the rules with the most refusals, then of the rules with the most
// requests, and last of rules in shadow, which refuse nothing.
func (d *Dashboard) lookAtTop(rows []row) ([]topView, unlisted) {
	live := map[string]bool{}
	for _, r := range rows {
		live[r.Rule] = live[r.Rule] || !r.Shadow
	}
	inShadow := func(r offenders.Rule) int {
		if live, known := live[r.Name]; known && !live {
			return 1
		}
		return 0
	}
	rules := d.hour.Rules()
	slices.SortStableFunc(rules, func(a, b offenders.Rule) int {
		return cmp.Or(cmp.Compare(inShadow(a), inShadow(b)), cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.All, a.All))
	})
	top := []topView{}
	for _, r := range rules[:min(len(rules), topRules)] {
		most, busiest := d.topOf(d.hour.Top(r.Name, topKeys)), d.topOf(d.hour.Busiest(r.Name, topKeys))
		top = append(top, topView{r.Name, r.All, r.Refused, most, busiest})
	}
	return top, unlisted{max(0, len(rules)-topRules), d.hour.Unfollowed()}
}

// topOf returns keys as they are shown.
func (d *Dashboard) topOf(all []offenders.Offender) []topKey {
	top := make([]topKey, len(all))
	for i, o := range all {
		whole := o.Whole && (d.options.ShowKeys || o.Key == "")
		if o.Whole {
			o.Key = d.shown(o.Key)
		}
		top[i] = topKey{o.Key, o.Digest, whole, o.All, o.Refused}
	}
	return top
}
