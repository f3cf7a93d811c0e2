package middleware

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// Usage returns a handler that shows clients what they have used of the rules in force, and what they
// have left, as JSON. docs/usage.md describes all members:
//
//	mux.Handle("GET /usage", limits.Usage())
//
//	{"rules":[{"rule":"month","tier":"premium","key":"own","limits":[{"limit":"10000 monthly",
//	"events":10000,"per":2678400,"calendar":"monthly","algorithm":"fixed-window","quota":10000,
//	"window":2592000,"used":7200,"remaining":2800,"next":864000,"reset":864000}]}]}
//
// Asking uses nothing up: the handler reads all limits with one decision of cost 0, and calls no
// observer. Put the handler behind your authentication. Each request asks the store once, so give the
// route a limiter of its own, or let it count like any other route.
//
// The answer lists the rules for all requests, for the client's tier, and for each route, with names
// and patterns, but no rules in shadow. A rule is listed without numbers if the request to this handler
// lacks the rule's key, such as a parameter of another path, or if the rule counts each route or method
// separately. If clients choose a rule's key themselves, such as a header's value, every client that
// sends the value sees its numbers, as in the header fields of limited responses.
//
// If the store's server does not answer, the handler answers 503. It never shows an unknown number as
// unused.
func (l *RateLimit) Usage() http.Handler { return http.HandlerFunc(l.serveUsage) }

func (l *RateLimit) serveUsage(w http.ResponseWriter, r *http.Request) {
	if !isLook(w, r) {
		return
	}
	set := l.rules.Load()
	routed := routedBy(r, elsewhere, http.MethodGet)
	_, no := set.findBan(routed, nil, l.now)
	if set.Shadow {
		no = refusal{}
	}
	switch {
	case no.status == 0 && set.exempts(routed):
		writeAnswer(w, r, http.StatusOK, "application/json", []byte(`{"exempt":true,"rules":[]}`))
		return
	case no.status == 0 && set.hasHosts && !route.IsHost(r.Host):
		no = unknownHost
	}
	if no.outcome == OutcomeNoKey {
		writeProblem(w, r, no.status, "It is not known whether requests of this client are accepted.")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), usagePatience)
	defer cancel()
	rules, known := l.describe(ctx, set, set.questions(r))
	if !known {
		if r.Context().Err() == nil {
			w.Header().Set("Retry-After", "1")
			writeProblem(w, r, http.StatusServiceUnavailable, "The remaining quota is not known at the moment.")
		}
		return
	}
	view := usageView{Rules: rules}
	if no.status != 0 {
		view.Ban = &usageBan{}
		if no.retry != limiter.Never {
			view.Ban.Reset = secondsUp(no.retry)
		}
	}
	body, _ := json.Marshal(view) // it cannot fail
	writeAnswer(w, r, http.StatusOK, "application/json", body)
}

// usagePatience is the deadline of a request's question to the store.
const usagePatience = time.Second

// The answer, as docs/usage.md describes it. Times are in seconds.
type (
	usageView struct {
		Ban   *usageBan   `json:"ban,omitempty"`
		Rules []usageRule `json:"rules"`
	}

	usageBan struct {
		Reset int64 `json:"reset,omitempty"` // 0: permanent
	}

	usageRule struct {
		Rule        string         `json:"rule"`
		Tier        string         `json:"tier,omitempty"`
		Routes      []string       `json:"routes,omitempty"`      // the rule applies to these alone
		Default     bool           `json:"default,omitempty"`     // it applies to routes without rules of their own
		Conditional bool           `json:"conditional,omitempty"` // a Match of the service decides
		Denied      bool           `json:"denied,omitempty"`
		Key         string         `json:"key,omitempty"` // its class
		Unknown     string         `json:"unknown,omitempty"`
		Limits      []usageLimit   `json:"limits,omitempty"`
		Concurrency *usageProgress `json:"concurrency,omitempty"`
		SoftAt      int            `json:"soft_at,omitempty"`
		Near        bool           `json:"near_limit,omitempty"`
	}

	usageLimit struct {
		Limit      string  `json:"limit"`
		Events     int64   `json:"events"`
		Per        float64 `json:"per"`
		Calendar   string  `json:"calendar,omitempty"` // Per is then the usual length
		Burst      int64   `json:"burst,omitempty"`
		Algorithm  string  `json:"algorithm"`
		Quota      int64   `json:"quota"`  // the most that can be left
		Window     float64 `json:"window"` // until all of it is back
		*usageLeft         // nil: unknown
	}

	usageLeft struct {
		Used      int64 `json:"used"`
		Remaining int64 `json:"remaining"`
		Next      int64 `json:"next"`
		Reset     int64 `json:"reset"`
	}

	usageProgress struct {
		Max        int64  `json:"max"`
		InProgress *int64 `json:"in_progress,omitempty"` // nil: unknown
	}
)

