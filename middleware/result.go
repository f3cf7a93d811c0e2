package middleware

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// A Result is what the limiters that a request has passed so far said about it.
type Result struct {
	// Decision is that of the binding rule: of those that refused, or else of all, the one with
	// the fewest units left. RetryAfter is the longest of any. Of a request that only rules in shadow applied
	// to there is no Rule, and it is Allowed. Degraded is set where any rule's decision has it. One that
	// nothing was counted for (Limit is 0) is binding only where there is no other.
	limiter.Decision

	// Rule is the binding rule's name, and Tier the tier it counted in, if any. Of a banned
	// client Rule is the one that led to the ban, if any.
	Rule, Tier string

	// Status is what a refusal answers: 429 when a limit is exceeded, or what Rule.Refusal says
	// of that or of a rule that denies, 403 (or 429) for a
	// banned client, 400 or 401 for a request without a key (see NoKey), 503 when the
	// store could not decide or a rule without a key has as many requests in progress as its
	// Concurrency allows, 499 when the client went away while it waited for its turn.
	// Zero when the request was allowed.
	Status int

	// Banned says that the request was refused before any rule was looked at.
	Banned bool

	// NearLimit says that a rule has less left than its SoftAt leaves.
	NearLimit bool

	// Rules has every rule that applied, of outer limiters first.
	Rules []RuleResult
}

// A RuleResult is what one rule decided about a request. When another rule of the same
// limiter refused, nothing was taken from this one.
type RuleResult struct {
	// Rule says what the rule is. It is shared, and not to be changed.
	Rule *RuleInfo

	// Key is what the request counts under, without its class; empty for the counter of a
	// rule without Key, or of requests without a key. It is as the client made it: not to be
	// shown to others as it is.
	Key string

	// Class says whether the key is one client's own.
	Class keyfunc.Class

	// Cost is how many units the request takes.
	Cost int64

	// Decision is what the rule said, which refuses nothing where the rule is in shadow. The
	// zero Decision: the store was not asked, or could not decide. Of several limits, and of
	// Concurrency, it is what all of them together let pass ([limiter.Decision.Join]).
	limiter.Decision

	// Limits is what each said of a rule with several, in their order, or the one
	// of a rule that has AtOnce too. Nil: it has a limit alone, or none.
	Limits []limiter.Decision

	// Concurrent is what AtOnce said: Limit less Remaining requests of the key are in
	// progress. Zero: the rule has none.
	Concurrent limiter.Decision

	binding limiter.Limit // unless atOnce
	atOnce  bool
}

// IsConcurrency reports whether Remaining is of AtOnce, and not of a limit.
func (r *RuleResult) IsConcurrency() bool { return r.atOnce }

// Binding is the limit that Remaining is of: of a rule with several, the one that leaves the fewest
// units. It is zero if IsConcurrency.
func (r *RuleResult) Binding() limiter.Limit {
	if r.atOnce {
		return limiter.Limit{}
	}
	return r.binding
}

// FromContext returns the Result for a request's context: in a handler behind the
// limiter, what is left to this client. It is false where no limiter ran, or no rule applied.
func FromContext(ctx context.Context) (Result, bool) {
	if s, ok := ctx.Value(scopeKey{}).(*scope); ok {
		return s.result(), true
	}
	return Result{}, false
}

// A decided is what was decided about a request by one limiter. It stays on the stack of
// begin, with the arrays behind its slices, until the request passes. So it has no context,
// which others may keep: the compiler does not tell the fields of a struct apart.
type decided struct {
	outer *scope // of the limiter further out; nil: there is none

	// One of each for every rule that applied.
	policies  []applied
	decisions []limiter.Decision

	allowed bool          // by all rules
	late    bool          // its turn would come after its deadline, so it took none
	asked   bool          // the store was, for a request that waits for a slot
	timed   bool          // for the observer
	awaits  int32         // by place, the policy that it waits for a slot of; -1: none
	elapsed time.Duration // in the store
}

// A scope is the context behind a limiter. It remembers the decisions, for handlers
// and for limiters further in, which have to agree with this one on the header fields.
type scope struct {
	context.Context          // the request's
	url             *url.URL // the request's
	decided
	fields

	// What the slices are for a single rule.
	policySpace   [1]applied
	decisionSpace [1]limiter.Decision
}

// A passed is a request that passed, with its context, in one allocation.
type passed struct {
	scope
	request http.Request
}

// fewRules is how many rules a request may meet for all that is known of them to have its
// place beforehand.
const fewRules = 4

