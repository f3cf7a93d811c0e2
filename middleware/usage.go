package middleware

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// Usage returns a handler that shows clients what they have used of the rules in force, and what they
// have left, as JSON:
//
//	mux.Handle("GET /usage", limits.Usage())
//
//	{"rules":[{"rule":"month","tier":"premium","key":"own","limits":[{"limit":"10000 monthly",
//	"events":10000,"per":2678400,"calendar":"monthly","algorithm":"fixed-window","quota":10000,
//	"window":2592000,"used":7200,"remaining":2800,"next":864000,"reset":864000}]}]}
//
// Times are in seconds, rounded up. A missing field is zero, false or none. The fields of a rule:
//
//   - rule, tier: its name, and the client's tier if the rule has a limit for it
//   - routes: the patterns that the rule is for; none: all routes
//   - default: the rule is for routes without a rule of their own, if the client's tier has none either
//   - conditional: the service chooses the requests by something else than the route
//   - key: own (counted for this client), shared (one counter for many clients), network (one for a
//     network), claimed (one for all who send this header, cookie, query, path value or field) or
//     in doubt (a proxy did not name the client, so the proxy is counted)
//   - by_route: the rule counts each route or method separately, and its numbers are of this request's;
//     a key behind keyfunc.Hash does not show it
//   - limits: each limit as text and in parts. quota is the most that can be left: events, or the burst
//     of a bucket. window is the time in which the whole quota comes back. With a calendar, window is the
//     length of this month, and per the greatest length of a month. More is free after next seconds, and
//     all of it after reset
//   - concurrency: how many requests may be in progress at once (max), and how many are
//   - soft_at, near_limit: the percentage from which clients are warned, and whether this client is
//   - denied: the rule refuses every request, or every request of this client ([WithLimit] with 0 events)
//   - unknown: why the numbers are missing: no_key (the request has no user or no such parameter, or the
//     counter is for requests without a key), ambiguous_key, key_failed, no_limit (WithLimit gave an
//     invalid limit), outage or no_room
//
// A banned client's answer also has ban; ban.reset is missing if the ban is permanent. exempt is true
// for a client that is never limited.
//
// Asking uses nothing up: the handler reads all limits with one decision of cost 0, and calls no
// observer. Put the handler behind your authentication. Each request asks the store once, so give the
// route a limiter of its own, or let it count like any other route.
//
// The answer lists the rules for all requests, for the client's tier, and for each route, with names
// and patterns, but no rules in shadow. A rule is listed without numbers if the request to this handler
// lacks the rule's key, such as a parameter of another path. The numbers of a rule that counts each route
// or method separately are of the route of this handler, which by_route says. If clients choose a rule's
// key themselves, such as a header's value, every client that sends the value sees its numbers, as in the
// header fields of limited responses.
//
// If the store's server does not answer, the handler answers 503. It never shows an unknown number as
// unused.
func (l *RateLimit) Usage() http.Handler { return http.HandlerFunc(l.serveUsage) }

func (l *RateLimit) serveUsage(w http.ResponseWriter, r *http.Request) {
	v := &visit{limiter: l, request: r, state: state{set: l.rules.Load()}}
	exempt, banned := v.gate(routedBy(r, elsewhere), noKey)
	if banned != nil && banned.outcome == OutcomeNoKey {
		v.answer(w, r, banned, nil)
		return
	}
	view := map[string]any{"exempt": true, "rules": []usage{}}
	if !exempt {
		ctx, cancel := context.WithTimeout(r.Context(), usagePatience)
		defer cancel()
		rules := v.set.usages(r)
		if !l.complete(ctx, v.set, rules) {
			v.answer(w, r, &refusal{outcome: OutcomeUndecided, status: http.StatusServiceUnavailable, retry: failureRetry}, nil)
			return
		}
		view = map[string]any{"rules": rules}
	}
	if banned != nil {
		ban := map[string]int64{} // without a reset it is permanent
		if banned.retry != limiter.Never {
			ban["reset"] = secondsUp(banned.retry)
		}
		view["ban"] = ban
	}
	body, _ := json.Marshal(view) // it cannot fail
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Type", "application/json")
	writeBody(w, r, http.StatusOK, body)
}

// usagePatience is the deadline of a request's question to the store.
const usagePatience = time.Second