// Why the numbers of a rule are unknown.
const (
	unknownKey       = "no_key"        // the request does not have the rule's key
	unknownAmbiguous = "ambiguous_key" // the request has several keys
	unknownFailed    = "key_failed"    // the key could not be read
	unknownLimit     = "no_limit"      // the key's own limit is unknown
	unknownOutage    = "outage"        // the store's server did not answer
	unknownRoom      = "no_room"       // the store had no room for the key
)

// A question is about one rule.
type question struct {
	rule    *rule
	policy  *limit // the first; nil if the rule denies
	key     string
	class   keyfunc.Class
	unknown string // why the store is not asked

	// Set by left.
	policies []*limit // of the rule in its tier; nil: the store is not asked
	charges  []limiter.Charge
	zero     limiter.Allowance // the client's own limit, if it refuses all
	err      error             // why the key's own limit is unknown
}

// questions returns a question for each rule that the client of r can meet, on any route.
func (set *ruleset) questions(r *http.Request) []question {
	tier := ""
	if set.needsTier {
		tier = Tier(r.Context())
	}
	one, other := routedBy(r, "GET "+patternPath(r), http.MethodGet), routedBy(r, "OTHER "+patternPath(r), "OTHER")
	questions := make([]question, 0, len(set.all))
	for _, rule := range set.all {
		info := rule.info
		if rule.shadow || info.ForTier != "" && info.ForTier != tier || info.Default && set.byTier[tier] != nil {
			continue
		}
		q := question{rule: rule}
		if !rule.deny {
			q.policy = rule.limitsFor(tier)
			q.readKey(set, one, other)
		}
		questions = append(questions, q)
	}
	return questions
}

// readKey reads the key of the client's requests, unless it depends on their route or method.
func (q *question) readKey(set *ruleset, one, other *http.Request) {
	if q.rule.together {
		q.class = keyfunc.Shared
		return
	}
	key, class, err := read(q.rule.Key, one)
	switch {
	case errors.Is(err, keyfunc.ErrAmbiguous):
		q.unknown = unknownAmbiguous
		return
	case errors.Is(err, keyfunc.ErrNoKey):
		q.unknown = unknownKey
		return
	case err != nil:
		set.warnKeyFailure(q.rule, err)
		q.unknown = unknownFailed
		return
	}
	if same, _, err := read(q.rule.Key, other); err != nil || same != key {
		q.unknown = unknownKey
		return
	}
	q.key, q.class = key, class
}

// elsewhere is a pattern that no route has: Allow and Deny decide about the client, not about the route of
// the handler.
const elsewhere = "/\x00"

// routedBy returns a copy of r with this pattern and method. It has no body: nobody would remove the files of a form
// that a key function parses.
func routedBy(r *http.Request, pattern, method string) *http.Request {
	routed := *r
	routed.Pattern, routed.Method, routed.Body = pattern, method, http.NoBody
	return &routed
}

// patternPath returns r's pattern without the method. Key functions read parameters by it.
func patternPath(r *http.Request) string {
	if r.Pattern == "" {
		return elsewhere
	}
	if _, path, found := strings.Cut(r.Pattern, " "); found {
		return strings.TrimLeft(path, " \t")
	}
	return r.Pattern
}

// left asks the store what is left of the rules, with charges of cost 0. Usage and Peek show its results.
func (l *RateLimit) left(ctx context.Context, set *ruleset, questions []question) error {
	var charges []limiter.Charge
	given := set.givenLimits(ctx)
	for i := range questions {
		q := &questions[i]
		if q.rule.deny {
			continue
		}
		own, no := set.limitsOf(q.rule, q.policy, q.key, q.class, given)
		if no.outcome == OutcomeRefused {
			q.zero = given.of(q.rule.Name).limit
		}
		if q.zero != nil || q.unknown != "" {
			continue
		}
		_, isDigest := keyfunc.DigestOf(q.key)
		switch {
		case no.status != 0:
			q.err = errors.New("middleware: the client's own limit is invalid, so its requests are answered 503")
		case isDigest && q.policy.overrides != nil:
			q.err = fmt.Errorf("middleware: a digest does not reveal the key, which may have a limit of its own: %w", bans.ErrDigest)
		}
		if q.err != nil {
			q.unknown = unknownLimit
			continue
		}
		q.policy = own
		q.policies = q.policy.all
		for _, p := range q.policies {
			charges = append(charges, limiter.Charge{Quota: p.quota, Key: q.key})
		}
	}
	for from := 0; from < len(charges); from += limiter.MaxCharges {
		to := min(from+limiter.MaxCharges, len(charges))
		if err := l.store.Decide(ctx, charges[from:to]); err != nil {
			return err
		}
	}
	for i := range questions {
		n := len(questions[i].policies)
		questions[i].charges, charges = charges[:n], charges[n:]
	}
	return nil
}

