package middleware

import (
	"net/http"
	"slices"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/limiter"
)

// A feature is what only some rules need. Each is in a file of its own, with its checks at construction, its state of
// a request, and its steps on the request's way. A nil function does nothing.
type feature struct {
	// config checks the Config. It reports whether all requests need the feature.
	config func(c *compiler) (needed bool)

	// rule checks a rule, before its limits are made.
	rule func(c *compiler, at invalid.Place, r *rule)

	// quota returns why r cannot have a quota, or nil.
	quota func(r *rule, q *limiter.Quota) error

	// family completes the limits of a rule. It reports whether requests that meet them need the feature.
	family func(f *family) (needed bool, err error)

	// begin is called when a request needs the feature. It returns false if the request does not need it after all.
	begin func(v *visit) (needed bool)

	// before is called before the store is asked. It may wait. If it sets v.outcome, the store is not asked.
	before func(v *visit) (again bool, no *refusal)

	// looked is called when the store was asked what is left. It may refuse, or change costs.
	looked func(v *visit)

	// after is called when the store has decided, also if it could not. It may wait, or give back what was taken.
	after func(v *visit) (again bool, no *refusal)

	// undo is called if the request goes no further, or panics.
	undo func(v *visit)

	// pass is called when the request goes to the handlers, with the answer's header. It reports whether the feature
	// awaits the end of the request, and whether it then needs the status of the answer.
	pass func(v *visit, h http.Header) (awaits, watches bool)

	// end is called when the handlers have returned. It returns the status that the answer counts as for the features
	// behind it.
	end func(v *visit, status int) int
}

// features are all features, in the order in which they act.
var features = []feature{distinct, afterwards, atOnce, endingOverrides, turns, overload, settling, escalation, paced}

// use adds features to those that the request needs.
func (v *visit) use(needs []int) {
	for _, i := range needs {
		if !slices.Contains(v.needs, i) {
			v.needs = append(v.needs, i)
		}
	}
	slices.Sort(v.needs)
	v.parts = v.parts[:0]
	for _, i := range v.needs {
		if f := &features[i]; f.begin == nil || f.begin(v) {
			v.parts = append(v.parts, f)
		}
	}
}

// undo has the features release what the request holds, as it goes no further.
func (v *visit) undo() {
	for _, f := range v.parts {
		if f.undo != nil {
			f.undo(v)
		}
	}
}
