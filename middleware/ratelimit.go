package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// A RateLimit decides about HTTP requests. [New] makes one; it is used by many
// goroutines at once.
type RateLimit struct {
	rules           []*rule
	store           limiter.Store
	memory          *limiter.Memory // the store, if it is one: then charges stay on the stack
	headers         Headers
	onRefused       func(http.ResponseWriter, *http.Request, Result)
	countPreflights bool
	logger          *slog.Logger
	routed          bool // some rule may look at r.Pattern
	tiered          bool // some rule has tiers
	storeFailure    onceWarning
}

// New returns a limiter for these rules, or everything that is wrong with c.
func New(c Config) (*RateLimit, error) {
	rules, err := c.compile()
	if err != nil {
		return nil, err
	}
	l := &RateLimit{
		rules:           rules,
		store:           c.Store,
		headers:         c.Headers,
		onRefused:       c.OnRefused,
		countPreflights: c.CountPreflights,
		logger:          c.Logger,
	}
	if l.store == nil {
		if l.store, err = limiter.NewMemory(limiter.MemoryConfig{}); err != nil {
			return nil, err
		}
	}
	l.memory, _ = l.store.(*limiter.Memory)
	for i := range rules {
		l.routed = l.routed || rules[i].Match != nil || rules[i].Key != nil || rules[i].Cost != nil
		l.tiered = l.tiered || len(rules[i].tiers) > 0
		if err := l.claim(rules[i].Name); err != nil {
			return nil, fmt.Errorf("middleware: Config.Store: %w", err)
		}
	}
	return l, nil
}

// Must is for a limiter written in code: it panics where New returns an error.
func Must(l *RateLimit, err error) *RateLimit {
	if err != nil {
		panic(err)
	}
	return l
}

// NewPerIP returns a limiter with one rule: limit for each client address, as
// [keyfunc.IP] tells it. Behind a proxy, pass one of keyfunc's Trust options.
func NewPerIP(limit limiter.Limit, options ...keyfunc.IPOption) (*RateLimit, error) {
	key, keyErr := keyfunc.NewIP(options...)
	// The limit is part of the name, so that a router's PerIP and a route's are told
	// apart in the header fields.
	l, err := New(Config{Rules: []Rule{{Name: "ip:" + limit.String(), Key: key, Limit: limit}}})
	if err := errors.Join(keyErr, err); err != nil {
		return nil, err
	}
	l.routed = false // an address is the same on every route
	return l, nil
}

// PerIP limits requests for each client address:
//
//	handler := middleware.PerIP(limiter.PerMinute(100))(mux)
//
// The client is the peer of the connection, IPv6 by /64. Behind a proxy that is the
// proxy, so name it: PerIP(limit, keyfunc.TrustProxies("10.0.0.0/8")).
//
// Each call counts on its own. It panics on an invalid limit, as it is written in
// code; use [NewPerIP] for one that comes from a file.
func PerIP(limit limiter.Limit, options ...keyfunc.IPOption) func(http.Handler) http.Handler {
	return Must(NewPerIP(limit, options...)).Handler
}

// Handler limits the requests to next. It is what net/http and chi call a middleware.
//
// Rules that match by [Route] need r.Pattern, which exists once the request is
// routed: around a route's handler, or directly around an *http.ServeMux, which
// Handler asks. A mux inside of that one is known only to a limiter around it.
// Another router's adapter sets it (chilimit, ginlimit, echolimit).
func (l *RateLimit) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("middleware: Handler needs a next handler")
	}
	mux, _ := next.(*http.ServeMux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if mux != nil && l.routed && r.URL != nil {
			// Inside another mux, r has that one's pattern, such as "/v1/".
			if _, pattern := mux.Handler(r); pattern != "" {
				routed := *r
				routed.Pattern = pattern
				if l.Check(w, &routed) {
					next.ServeHTTP(w, &routed)
				}
				showPattern(r, &routed)
				return
			}
		}
		s, ok := l.check(w, r)
		if !ok {
			return
		}
		if s == nil {
			next.ServeHTTP(w, r)
			return
		}
		behind := r.WithContext(s)
		next.ServeHTTP(w, behind)
		showPattern(r, behind)
	})
}

// showPattern lets those outside see the pattern that a mux inside has left, as they
// would without a limiter between.
func showPattern(outside, inside *http.Request) {
	if outside.Pattern != inside.Pattern {
		outside.Pattern = inside.Pattern
	}
}

// Check decides about r, sets the header fields and, if the request has to wait for
// its turn, waits. When it returns false it has answered already, and the request
// must go no further. When it returns true, r's context holds the [Result]: Check
// changes r in place, for routers that hold on to it.
//
// Check is for adapters: what Handler does, without knowing what comes next.
func (l *RateLimit) Check(w http.ResponseWriter, r *http.Request) bool {
	s, ok := l.check(w, r)
	if ok && s != nil {
		*r = *r.WithContext(s)
	}
	return ok
}