// A usage is what a client has used of a rule, as Usage describes it. Times are in seconds.
type usage struct {
	Rule        string           `json:"rule"`
	Tier        string           `json:"tier,omitempty"`
	Routes      []string         `json:"routes,omitempty"`      // the rule applies to these alone
	Default     bool             `json:"default,omitempty"`     // it applies to routes without rules of their own
	Conditional bool             `json:"conditional,omitempty"` // a Match of the service decides
	Denied      bool             `json:"denied,omitempty"`
	Key         string           `json:"key,omitempty"`      // its class
	ByRoute     bool             `json:"by_route,omitempty"` // the numbers are of this route or method
	Unknown     string           `json:"unknown,omitempty"`  // why the numbers are
	Limits      []limitUsage     `json:"limits,omitempty"`
	Concurrency map[string]int64 `json:"concurrency,omitempty"` // max, and in_progress if it is known
	SoftAt      int              `json:"soft_at,omitempty"`
	Near        bool             `json:"near_limit,omitempty"`

	rule   *rule
	limits *family // of the rule in its tier, or the key's own; nil if the rule denies
	key    string
	class  keyfunc.Class

	// Set by look.
	met  []met             // with charges; nil: the store is not asked
	zero limiter.Allowance // the client's own limit, if it refuses all
	err  error             // why the key's own limit is unknown
}

// A limitUsage is the part of a usage about one limit.
type limitUsage struct {
	Limit     string  `json:"limit"`
	Events    int64   `json:"events"`
	Per       float64 `json:"per"`
	Calendar  string  `json:"calendar,omitempty"` // Per is then the usual length
	Burst     int64   `json:"burst,omitempty"`
	Algorithm string  `json:"algorithm"`
	Quota     int64   `json:"quota"`  // the most that can be left
	Window    float64 `json:"window"` // until all of it is back

	// Nil: unknown.
	Used      *int64 `json:"used,omitempty"`
	Remaining *int64 `json:"remaining,omitempty"`
	Next      *int64 `json:"next,omitempty"`
	Reset     *int64 `json:"reset,omitempty"`
}

// Why the numbers of a rule are unknown.
const (
	unknownKey       = "no_key"        // the request does not have the rule's key
	unknownAmbiguous = "ambiguous_key" // the request has several keys
	unknownFailed    = "key_failed"    // the key could not be read
	unknownLimit     = "no_limit"      // the key's own limit is unknown
	unknownOutage    = "outage"        // the store's server did not answer
	unknownRoom      = "no_room"       // the store had no room for the key
)

// usages returns a usage for each rule that the client of r can meet, on any route.
func (set *ruleset) usages(r *http.Request) []usage {
	tier := ""
	if set.needsTier {
		tier = Tier(r.Context())
	}
	r = routedBy(r, r.Pattern)
	usages := make([]usage, 0, len(set.all))
	for _, rule := range enforced(set.all) {
		info := rule.info
		if info.ForTier != "" && info.ForTier != tier || info.Default && set.byTier[tier] != nil {
			continue
		}
		u := usage{Rule: rule.Name, rule: rule, Default: info.Default}
		if rule.Mode != Deny {
			u.limits = rule.inTier(tier)
			u.readKey(set, r)
		}
		usages = append(usages, u)
	}
	return usages
}

// readKey reads the key of r.
func (u *usage) readKey(set *ruleset, r *http.Request) {
	if u.rule.together {
		u.class = keyfunc.Shared
		return
	}
	key, class, err := read(u.rule.Key, r)
	switch {
	case err == nil:
		u.key, u.class = key, class
		u.ByRoute = strings.Contains(key, "route:") || strings.Contains(key, "method:")
	case errors.Is(err, keyfunc.ErrAmbiguous):
		u.Unknown = unknownAmbiguous
	case errors.Is(err, keyfunc.ErrNoKey):
		u.Unknown = unknownKey
	default:
		set.warnKeyFailure(u.rule.Name, err)
		u.Unknown = unknownFailed
	}
}

// elsewhere is a pattern that no route has: Allow and Deny decide about the client, not about the route of
// the handler.
const elsewhere = "/\x00"

// routedBy returns a copy of r with this pattern. It has no body: nobody would remove the files of a form that a key
// function parses.
func routedBy(r *http.Request, pattern string) *http.Request {
	routed := *r
	routed.Pattern, routed.Body = pattern, http.NoBody
	return &routed
}

