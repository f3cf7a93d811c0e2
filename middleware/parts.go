package middleware

import (
	"slices"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/limiter"
)

// A feature is what only some rules need. Each is in a file of its own, with its checks at construction, its state of
// a request, and its steps on the request's way. Its functions may be nil, but for part.
type feature struct {
	// config checks the Config. It reports whether all requests need the part.
	config func(c *compiler) (needed bool)

	// rule checks a rule, before its limits are made.
	rule func(c *compiler, at invalid.Place, r *rule)

	// quota returns why r cannot have a quota, or nil.
	quota func(r *rule, q *limiter.Quota) error

	// family completes the limits of a rule. It reports whether requests that meet them need the part.
	family func(f *family) (needed bool, err error)

	// part returns the part of a request, or nil if the request does not need it.
	part func(v *visit) part
}

// features are all features, in the order in which their parts act.
var features = []feature{
	distinctFeature,
	afterwardsFeature,
	slotsFeature,
	overridesFeature,
	turnsFeature,
	overloadFeature,
	settlementFeature,
	escalationFeature,
}

// A part is what a feature does for a request that needs it. A part that has nothing to do in a step embeds noPart.
type part interface {
	// before is called before the store is asked. It may wait. If it sets v.outcome, the store is not asked.
	before(v *visit) (again bool, no *refusal)

	// looked is called when the store was asked what is left. It may refuse, or change costs.
	looked(v *visit)

	// after is called when the store has decided, also if it could not. It may wait, or give back what was taken.
	after(v *visit) (again bool, no *refusal)

	// undo is called if the request goes no further, or panics.
	undo(v *visit)

	// pass is called when the request goes to the handlers. It returns what the part needs then.
	pass(v *visit) need

	// end is called when the handlers have returned. It returns the status that the answer counts as for the next parts.
	end(v *visit, status int) int
}

// A need is what a part needs of a request that passes. A greater need includes the smaller ones.
type need uint8

const (
	needNothing need = iota
	needEnd          // a call when the request ends
	needAnswer       // also the status of the answer
)

// noPart has all steps of a part, and does nothing.
type noPart struct{}

func (noPart) before(*visit) (again bool, no *refusal) { return false, nil }
func (noPart) looked(*visit)                           {}
func (noPart) after(*visit) (again bool, no *refusal)  { return false, nil }
func (noPart) undo(*visit)                             {}
func (noPart) pass(*visit) need                        { return needNothing }
func (noPart) end(_ *visit, status int) int            { return status }

// use adds the parts of these features to those that the request needs.
func (v *visit) use(needs []int) {
	for _, i := range needs {
		if !slices.Contains(v.needs, i) {
			v.needs = append(v.needs, i)
		}
	}
	slices.Sort(v.needs)
	v.parts = v.parts[:0]
	for _, i := range v.needs {
		if p := features[i].part(v); p != nil {
			v.parts = append(v.parts, p)
		}
	}
}