// describe returns the results of left for the answer, or false if the store knows no rule's numbers.
func (l *RateLimit) describe(ctx context.Context, set *ruleset, questions []question) (shown []usageRule, known bool) {
	if err := l.left(ctx, set, questions); err != nil {
		if !isGone(ctx) {
			set.warnStoreFailure(err)
		}
		return nil, false
	}
	shown = make([]usageRule, len(questions))
	asks := false
	for i := range questions {
		q := &questions[i]
		shown[i] = q.describe(set)
		asks = asks || q.policies != nil
		known = known || q.policies != nil && shown[i].Unknown != unknownOutage
	}
	return shown, known || !asks
}

// describe returns what is known about the rule.
func (q *question) describe(set *ruleset) usageRule {
	r := q.rule
	shown := usageRule{Rule: r.Name, Denied: r.deny || q.zero != nil, Unknown: q.unknown, Default: r.info.Default}
	if m, ok := r.Match.(*routeMatcher); ok {
		shown.Routes = m.texts
	} else {
		shown.Conditional = r.Match != nil
	}
	if r.info.Route != "" {
		shown.Conditional = r.Match != nil
		shown.Routes = []string{r.info.Route}
	}
	if shown.Denied {
		shown.Unknown = ""
		return shown
	}
	shown.Tier, shown.SoftAt = q.policy.info.Tier, r.SoftAt
	if q.unknown == "" {
		shown.Key = q.class.String()
	}
	for i := range q.charges {
		switch d := &q.charges[i].Decision; {
		case d.Degraded || !d.Counted():
			shown.Unknown = unknownOutage
		case d.Overflow && shown.Unknown == "":
			shown.Unknown = unknownRoom
		}
	}
	for i, p := range q.policy.all {
		var d *limiter.Decision // nil: unknown
		if q.policies != nil && shown.Unknown == "" {
			d = &q.charges[i].Decision
			shown.Near = shown.Near || (&applied{limit: p}).isNear(d)
		}
		switch {
		case p.slot:
			shown.Concurrency = &usageProgress{Max: p.quota.Capacity()}
			if d != nil {
				inProgress := d.Limit - d.Remaining
				shown.Concurrency.InProgress = &inProgress
			}
		case q.unknown != unknownLimit:
			shown.Limits = append(shown.Limits, describeLimit(p.quota, d))
		}
	}
	return shown
}

func describeLimit(q *limiter.Quota, d *limiter.Decision) usageLimit {
	limit, at := q.Limit(), int64(0)
	var left *usageLeft
	if d != nil {
		left = &usageLeft{
			Used: d.Limit - d.Remaining, Remaining: d.Remaining,
			Next: secondsUp(d.NextAfter), Reset: secondsUp(d.ResetAfter),
		}
		at = d.Receipt.At // by the clock of its windows
	}
	return usageLimit{
		Limit: limit.String(), Events: limit.Events, Per: limit.Per.Seconds(), Calendar: limit.Calendar(), Burst: limit.Burst,
		Algorithm: q.Algorithm().String(), Quota: q.Capacity(), Window: windowAt(q, at).Seconds(), usageLeft: left,
	}
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

// isLook sets the common header fields, and answers requests whose method is not GET or HEAD.
func isLook(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	writeProblem(w, r, http.StatusMethodNotAllowed, "The remaining quota can be read with GET or HEAD.")
	return false
}

// writeProblem answers with a problem object (RFC 9457).
func writeProblem(w http.ResponseWriter, r *http.Request, status int, detail string) {
	body, _ := json.Marshal(struct { // it cannot fail
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, detail})
	writeAnswer(w, r, status, "application/problem+json", body)
}

func writeAnswer(w http.ResponseWriter, r *http.Request, status int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	writeBody(w, r, status, body)
}
