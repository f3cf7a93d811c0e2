package middleware

import (
	"net/http"
	"slices"

	"github.com/weirgo/weir/internal/reading"
	"github.com/weirgo/weir/limiter"
)

// Rules with a key, a cost or a match that reads the request's body apply last. The other rules first look whether they
// have room for the request, so that a client which they refuse cannot make the server read bodies.

// applyInSteps is apply for a request with a body.
func (v *visit) applyInSteps(r *http.Request, tier string, groups ...[]*rule) (no *refusal) {
	held := &reading.Held{ReadCloser: r.Body}
	r.Body, v.held = held, held
	no = v.apply(r, tier, groups...)
	if r.Body == held { // no key function has put another one in its place
		r.Body = held.ReadCloser
	}
	v.held = nil
	if no == nil && len(v.late) > 0 {
		if no = v.refuseEarly(); no == nil {
			no = v.apply(r, tier, v.late)
		}
	}
	return no
}

// wantsBody reports whether what was just evaluated wants to read a body that is held. Its result then means nothing.
func (v *visit) wantsBody() bool { return v.held != nil && v.held.Asked }

// putOff has a rule that wants the body apply last.
func (v *visit) putOff(rule *rule) {
	v.late = append(v.late, rule)
	v.held.Asked = false
}

// refuseEarly refuses a request for which a limit has too little left. Limits that may let it pass all the same do not
// count: a request may wait for a slot, and a value of Distinct may have been seen.
func (v *visit) refuseEarly() (no *refusal) {
	looks := slices.Clone(v.charges)
	for i := range looks {
		looks[i].Cost = 0
	}
	if len(looks) > 0 {
		v.ask(looks)
	}
	if v.outcome == OutcomeAllowed {
		copyDecisions(v.charges, looks)
		if slices.ContainsFunc(v.met[:v.shown], func(m met) bool {
			return m.Decision.Counted() && len(m.values) == 0 && !(m.isSlot() && m.queue.Waiting > 0) && m.lacks()
		}) {
			no = v.refuseNow()
		}
	}
	if no == nil { // all rules decide together
		v.outcome, v.err = 0, nil
		for i := range v.charges {
			v.charges[i].Decision = limiter.Decision{}
		}
	}
	return no
}

// refuseNow has the store refuse what was looked for: it says how long the client must wait. It returns nil if units have
// come back meanwhile, or if the store cannot decide.
func (v *visit) refuseNow() *refusal {
	v.ask(v.charges)
	if v.outcome == OutcomeAllowed {
		isUsedUp := v.isUsedUp()
		if v.refund((*met).took); !isUsedUp {
			return nil
		}
	}
	if v.outcome != OutcomeRefused {
		return nil
	}
	strikeRefusals(v)
	return v.refusedByLimit()
}
