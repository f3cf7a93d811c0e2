package middleware

import (
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// An applied is a policy that applied to a request, with what it was charged.
type applied struct {
	*policy
	key    string
	cost   int64
	class  keyfunc.Class
	shadow bool // the rule's
}

// result is what the rule decided.
func (a *applied) result(d limiter.Decision) RuleResult {
	return RuleResult{a.info, a.key, a.class, a.cost, d}
}

// taken is what limiters further out have charged a key for the same request, by the same
// rule of the same limiter. A request is the same if it has the same URL, not an equal one:
// what a handler builds from the context of its own request is another. elsewhere reports
// whether such a one was charged.
func (s *scope) taken(u *url.URL, p *policy, key string) (cost int64, elsewhere bool) {
	for ; s != nil; s = s.outer {
		for i := range s.policies {
			// A rule's notes are its own, also when the rules are changed meanwhile.
			a := &s.policies[i]
			if a.key != key || a.rule.notes != p.rule.notes || a.info.Tier != p.info.Tier {
				continue
			}
			if s.url == u && u != nil {
				cost += a.cost
			} else {
				elsewhere = true
			}
		}
	}
	return cost, elsewhere
}

// left is what is still to be charged of cost: nothing, or less than one, if the limiter has
// met the request before.
func (m *matching) left(p *policy, key string, cost int64) int64 {
	taken, elsewhere := m.outer.taken(m.request.URL, p, key)
	if taken > 0 {
		return cost - taken
	}
	// A server's request has the request line, and keeps it in a copy. What a handler builds
	// has none.
	if elsewhere && m.request.RequestURI != "" {
		m.set.notices.twice.warn(m.set.Logger, "weir-counted-twice",
			"weir: a request met one limiter twice, and its URL was changed or copied between, so it was counted twice; keep one of the two",
			slog.String("rule", p.info.Name))
	}
	return cost
}

// notices are what was noticed about a limiter. They outlive a change of its rules.
type notices struct {
	twice     onceWarning
	unsettled onceWarning
	tiers     atomic.Pointer[[]string] // that no rule has and that were told

	mu   sync.Mutex
	told map[string]bool
}

// outerScope is that of the limiter around this one, or nil.
func outerScope(r *http.Request) *scope {
	s, _ := r.Context().Value(scopeKey{}).(*scope)
	return s
}