// left asks the store what is left of the rules, with charges of cost 0. Usage and Peek show its results. A decision
// is a refusal if no unit is left.
func (l *RateLimit) left(ctx context.Context, set *ruleset, usages []usage) error {
	v := &visit{limiter: l, state: state{set: set, given: set.limitsInContext(ctx)}}
	for i := range usages {
		u := &usages[i]
		if u.rule.Mode == Deny {
			continue
		}
		own, no := v.ownLimits(u.limits, u.key, u.class)
		_, isDigest := keyfunc.DigestOf(u.key)
		switch {
		case no != nil && no.outcome == OutcomeRefused:
			u.zero = v.given.of(u.rule.Name).limit
		case u.Unknown != "":
		case no != nil:
			u.Unknown = unknownLimit
			u.err = errors.New("middleware: the client's own limit is invalid, so its requests are answered 503")
		case isDigest && u.limits.overrides != nil:
			u.Unknown = unknownLimit
			u.err = fmt.Errorf("middleware: a digest does not reveal the key, which may have a limit of its own: %w", bans.ErrDigest)
		default:
			u.limits, u.met = own, []met{}
			for _, m := range own.limits() {
				v.charges = append(v.charges, limiter.Charge{Quota: m.quota, Key: u.key})
				u.met = append(u.met, met{meter: m, class: u.class, units: 1})
			}
		}
	}
	for charges := range slices.Chunk(v.charges, limiter.MaxCharges) {
		if err := l.store.Decide(ctx, charges); err != nil {
			return err
		}
	}
	charges := v.charges
	for i := range usages {
		for j := range usages[i].met {
			m := &usages[i].met[j]
			m.Charge, charges = &charges[0], charges[1:]
			if d := &m.Decision; d.Counted() && d.Remaining <= 0 {
				refuseLook(d)
			}
			m.endWithOverride(l.now())
		}
	}
	return nil
}

// complete completes the usages with the results of left. It returns false if the store knows no rule's numbers.
func (l *RateLimit) complete(ctx context.Context, set *ruleset, usages []usage) (known bool) {
	if err := l.left(ctx, set, usages); err != nil {
		if !isGone(ctx) {
			set.warnStoreFailure(err)
		}
		return false
	}
	asks := false
	for i := range usages {
		u := &usages[i]
		u.describe()
		asks = asks || u.met != nil
		known = known || u.met != nil && u.Unknown != unknownOutage
	}
	return known || !asks
}

// describe sets what clients see.
func (u *usage) describe() {
	r := u.rule
	u.Denied = r.Mode == Deny || u.zero != nil
	if m, ok := r.Match.(*routeMatcher); ok {
		u.Routes = m.texts
	} else {
		u.Conditional = r.Match != nil
	}
	if r.info.Route != "" {
		u.Conditional = r.Match != nil
		u.Routes = []string{r.info.Route}
	}
	if u.Denied {
		u.Unknown = ""
		return
	}
	u.Tier, u.SoftAt = u.limits.info.Tier, r.SoftAt
	if u.Unknown == "" {
		u.Key = u.class.String()
	}
	for i := range u.met {
		switch d := &u.met[i].Decision; {
		case d.Degraded || !d.Counted():
			u.Unknown = unknownOutage
		case d.Overflow && u.Unknown == "":
			u.Unknown = unknownRoom
		}
	}
	decision := func(i int, m *meter) (d *limiter.Decision) { // nil: unknown
		if u.met != nil && u.Unknown == "" {
			d = &u.met[i].Decision
			u.Near = u.Near || m.isNear(d)
		}
		return d
	}
	for i, m := range u.limits.rates {
		if d := decision(i, m); u.Unknown != unknownLimit {
			u.Limits = append(u.Limits, describeLimit(m.quota, d))
		}
	}
	for i, m := range u.limits.slots {
		u.Concurrency = map[string]int64{"max": m.quota.Capacity()}
		if d := decision(len(u.limits.rates)+i, m); d != nil {
			u.Concurrency["in_progress"] = d.Limit - d.Remaining
		}
	}
}

func describeLimit(q *limiter.Quota, d *limiter.Decision) limitUsage {
	limit, at := q.Limit(), int64(0)
	if d != nil {
		at = d.Receipt.At // by the clock of its windows
	}
	u := limitUsage{
		Limit: limit.String(), Events: limit.Events, Per: limit.Per.Seconds(), Calendar: limit.Calendar(), Burst: limit.Burst,
		Algorithm: q.Algorithm().String(), Quota: q.Capacity(), Window: windowAt(q, at).Seconds(),
	}
	if d != nil {
		u.Used, u.Remaining = new(d.Limit-d.Remaining), &d.Remaining
		u.Next, u.Reset = new(secondsUp(d.NextAfter)), new(secondsUp(d.ResetAfter))
	}
	return u
}

// windowAt returns the length of the window at that time. Windows of a calendar differ in length.
func windowAt(q *limiter.Quota, at int64) time.Duration {
	if q.Limit().Calendar() == "" {
		return q.Window()
	}
	if at <= 0 { // the store did not set it
		at = time.Now().UnixMicro()
	}
	start, end := q.WindowAt(at)
	return time.Duration(end-start) * time.Microsecond
}
