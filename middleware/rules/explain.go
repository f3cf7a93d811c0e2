package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/middleware/rules/internal/document"
)

// A Request is one to explain.
type Request struct {
	Method string // empty: GET
	Path   string // a path, such as /users/42, or a route, such as /users/{id}
	Query  string // as it stands behind the ? of a URL: tenant=acme
	Host   string // that it asks for
	IP     string // the client's address; empty: 192.0.2.1
	Tier   string // what middleware.WithTier says
	User   string // what keyfunc.WithUser says
	Header http.Header

	// ContentLength is the length of the body; -1: unknown.
	ContentLength int64

	// ServeMux says that the router is an http.ServeMux, where "/static/" is for all that is
	// below it, and where routes can have hosts.
	ServeMux bool
}

// An Explanation says what becomes of a request, step by step.
type Explanation struct {
	Route string   `json:"route"` // that a router with the file's routes chooses for it
	Steps []Step   `json:"steps"`
	Notes []string `json:"notes,omitempty"` // on what was asked
}

// A Step is what one section of the file makes of a request, in the order of evaluation.
type Step struct {
	Section string  `json:"section"`                    // ban, allow, global, tiers, endpoints, default, application, overload
	Line    int     `json:"line,omitempty"`             // where that is; 0: not in the file
	Rule    string  `json:"rule,omitempty"`             // that applies
	Tier    string  `json:"tier,omitempty"`             // that has this limit
	Own     bool    `json:"own,omitempty"`              // the key has it: see overrides
	Key     string  `json:"key,omitempty"`              // that is counted under; empty: all clients together
	Limit   string  `json:"limit,omitempty"`            // as text; several with commas between
	AtOnce  int64   `json:"at_once,omitempty"`          // how many requests may be in progress at once
	Queue   int     `json:"queue,omitempty"`            // how many more of the key wait for that
	MaxWait float64 `json:"max_wait_seconds,omitempty"` // and for how long at most, in seconds
	Cost    int64   `json:"cost,omitempty"`             // in units
	Settles bool    `json:"settles,omitempty"`          // the cost is reserved, and the application says what it was
	Counts  string  `json:"counts,omitempty"`           // which answers use up the limit; empty: all
	When    string  `json:"when,omitempty"`             // "after": charged when the answer is known
	Outage  string  `json:"on_outage,omitempty"`        // what happens while Redis gives no answer
	Shadow  bool    `json:"shadow,omitempty"`           // it refuses nothing
	SoftAt  int     `json:"soft_at,omitempty"`          // percent of the limit at which a warning begins

	Escalate string `json:"escalate,omitempty"` // what bans the key, in words
	Says     string `json:"says"`               // all that, in words
}

