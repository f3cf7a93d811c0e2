package middleware

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// A RateLimit decides about HTTP requests. [New] makes one; it is used by many
// goroutines at once.
type RateLimit struct {
	rules  atomic.Pointer[ruleset]
	store  limiter.Store
	memory *limiter.Memory // the store, if it is one: then charges stay on the stack
	places atomic.Pointer[[]place]

	changing sync.Mutex
	claimed  map[string]bool // names of counters in the store that are this limiter's

	storeFailure onceWarning
}

// New returns a limiter for these rules, or everything that is wrong with c.
func New(c Config) (*RateLimit, error) {
	set, err := compile(c, nil)
	if err != nil {
		return nil, err
	}
	l := &RateLimit{store: c.Store, claimed: map[string]bool{}}
	if l.store == nil {
		if l.store, err = limiter.NewMemory(limiter.MemoryConfig{}); err != nil {
			return nil, err
		}
	}
	l.memory, _ = l.store.(*limiter.Memory)
	if err := l.claim(set); err != nil {
		return nil, err
	}
	l.rules.Store(set)
	return l, nil
}

// Reconfigure puts these rules in the place of the present ones, at once for all requests
// that come, or returns everything that is wrong with c and changes nothing. Requests that
// are being decided are decided by the rules they came under.
//
// Counters stay: they go by the rule's name, tier and key. What was used of a limit that
// changes stays used. Config.Store has to be nil, or the store that the limiter has.
func (l *RateLimit) Reconfigure(c Config) error {
	if c.Store != nil && !sameStore(c.Store, l.store) {
		return errors.New("middleware: Config.Store is another store: Reconfigure keeps the one that there is")
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	set, err := compile(c, l.rules.Load())
	if err != nil {
		return err
	}
	if err := l.claim(set); err != nil {
		return err
	}
	l.rules.Store(set)
	return nil
}

func sameStore(a, b limiter.Store) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
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
	l.rules.Load().needsRoute = false // an address is the same on every route
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
// routed: around a route's handler, or directly around an *http.ServeMux (or another
// limiter's Handler around one), which Handler asks. A mux inside of that one is known only to a limiter around it.
// Another router's adapter sets it (chilimit, ginlimit, echolimit).
func (l *RateLimit) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("middleware: Handler needs a next handler")
	}
	mux := muxBehind(next)
	if mux != nil {
		l.know(muxed{mux})
	}
	return &handler{mux, func(w http.ResponseWriter, r *http.Request) {
		set := l.rules.Load() // once: what it needs of the request is done here
		if !set.vetted.Load() {
			l.vet(set, r, true)
		}
		if mux != nil && set.needsRoute && r.URL != nil {
			// Inside another mux, r has that one's pattern, such as "/v1/".
			if _, pattern := mux.Handler(r); pattern != "" {
				routed := *r
				routed.Pattern = pattern
				if refused := l.checkIn(set, w, &routed); refused.Status != 0 {
					set.refuse(w, &routed, refused)
				} else {
					next.ServeHTTP(w, &routed)
				}
				showPattern(r, &routed)
				return
			}
		}
		s, refused := l.check(set, w, r)
		switch {
		case refused.Status != 0:
			set.refuse(w, r, refused)
			return
		case s == nil:
			next.ServeHTTP(w, r)
			return
		}
		behind := r.WithContext(s)
		next.ServeHTTP(w, behind)
		showPattern(r, behind)
	}}
}

// A handler is what Handler returns. It says which mux it leads to, for a limiter around it.
type handler struct {
	mux   *http.ServeMux // nil: not known
	serve http.HandlerFunc
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.serve(w, r) }

func muxBehind(next http.Handler) *http.ServeMux {
	switch next := next.(type) {
	case *http.ServeMux:
		return next
	case *handler:
		return next.mux
	}
	return nil
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
	set := l.ruleset(r)
	refused := l.checkIn(set, w, r)
	if refused.Status != 0 {
		set.refuse(w, r, refused)
	}
	return refused.Status == 0
}

// Refusal is Check, but for the answer: of a request that is refused it sets the header
// fields, and leaves the status, which is the Result's, and the body to its caller.
// Config.OnRefused is not asked.
func (l *RateLimit) Refusal(w http.ResponseWriter, r *http.Request) (result Result, refused bool) {
	if result = l.checkIn(l.ruleset(r), w, r); result.Status == 0 {
		return Result{}, false
	}
	result.writeHeaders(w.Header())
	return result, true
}

// ruleset is the one in force for r.
func (l *RateLimit) ruleset(r *http.Request) *ruleset {
	set := l.rules.Load()
	if !set.vetted.Load() {
		l.vet(set, r, false)
	}
	return set
}

// checkIn is check, where the scope becomes the context of r.
func (l *RateLimit) checkIn(set *ruleset, w http.ResponseWriter, r *http.Request) (refused Result) {
	s, refused := l.check(set, w, r)
	if s != nil {
		*r = *r.WithContext(s)
	}
	return refused
}