// A workspace is where a request is decided about, on the stack.
type workspace struct {
	policies  [fewRules]applied
	decisions [fewRules]limiter.Decision
	charges   [fewRules]limiter.Charge
}

type scopeKey struct{}

// Value makes the scope itself findable, so that it needs no context around it.
func (s *scope) Value(key any) any {
	if key == (scopeKey{}) {
		return s
	}
	return s.Context.Value(key)
}

// A many is where the rules of a request have their place that may meet more than few.
type many struct {
	policies  []applied
	decisions []limiter.Decision
}

// keep copies what was decided about r, without its place on the stack; what has its place
// in more stays there. It returns the place for the fields' text.
func (s *scope) keep(r *http.Request, outer *scope, d *decided, more *many) []byte {
	s.Context, s.outer, s.url = r.Context(), outer, r.URL
	s.allowed = d.allowed
	n, text := len(d.policies), s.text[:0]
	switch {
	case more != nil:
		s.policies, s.decisions = more.policies[:n], more.decisions[:n]
		return text
	case n <= 1:
		s.policies, s.decisions = s.policySpace[:n], s.decisionSpace[:n]
	default:
		few := &struct {
			policies  [fewRules]applied
			decisions [fewRules]limiter.Decision
			text      [152]byte // 600 bytes with it: more, and it takes 704 instead of 640
		}{}
		text = few.text[:0]
		s.policies, s.decisions = few.policies[:n], few.decisions[:n]
	}
	copy(s.policies, d.policies)
	copy(s.decisions, d.decisions)
	return text
}

// delay is how long the request has to wait for its turn.
func (s *decided) delay() (d time.Duration) {
	for i := range s.decisions {
		if !s.policies[i].shadow {
			d = max(d, s.decisions[i].Delay)
		}
	}
	return d
}

// An entry is one rule's decision. It is a copy: a list of pointers would take what they
// point to off the stack.
type entry struct {
	applied
	limiter.Decision
}

// isNear reports whether it is one to warn about.
func (e *entry) isNear() bool {
	softAt := e.softAt
	// The limit is a share of the policy's during an outage. It is 10^12 at most.
	return softAt > 0 && e.Counted() && e.Remaining <= e.Limit*(100-softAt)/100
}

// entries appends those of every limiter so far to list, outer ones first, but for rules
// in shadow. Of entries with the same name the stricter one stands, where the first stood.
func (s *decided) entries(list []entry) []entry {
	if n := len(list) + len(s.policies); n > cap(list) {
		list = append(make([]entry, 0, n), list...)
	}
	if s.outer != nil {
		list = s.outer.entries(list)
	}
	for i := range s.policies {
		if p := &s.policies[i]; !p.shadow && !p.ofValue {
			list = merge(list, entry{*p, s.decisions[i]})
		}
	}
	return list
}

// shadows appends what entries leaves out.
func (s *decided) shadows(list []entry) []entry {
	if s.outer != nil {
		list = s.outer.shadows(list)
	}
	for i := range s.policies {
		if p := &s.policies[i]; p.shadow && !p.ofValue {
			list = append(list, entry{*p, s.decisions[i]})
		}
	}
	return list
}

func merge(list []entry, e entry) []entry {
	for i := range list {
		if list[i].name == e.name {
			if e.stricter(&list[i]) {
				list[i] = e
			}
			return list
		}
	}
	return append(list, e)
}

// stricter tells which of two entries a client should mind: one that refuses, though the other may
// have fewer units left of another kind, or the tighter one.
func (e *entry) stricter(than *entry) bool {
	if e.Allowed != than.Allowed {
		return !e.Allowed
	}
	return e.IsTighterThan(&than.Decision)
}

// binding is the strictest entry.
func binding(list []entry) *entry {
	strictest := &list[0]
	for i := range list[1:] {
		if e := &list[1+i]; e.stricter(strictest) {
			strictest = e
		}
	}
	return strictest
}

func (s *decided) result() (result Result) {
	var space [fewRules]entry
	list := s.entries(space[:0])
	if len(list) > 0 {
		b := binding(list)
		result.Decision = b.Decision
		result.Rule, result.Tier = b.info.Name, b.info.Tier
	} else {
		result.Allowed = true // by rules in shadow
	}
	for i := range list {
		result.Degraded = result.Degraded || list[i].Degraded
		result.NearLimit = result.NearLimit || list[i].isNear()
		result.RetryAfter = max(result.RetryAfter, list[i].RetryAfter)
	}
	list = s.shadows(list)
	result.Rules = make([]RuleResult, 0, len(list))
	for i := range list {
		result.Rules = list[i].appendResult(result.Rules, list[i].Decision)
	}
	return result
}
