package middleware

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/internal/waiting"
	"github.com/weirgo/weir/limiter"
)

// How many requests of a rule are in progress at once, its Concurrency: a policy beside those
// of its limits, of which a request takes a place, and returns it when it ends.

// concurrentSuffix is what the counters of a rule's places are called, after the rule. It is
// one name whether the rule has a limit or not, so that the count survives when it gets one.
const concurrentSuffix = ".concurrent"

// isPlace reports whether p is a rule's Concurrency, and not one of its limits.
func (p *policy) isPlace() bool { return p.quota.InFlight() }

// A progress is what is under way of a rule in one tier. It outlives a change of the rules.
type progress struct{ requests, waiting atomic.Int64 }

// place is r's Concurrency for the tier that info tells of, or nil if something is wrong with it.
func (c *compiler) place(at string, r *rule, info RuleInfo, alone bool) *policy {
	of := info.Concurrency
	if err := of.Validate(); err != nil {
		c.report("%s: Concurrency: %w", at, err)
		return nil
	}
	name := r.Name + concurrentSuffix
	quota := c.quota(at+" Concurrency", family{rule: name, tier: info.Tier, places: of.Max, onOutage: r.OnOutage})
	if quota == nil {
		return nil
	}
	c.name(at, name, info.Tier)
	shown := name
	if alone {
		shown = r.Name
	}
	p := newPolicy(quota, shown)
	p.concurrency, p.other = of, !alone
	p.progress = c.progress(counters{name, info.Tier})
	c.set.hasPlaces = true
	c.set.hasQueues = c.set.hasQueues || of.Queue > 0 && !r.Shadow
	return p
}

func (c *compiler) progress(of counters) *progress {
	p := &progress{}
	if c.before != nil && c.before.progress[of] != nil {
		p = c.before.progress[of]
	}
	c.set.progress[of] = p
	return p
}

// withoutLimit checks what is said of a rule that has nothing but places.
func (c *compiler) withoutLimit(at string, given Rule) {
	for _, field := range []struct {
		name  string
		given bool
	}{
		{"Cost", given.Cost != nil},
		{"Units", given.Units != 0},
		{"Counts", given.Counts.given},
		{"Settles", given.Settles},
		{"ChargeAfter", given.ChargeAfter},
	} {
		if field.given {
			c.report("%s: %s is set, and there is no Limit: of Concurrency each request takes one place, and returns it when it ends", at, field.name)
		}
	}
}

// canHold refuses a store that cannot count requests in progress.
func (l *RateLimit) canHold(set *ruleset) error {
	placer, ok := limiter.As[limiter.Placer](l.store)
	for _, quota := range set.quotas {
		switch {
		case !quota.InFlight():
		case !ok:
			return invalid.New("middleware", "Config.Store is a %T, which cannot count requests in progress, as Concurrency of the rule %q needs: what a process takes would stay taken if it died", l.store, quota.Rule())
		default:
			if err := placer.Places(quota); err != nil {
				return invalid.New("middleware", "Config.Store: %w", err)
			}
		}
	}
	return nil
}

// placeable reports whether a request that is checked so can take places: its end is told, or
// its server ends its context.
func (set *ruleset) placeable(r *http.Request, how how) bool {
	if !set.hasPlaces || how.ends {
		return true
	}
	if endsByServer(r.Context()) {
		set.notices.early.warn(set.Logger, "weir-no-end",
			"weir: a rule has Concurrency, and requests are checked without telling how they end, so that the place of one whose client leaves is free while its handler goes on; use RateLimit.Begin in place of Check")
		return true
	}
	set.notices.unheld.warn(set.Logger, "weir-concurrency-without-end",
		"weir: a rule has Concurrency, and nothing tells how requests end, so that they are refused; use RateLimit.Begin in place of Check")
	return false
}

// endsByServer reports whether an [http.Server] ends the context when the handler has returned.
func endsByServer(ctx context.Context) bool {
	return ctx.Done() != nil && ctx.Value(http.ServerContextKey) != nil
}

// decideGuarded is decideObserved for charges that are to be returned if an observer or
// Config.Overload panics: what is taken of a limit comes back by itself, and places do not.
func (l *RateLimit) decideGuarded(set *ruleset, r *http.Request, s *decided, charges []limiter.Charge, overload Overload) (status int, place Place, retryAfter time.Duration) {
	returned := false
	defer func() {
		if !returned && s.allowed {
			l.giveBack(r.Context(), set, s)
		}
	}()
	status, place, retryAfter = l.decideObserved(set, r, s, charges, overload)
	returned = true
	return status, place, retryAfter
}

// placeOf is what the request has taken, if that policy is one.
func (s *decided) placeOf(i int) (limiter.Charge, bool) {
	if !s.policies[i].isPlace() {
		return limiter.Charge{}, false
	}
	return s.took(i)
}