// Explain tells which rules apply to a request, in what order, with which keys and limits.
// Bans by escalation are those of the list in Options.Config. An error is about the
// request.
func (r *Rules) Explain(q Request) (Explanation, error) {
	request, err := r.request(q)
	if err != nil {
		return Explanation{}, err
	}
	config := r.Config()
	limits, err := idle(config)
	if err != nil {
		return Explanation{}, err
	}
	explanation := Explanation{Route: request.Pattern, Notes: r.doubts(limits, request, q)}
	for _, at := range r.off {
		explanation.Notes = append(explanation.Notes, fmt.Sprintf("%s is off (line %d)", document.JoinPath(at), r.line(at...)))
	}
	if tiers := r.tierNames(); q.Tier != "" && !slices.Contains(tiers, q.Tier) {
		there := cmp.Or(strings.Join(tiers, ", "), "none")
		explanation.Notes = append(explanation.Notes, fmt.Sprintf("the file has no tier %q: there are %s", q.Tier, there))
	}
	step := func(s Step) { explanation.Steps = append(explanation.Steps, s) }
	found := limits.Explain(request)

	banned := Step{Section: "ban", Line: r.line("ban"), Says: "not banned"}
	if found.Banned {
		banned.Says = fmt.Sprintf("banned: answered %d", cmp.Or(config.BanStatus, http.StatusForbidden))
		if key := found.Ban.Key; key != "" {
			banned.Key, banned.Rule = key, found.Ban.Rule
			if found.Ban.Until.IsZero() {
				banned.Says += ", permanently"
			} else {
				banned.Says += " until " + found.Ban.Until.Format(time.RFC3339)
			}
		}
		banned.Shadow = config.Shadow
	}
	step(banned)
	if found.Banned && !config.Shadow {
		return explanation, nil
	}
	if found.Preflight {
		step(Step{Section: "allow", Line: r.line("allow", "preflights"), Says: "a CORS preflight: not limited"})
		return explanation, nil
	}
	allow := Step{Section: "allow", Line: r.line("allow"), Says: "not on the list"}
	if found.Exempt {
		allow.Says = "on the list: not limited"
	}
	step(allow)
	if found.Exempt {
		return explanation, nil
	}
	if found.Denied != "" {
		path := r.names[found.Denied]
		s := Step{Section: "application", Line: r.line(path...), Rule: found.Denied, Says: fmt.Sprintf("every request is denied: answered %d", found.Status)}
		if len(path) > 0 {
			s.Section = path[0]
		}
		step(s)
		return explanation, nil
	}
	if found.Status != 0 {
		step(Step{Section: "rules", Says: fmt.Sprintf("%q has no key for it: answered %d", found.Keyless, found.Status)})
		return explanation, nil
	}
	for _, c := range found.Rules {
		rule := c.Rule
		path := r.names[rule.Name]
		s := Step{
			Section: "application", Line: r.line(path...), Rule: rule.Name, Tier: rule.Tier, Key: c.Key,
			Limit: rule.LimitText(), Cost: c.Cost, Shadow: rule.Shadow, Outage: rule.OnOutage.String(),
			Settles: rule.Settles, Own: rule.Own,
		}
		if rule.Counts != (middleware.Counts{}) {
			s.Counts = rule.Counts.String()
		}
		if of := rule.Concurrency; of.Max > 0 {
			s.AtOnce, s.Queue = of.Max, of.Queue
			if of.Queue > 0 {
				s.MaxWait = of.MaxWait.Seconds()
			}
		}
		if rule.ChargeAfter {
			s.When = "after"
		}
		if len(path) > 0 {
			s.Section = path[0]
		}
		if given := ruleNamed(&config, rule.Name); given != nil {
			s.SoftAt, s.Escalate = given.SoftAt, escalationWords(given)
		}
		s.Says = s.words()
		step(s)
	}
	if len(found.Rules) == 0 {
		step(Step{Section: "rules", Says: "none applies: not limited"})
	}
	if found.Overload != "" {
		step(Step{Section: "overload", Line: r.line("overload"), Says: found.Overload})
	}
	return explanation, nil
}

func (s *Step) words() string {
	whom := "for all clients together"
	if s.Key != "" {
		whom = fmt.Sprintf("for %q", s.Key)
	}
	if parts := operate.Parts(s.Key); parts != nil {
		whom = fmt.Sprintf("for %s together, the key %q", strings.Join(inQuotes(parts), " and "), s.Key)
	}
	text := fmt.Sprintf("%s %s", s.Limit, whom)
	if s.Own {
		text += ", a limit of its own"
	} else if s.Tier != "" {
		text += ", the limit of tier " + s.Tier
	}
	if s.Queue > 0 {
		text += fmt.Sprintf(", and %d more wait for up to %v", s.Queue, time.Duration(s.MaxWait*float64(time.Second)))
	}
	switch {
	case s.Settles && s.When != "":
		text += ", charged what the application says when it is answered"
	case s.Settles:
		text += fmt.Sprintf(", %d reserved until the application says what it cost", s.Cost)
	case s.Cost != 1:
		text += fmt.Sprintf(", at a cost of %d", s.Cost)
	}
	if s.Counts != "" {
		text += ", if the answer is " + s.Counts
		if s.When == "" {
			text += " (else it gets back what it took)"
		} else {
			text += ", which is when it is charged"
		}
	}
	if s.SoftAt > 0 {
		text += fmt.Sprintf(", with a warning from %d%% on", s.SoftAt)
	}
	if s.Escalate != "" {
		text += ", " + s.Escalate
	}
	if s.Outage == limiter.FailOpen.String() {
		text += ", not at all while the store does not answer"
	}
	if s.Outage == limiter.FailClosed.String() && !s.Shadow {
		text += ", and 503 while the store does not answer"
	}
	if s.Shadow {
		text += ", in shadow: refuses nothing"
	}
	return text
}

// inQuotes are the keys that there are of parts.
func inQuotes(parts []string) (texts []string) {
	for _, part := range parts {
		if part != "" {
			texts = append(texts, strconv.Quote(part))
		}
	}
	return texts
}

// escalationWords say what bans a key.
func escalationWords(r *middleware.Rule) string {
	e := r.Escalate
	if e == (bans.Escalation{}) || r.Shadow {
		return ""
	}
	of := "refusals"
	if e.Outcomes {
		of = "answers that count"
	}
	return fmt.Sprintf("banned for %v after %d %s within %v", e.Ban, e.After, of, e.Within)
}