// check is the hot path: rules to charges, one decision, header fields. The scope is
// what the next handler's context should be; nil means that no rule applied. A request
// that must go no further has no scope, but a Result with a Status.
func (l *RateLimit) check(set *ruleset, w http.ResponseWriter, r *http.Request) (s *scope, refused Result) {
	if set.hasBans {
		switch ban, status := set.findBan(r); {
		case status == http.StatusOK:
		case set.Shadow:
			set.shadowedBans.noteBan(set.Logger)
		case status == set.BanStatus:
			set.observe(r, OutcomeBanned, ban)
			return nil, bannedResult(ban, status)
		default:
			set.observe(r, OutcomeNoKey, bans.Ban{})
			return nil, Result{Status: status}
		}
	}
	if set.ExemptPreflights && isPreflight(r) {
		return nil, Result{}
	}
	if set.Allow != nil && set.Allow(r) {
		set.observe(r, OutcomeExempt, bans.Ban{})
		return nil, Result{}
	}
	var few [fewRules]limiter.Charge
	s, charges, status, _ := set.match(r, few[:0])
	switch {
	case status != http.StatusOK:
		set.observe(r, OutcomeNoKey, bans.Ban{})
	case s == nil:
		return nil, Result{}
	default:
		if status = l.decideObserved(set, r, s, charges); status == http.StatusServiceUnavailable {
			s = nil
			break
		}
		s.writeHeaders(w.Header(), set.Headers)
	}
	if status != http.StatusOK {
		return nil, s.refusal(status)
	}
	if d := s.delay(); d > 0 && !wait(s, d) {
		return nil, Result{Status: statusClientClosedRequest}
	}
	return s, Result{}
}

// statusClientClosedRequest is nginx's, for a client that went away: it is for logs alone.
const statusClientClosedRequest = 499

// match appends the charges of the rules that match, and returns 200, or the status to
// refuse with and the rule that does. The scope is nil if there is nothing to decide: no
// rule applies, or the status says why.
func (set *ruleset) match(r *http.Request, charges []limiter.Charge) (s *scope, all []limiter.Charge, status int, refuses string) {
	tier := ""
	if set.needsTier {
		if tier = Tier(r.Context()); tier != "" {
			set.vetTier(tier)
		}
	}
	m := matching{set: set, request: r, outer: outerScope(r), tier: tier, status: http.StatusOK}
	for _, rule := range set.always {
		charges = m.add(charges, rule)
	}
	if set.byTier != nil && tier != "" {
		charges = m.add(charges, set.byTier[tier])
	}
	if set.byRoute != nil || set.fallback != nil {
		charges = m.add(charges, set.forRoute(r))
	}
	if m.status != http.StatusOK {
		return nil, nil, m.status, m.refuses
	}
	return m.scope, charges, m.status, ""
}

// A matching is what is known of a request while its rules are gathered. The charges are
// not part of it, or they would leave the stack with the rest.
type matching struct {
	set     *ruleset
	request *http.Request
	outer   *scope // of the limiters further out; nil: there is none
	tier    string
	scope   *scope // nil before the first rule
	status  int    // 200, or what to refuse with
	refuses string // the rule that does
}

// add appends what the request is charged for a rule, if there is one and it matches.
func (m *matching) add(charges []limiter.Charge, rule *rule) []limiter.Charge {
	r := m.request
	if rule == nil || m.status != http.StatusOK || rule.Match != nil && !rule.Match(r) {
		return charges
	}
	key, class, status := m.set.key(rule, r)
	switch {
	case status == http.StatusOK:
	case status == statusSkip:
		return charges
	case rule.Shadow:
		rule.notes.shadowed.note(m.set.Logger, rule.policy)
		return charges
	default:
		m.status, m.refuses = status, rule.Name
		return charges
	}
	cost := max(1, rule.Units)
	if rule.Cost != nil {
		cost = max(1, rule.Cost(r))
	}
	policy := rule.policyFor(m.tier)
	if m.outer != nil {
		if cost = m.left(policy, key, cost); cost <= 0 {
			return charges // it was charged by this limiter further out
		}
	}
	if m.scope == nil {
		m.scope = newScope(r, m.outer, m.set.most)
	}
	m.scope.policies = append(m.scope.policies, applied{policy, key, class, cost})
	return append(charges, limiter.Charge{Quota: policy.quota, Key: key, Cost: cost})
}

// decideObserved is decide, and tells the observer of it.
func (l *RateLimit) decideObserved(set *ruleset, r *http.Request, s *scope, charges []limiter.Charge) int {
	s.decisions = s.decisions[:len(charges)]
	if set.Observer == nil {
		status, _ := l.decide(set, s, charges)
		return status
	}
	o := observations.Get().(*Observation)
	var began time.Time
	if l.timed(o) {
		began = time.Now()
	}
	status, err := l.decide(set, s, charges)
	elapsed := time.Duration(0)
	if !began.IsZero() {
		elapsed = max(time.Since(began), 1)
	}
	set.observeRules(o, r, s.outcome(status), s, elapsed, err)
	return status
}