// hasPlace reports whether the request has taken one.
func (s *decided) hasPlace() bool {
	for i := range s.policies {
		if _, ok := s.placeOf(i); ok {
			return true
		}
	}
	return false
}

// hold notes that the request has places.
func (e *ending) hold() {
	e.holds.Store(true)
	for i := range e.policies {
		if _, ok := e.placeOf(i); ok {
			e.policies[i].progress.requests.Add(1)
		}
	}
}

// release returns the request's places, once.
func (e *ending) release() {
	if !e.holds.Swap(false) {
		return
	}
	for i := range e.policies {
		if c, ok := e.placeOf(i); ok {
			e.policies[i].progress.requests.Add(-1)
			e.limits.end(e.Context, e.set, c)
		}
	}
}

// end returns a place. That the client is gone does not matter.
func (l *RateLimit) end(ctx context.Context, set *ruleset, c limiter.Charge) {
	if l.memory != nil {
		_ = l.memory.Refund(ctx, []limiter.Charge{c}) // which cannot fail
	} else {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settlePatience)
		err := limiter.Settle(ctx, l.store, []limiter.Settlement{{Charge: c}})
		cancel()
		if err != nil {
			set.notices.unreturned.warn(set.Logger, "weir-not-returned",
				"weir: the store could not be told that a request has ended; its place is free when the store gives up on it",
				slog.String("error", err.Error()))
		}
	}
	l.room.Returned(lineOf(&c))
}

// holdsFor reports whether the request with that context, or one that it is part of, has a place
// of p for the key. It takes one place, and would wait for itself if it took two.
func holdsFor(ctx context.Context, p *policy, key string) bool {
	for e := endingOf(ctx); e != nil; e = endingOf(e.Context) {
		if !e.holds.Load() {
			continue
		}
		for i := range e.policies {
			if _, ok := e.placeOf(i); ok && e.policies[i].isOf(p, key) {
				return true
			}
		}
	}
	return false
}

// lineKey is what requests wait under for a place.
type lineKey struct{ rule, tier, key string }

func lineOf(c *limiter.Charge) lineKey { return lineKey{c.Quota.Rule(), c.Quota.Tier(), c.Key} }

func (a *applied) line() lineKey { return lineKey{a.quota.Rule(), a.quota.Tier(), a.key} }

// queues reports whether a request waits for a place of a.
func (a *applied) queues() bool { return a.concurrency.Queue > 0 && !a.info.Shadow }

// takeInTurn is take for requests that may wait for a place. One that lacks nothing else waits
// in one line, holding nothing, until it is the first and everything can be taken. Should it
// lack another place then, it goes to the end of that one's line.
func (l *RateLimit) takeInTurn(ctx context.Context, set *ruleset, s *decided, charges []limiter.Charge) (waited time.Duration, err error) {
	at, asked := s.line(&l.room), false
	if at < 0 {
		if err := l.take(ctx, set, s, charges); err != nil || s.allowed {
			return 0, err
		}
		at, asked = s.lacks(), true
	}
	if at < 0 {
		return 0, nil
	}
	// What waits is a copy, as it leaves the stack. It has no outer, or all of s would leave it.
	w := &decided{policies: slices.Clone(s.policies), decisions: slices.Clone(s.decisions)}
	began := l.room.Now()
	err = l.wait(ctx, set, w, slices.Clone(charges), at, asked)
	copy(s.policies, w.policies)
	copy(s.decisions, w.decisions)
	s.allowed, s.gone, s.late = w.allowed, w.gone, w.late
	return l.room.Now().Sub(began), err
}

// line is the place of the first that other requests wait for already, or -1.
func (s *decided) line(room *waiting.Room[lineKey]) int {
	for i := range s.policies {
		if a := &s.policies[i]; a.queues() && !room.IsEmpty(a.line()) {
			return i
		}
	}
	return -1
}

// wait is takeInTurn from when the request waits, at first for the place of that policy.
func (l *RateLimit) wait(ctx context.Context, set *ruleset, s *decided, charges []limiter.Charge, at int, asked bool) error {
	began := l.room.Now()
	for at >= 0 {
		a := &s.policies[at]
		a.warnPatience(ctx, set)
		got, err := l.inTurn(ctx, a, a.concurrency.MaxWait-l.room.Now().Sub(began), func() (bool, error) {
			asked = true
			for i := range s.policies {
				s.policies[i].spared = false
			}
			if now := l.rules.Load(); now != set {
				now.refresh(charges)
			}
			err := l.take(ctx, set, s, charges)
			return s.allowed || s.decisions[at].Allowed || s.lacks() < 0, err
		})
		switch {
		case err != nil && isGone(ctx):
			s.gone, s.allowed = true, false
			return nil
		case err != nil && errors.Is(err, ctx.Err()): // the time that the application gives it is up
			return l.noTurn(ctx, s, at, false, charges)
		case err != nil:
			return err
		case !got:
			return l.noTurn(ctx, s, at, asked, charges)
		}
		at = s.lacks()
	}
	return nil
}