// tierNames are the tiers that the application or the file has, sorted.
func (r *Rules) tierNames() []string {
	names := slices.Clone(r.tiers)
	for _, p := range r.file.placed(r.doc) {
		names = slices.AppendSeq(names, maps.Keys(p.Tiers))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ruleNamed is a rule of a Config, or nil.
func ruleNamed(c *middleware.Config, name string) *middleware.Rule {
	all := slices.Clone(c.Rules)
	all = slices.AppendSeq(all, maps.Values(c.ByTier))
	all = slices.AppendSeq(all, maps.Values(c.ByRoute))
	if c.Default != nil {
		all = append(all, *c.Default)
	}
	for _, r := range all {
		for _, one := range allOf(r) {
			if one.Name == name {
				return &one
			}
		}
	}
	return nil
}

// line is where that is in the file, or 0.
func (r *Rules) line(path ...string) int {
	if len(path) == 0 || !r.doc.Has(path...) {
		return 0
	}
	return r.doc.Key(path...).Line
}

// request is q as a server would have it behind a router that knows the file's routes.
func (r *Rules) request(q Request) (*http.Request, error) {
	var errs []error
	if !strings.HasPrefix(q.Path, "/") {
		errs = append(errs, fmt.Errorf("rules: path %q does not begin with /", q.Path))
	}
	if strings.ContainsAny(q.Path, "?#") {
		errs = append(errs, fmt.Errorf("rules: path %q has a ? or #: what is behind it is the query, which has a field (--query) of its own", q.Path))
	}
	ip, err := netip.ParseAddr(cmp.Or(q.IP, "192.0.2.1"))
	if err != nil {
		errs = append(errs, fmt.Errorf("rules: ip %q is not an address", q.IP))
	}
	method := cmp.Or(q.Method, http.MethodGet)
	if strings.ContainsAny(q.Host, "/ ") {
		errs = append(errs, fmt.Errorf("rules: host %q is more than a host such as example.org", q.Host))
	}
	if method != strings.ToUpper(method) || strings.ContainsAny(method, " /") {
		errs = append(errs, fmt.Errorf("rules: method %q is not one in capitals", q.Method))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	ctx := context.Background()
	if q.Tier != "" {
		ctx = middleware.WithTier(ctx, q.Tier)
	}
	if q.User != "" {
		ctx = keyfunc.WithUser(ctx, q.User)
	}
	request := (&http.Request{
		Method: method, URL: &url.URL{Path: q.Path, RawQuery: strings.TrimPrefix(q.Query, "?")}, Host: q.Host, Header: http.Header{},
		RemoteAddr: netip.AddrPortFrom(ip, 1024).String(), ContentLength: q.ContentLength,
	}).WithContext(ctx)
	for name, values := range q.Header {
		request.Header[http.CanonicalHeaderKey(name)] = values
	}
	if q.ServeMux {
		request.Pattern = r.router().OfMux(request)
	} else {
		request.Pattern = r.router().Route(request.Method, request.URL.Path)
	}
	return request, nil
}

// doubts are what an explanation leaves open.
func (r *Rules) doubts(limits *middleware.RateLimit, request *http.Request, q Request) (notes []string) {
	if q.Host == "" && slices.ContainsFunc(r.Routes(), func(text string) bool { return hostOf(text) != "" }) {
		notes = append(notes, "the file has endpoints for hosts, and the request names none: say which with Host (--host)")
	}
	if q.ServeMux {
		return notes
	}
	onMux := request.WithContext(request.Context())
	onMux.Pattern = r.router().OfMux(request)
	if here, there := limits.Explain(request), limits.Explain(onMux); !reflect.DeepEqual(rulesOf(here), rulesOf(there)) {
		notes = append(notes, fmt.Sprintf("an http.ServeMux routes it as %q, to other rules: explain it with ServeMux (--servemux)", onMux.Pattern))
	}
	return notes
}

// rulesOf are the rules that are asked, or why none is.
func rulesOf(e middleware.Explanation) (rules []string) {
	if e.Exempt {
		return []string{"exempt"}
	}
	for _, c := range e.Rules {
		rules = append(rules, c.Rule.Name)
	}
	return append(rules, e.Keyless, e.Denied)
}

// router is one with the file's routes.
func (r *Rules) router() *route.Router { return route.NewRouter(r.Routes()) }

// Routes are those that the file names, in endpoints, allow.routes and overload.exempt, sorted.
func (r *Rules) Routes() []string {
	texts := slices.Collect(maps.Keys(r.file.Endpoints))
	if r.file.Allow != nil {
		texts = append(texts, r.file.Allow.Routes...)
	}
	if r.file.Overload != nil {
		texts = append(texts, r.file.Overload.Exempt...)
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

func hostOf(text string) string {
	p, _ := route.ParseRule(text)
	return p.Host
}