// decide has the store decide on the charges, and returns 200, or the status to refuse
// with: 503 if it could not, with the error, or if the request's turn comes too late.
func (l *RateLimit) decide(set *ruleset, s *scope, charges []limiter.Charge) (status int, err error) {
	if err := l.ask(s, set, charges, s.decisions); err != nil {
		return l.undecided(set, s, err), err
	}
	s.allowed = allAllowed(s.decisions)
	if !s.allowed && set.hasShadowOrOverdraft {
		taken, err := l.overdraw(set, s, charges)
		if err != nil {
			return l.undecided(set, s, err), err
		}
		if s.allowed {
			charges = taken
		}
	}
	if !s.allowed {
		if set.hasEscalation {
			l.escalate(set, s, charges)
		}
		return http.StatusTooManyRequests, nil
	}
	if d := s.delay(); d > 0 && tooLate(s, d) {
		// Its place in the queue is for another request, and the client learns now.
		if err := l.store.GiveBack(s, slices.Clone(charges)); err != nil {
			l.warnStoreFailure(set, err)
		}
		return http.StatusServiceUnavailable, nil
	}
	return http.StatusOK, nil
}

// ask has the store decide. Charges stay on the stack if it is a Memory.
func (l *RateLimit) ask(s *scope, set *ruleset, charges []limiter.Charge, decisions []limiter.Decision) error {
	if l.memory != nil {
		return l.memory.Decide(s.Context, charges, decisions)
	}
	ctx := s.Context
	if set.hasEscalation {
		// A client that hangs up at once is counted all the same, or it would never be banned.
		var cancel context.CancelFunc
		ctx, cancel = uncancelled(ctx)
		defer cancel()
	}
	return l.store.Decide(ctx, slices.Clone(charges), decisions)
}

// uncancelled is ctx, with its deadline, for what goes on when the client goes away.
func uncancelled(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	ctx = context.WithoutCancel(ctx)
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline)
}

// undecided is the status of a request that the store could not decide about.
func (l *RateLimit) undecided(set *ruleset, s *scope, err error) int {
	if s.Err() == nil { // a client that went away is no outage
		l.warnStoreFailure(set, err)
	}
	for _, p := range s.policies {
		if !p.info.Shadow {
			return http.StatusServiceUnavailable
		}
	}
	s.allowed = true
	return http.StatusOK
}

func allAllowed(decisions []limiter.Decision) bool {
	for i := range decisions {
		if !decisions[i].Allowed {
			return false
		}
	}
	return true
}

// statusSkip is what key says of a rule that does not count a request without a key.
const statusSkip = 0

// key is what the rule counts r under, or a status other than 200. A request that has no
// key is what NoKey says, but a preflight its client's address; where the key could not be
// read, it is what OnOutage says.
func (set *ruleset) key(rule *rule, r *http.Request) (string, keyfunc.Class, int) {
	if rule.Key == nil {
		return noKey, keyfunc.Shared, http.StatusOK
	}
	key, class, err := read(rule.Key, r)
	if err == nil {
		rule.warnOneKey(set.Logger, key, class, r)
		return key, class, http.StatusOK
	}
	status := rule.NoKey.status()
	switch {
	case !errors.Is(err, keyfunc.ErrNoKey):
		rule.warnKeyFailure(set.Logger, err)
		status = rule.failedKeyStatus(err)
	case rule.NoKey != NoKeySkip && isPreflight(r):
		// The address may be a proxy's, so it is limited, and never banned.
		return set.preflightKey(r), keyfunc.InDoubt, http.StatusOK
	}
	if status == http.StatusOK {
		rule.warnOneKey(set.Logger, noKey, keyfunc.Shared, r)
	}
	return noKey, keyfunc.Shared, status
}

// read is the key of r under f. An empty one is none.
func read(f keyfunc.Func, r *http.Request) (key string, class keyfunc.Class, err error) {
	key, err = f(r)
	if key, class = keyfunc.Classify(key); err == nil && key == noKey {
		err = keyfunc.ErrNoKey
	}
	return key, class, err
}

// failedKeyStatus is what becomes of a request when its key could not be read: of an
// ambiguous one, 400; else what an outage means, where to count here is to count all of them together.
func (r *rule) failedKeyStatus(err error) int {
	switch {
	case errors.Is(err, keyfunc.ErrAmbiguous):
		return http.StatusBadRequest
	case r.OnOutage == limiter.FailOpen:
		return statusSkip
	case r.OnOutage == limiter.FailClosed, r.NoKey == NoKeyBadRequest, r.NoKey == NoKeyUnauthorized:
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
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