// check is the hot path: rules to charges, one decision, header fields. The scope is
// what the next handler's context should be; nil means that no rule applied.
func (l *RateLimit) check(w http.ResponseWriter, r *http.Request) (*scope, bool) {
	if !l.countPreflights && isPreflight(r) {
		return nil, true
	}
	var few [fewRules]limiter.Charge
	s, charges, status := l.match(r, few[:0])
	if s != nil {
		if status = l.decide(s, charges); status == http.StatusServiceUnavailable {
			s = nil
		}
	}
	if s != nil {
		s.writeHeaders(w.Header(), l.headers)
	}
	if status != http.StatusOK {
		l.refuse(w, r, s, status)
		return nil, false
	}
	if s == nil {
		return nil, true
	}
	switch d := s.delay(); {
	case d == 0:
		return s, true
	case tooLate(s, d):
		// Somebody else takes its place in the queue, and it learns now.
		if err := l.store.GiveBack(s, slices.Clone(charges)); err != nil {
			l.warnStoreFailure(err)
		}
		l.refuse(w, r, nil, http.StatusServiceUnavailable)
		return nil, false
	case !wait(s, d):
		w.WriteHeader(statusClientClosedRequest)
		return nil, false
	}
	return s, true
}

// statusClientClosedRequest is nginx's; nobody is there to read it.
const statusClientClosedRequest = 499

// match appends the charges of the rules that match, and returns 200, or the status to
// refuse with. The scope is nil if there is nothing to decide: no rule applies, or the
// status says why.
func (l *RateLimit) match(r *http.Request, charges []limiter.Charge) (*scope, []limiter.Charge, int) {
	var s *scope
	ctx, tier := r.Context(), ""
	if l.tiered {
		tier = Tier(ctx)
	}
	for i := range l.rules {
		rule := l.rules[i]
		if rule.Match != nil && !rule.Match(r) {
			continue
		}
		key, status := l.key(rule, r)
		if status == statusSkip {
			continue
		}
		if status != http.StatusOK {
			return nil, nil, status
		}
		cost := int64(1)
		if rule.Cost != nil {
			cost = max(1, rule.Cost(r))
		}
		if s == nil {
			s = newScope(ctx, len(l.rules))
		}
		policy := rule.policyFor(tier)
		s.policies = append(s.policies, policy)
		charges = append(charges, limiter.Charge{Quota: policy.quota, Key: key, Cost: cost})
	}
	return s, charges, http.StatusOK
}

// decide has the store decide on the charges, and returns 200, or the status to refuse
// with: 503 if it could not.
func (l *RateLimit) decide(s *scope, charges []limiter.Charge) (status int) {
	s.decisions = s.decisions[:len(charges)]
	var err error
	if l.memory != nil {
		err = l.memory.Decide(s.Context, charges, s.decisions)
	} else {
		err = l.store.Decide(s.Context, slices.Clone(charges), s.decisions)
	}
	if err != nil {
		if s.Err() == nil { // a client that went away is no outage
			l.warnStoreFailure(err)
		}
		return http.StatusServiceUnavailable
	}
	s.allowed = true
	for i := range s.decisions {
		s.allowed = s.allowed && s.decisions[i].Allowed
	}
	if !s.allowed {
		return http.StatusTooManyRequests
	}
	return http.StatusOK
}

// statusSkip is what key says of a rule that does not mind a request without a key.
const statusSkip = 0

// key is what the rule counts r under. Without a key it is what NoKey says: the
// shared one, or a status other than 200.
func (l *RateLimit) key(rule *rule, r *http.Request) (string, int) {
	if rule.Key == nil {
		return "", http.StatusOK
	}
	key, err := rule.Key(r)
	if err == nil && key != "" {
		l.warnOneKey(rule, key, r)
		return key, http.StatusOK
	}
	missing := err == nil || errors.Is(err, keyfunc.ErrNoKey)
	if !missing {
		l.warnKeyFailure(rule, err)
	}
	switch {
	case rule.NoKey == NoKeyBadRequest:
		return "", http.StatusBadRequest
	case rule.NoKey == NoKeyUnauthorized:
		return "", http.StatusUnauthorized
	case rule.NoKey == NoKeySkip && missing:
		return "", statusSkip
	}
	l.warnOneKey(rule, noKey, r)
	return noKey, http.StatusOK
}

// noKey is the key of requests without one: no key function's, as it would be none.
const noKey = ""

// tooLate reports whether ctx ends before a turn that comes after d.
func tooLate(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < d
}

// wait returns after d, or at once and false when the client goes away.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// isPreflight tells a real CORS preflight from any other OPTIONS request, which would
// be a free path if it were not counted.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions &&
		r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}