// inTurn waits in a's line, and counts as waiting until then, should the store panic too.
func (l *RateLimit) inTurn(ctx context.Context, a *applied, patience time.Duration, ask func() (bool, error)) (bool, error) {
	a.progress.waiting.Add(1)
	defer a.progress.waiting.Add(-1)
	return l.room.Wait(ctx, a.line(), a.concurrency.Queue, patience, ask)
}

// refresh has charges of places count by the rules in force, as they may have changed while the
// request waited: more may be allowed now, and it would stand in the way of those that came later.
func (set *ruleset) refresh(charges []limiter.Charge) {
	for i := range charges {
		was := charges[i].Quota
		if !was.InFlight() {
			continue
		}
		at := slices.IndexFunc(set.quotas, func(q *limiter.Quota) bool {
			return q.InFlight() && q.Rule() == was.Rule() && q.Tier() == was.Tier() && q.OnOutage == was.OnOutage
		})
		if at >= 0 {
			charges[i].Quota = set.quotas[at]
		}
	}
}

// lacks is the place of what a refused request is to wait for, or -1: it passes, or not for want
// of a place alone.
func (s *decided) lacks() (at int) {
	at = -1
	if s.allowed {
		return at
	}
	for i := range s.policies {
		a := &s.policies[i]
		switch {
		case s.decisions[i].Allowed || a.info.Shadow:
		case !a.queues():
			return -1
		case at < 0:
			at = i
		}
	}
	return at
}

// noTurn describes the refusal of a request that could not wait, or not so long, for a place.
func (l *RateLimit) noTurn(ctx context.Context, s *decided, at int, asked bool, charges []limiter.Charge) error {
	d := &s.decisions[at]
	if !asked { // others were before it
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settlePatience)
		defer cancel()
		looks := slices.Clone(charges)
		for i := range looks {
			looks[i].Cost = 0
		}
		if err := l.store.Decide(ctx, looks, s.decisions); err != nil {
			return err
		}
		s.allowed, d.Allowed, d.RetryAfter = false, false, max(time.Microsecond, d.NextAfter)
	}
	d.RetryAfter = l.room.Behind(s.policies[at].line(), d.RetryAfter)
	return nil
}

// nudge has those asked next that wait for places which this request has not taken after all:
// while it was decided on they may have found them taken.
func (l *RateLimit) nudge(s *decided) {
	for i := range s.policies {
		if a := &s.policies[i]; a.isPlace() && s.decisions[i].Allowed {
			l.room.Returned(a.line())
		}
	}
}

// warnPatience warns of a request that may wait until its server no longer lets it be answered.
func (a *applied) warnPatience(ctx context.Context, set *ruleset) {
	server, ok := ctx.Value(http.ServerContextKey).(*http.Server)
	if !ok || server.WriteTimeout <= 0 || a.concurrency.MaxWait < server.WriteTimeout {
		return
	}
	a.rule.notes.patience.warn(set.Logger, "weir-wait-too-long",
		"weir: requests may wait for a place until their server's WriteTimeout is over, and then cannot be answered; lower MaxWait",
		slog.String("rule", a.rule.Name), slog.Duration("max_wait", a.concurrency.MaxWait), slog.Duration("write_timeout", server.WriteTimeout))
}

// full is how many requests may be in progress at once, if a refused request lacks a place, and
// nothing else; and whether it is one of all clients together.
func (s *decided) full() (most int64, shared bool) {
	shared = true
	for i := range s.policies {
		a, d := &s.policies[i], &s.decisions[i]
		switch {
		case d.Allowed || a.shadow:
		case !a.isPlace():
			return 0, false
		default:
			most = d.Limit
			shared = shared && a.rule.Key == nil
		}
	}
	return most, shared && most > 0
}

// An InProgress is how much of a rule with Concurrency is under way in this process.
type InProgress struct {
	Rule     *RuleInfo // shared, and not to be changed
	Requests int64     // that have a place
	Waiting  int64     // that wait for one
}

// InProgress is what is under way now of each rule with Concurrency, in the order of Rules.
func (l *RateLimit) InProgress() []InProgress {
	var all []InProgress
	for _, p := range l.rules.Load().policies() {
		info := p.info
		if p = p.placed(); p != nil {
			all = append(all, InProgress{info, p.progress.requests.Load(), p.progress.waiting.Load()})
		}
	}
	return all
}

// placed is the policy of p's rule that is its Concurrency, or nil.
func (p *policy) placed() *policy {
	if p.isPlace() {
		return p
	}
	return p.place
}
