package rules

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/internal/yamlfile"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// A Request is an HTTP request that [Rules.Explain] explains.
type Request struct {
	Method string // empty: GET
	Path   string // a path, such as /users/42, or a route, such as /users/{id}
	Query  string // the URL's query without the question mark, such as tenant=acme
	Host   string
	IP     string // the client's address; empty: 192.0.2.1
	Tier   string // as middleware.WithTier sets it
	User   string // as keyfunc.WithUser sets it
	Header http.Header

	// ContentLength is the length of the body; -1: unknown. Zero: the length of Body.
	ContentLength int64
	Body          []byte

	// Answer, if it is set, is the answer that settles what rules reserve. Its body is read.
	Answer *http.Response

	// ServeMux says that the router is an http.ServeMux: the route "/static/" matches all paths below
	// it, and routes can have hosts.
	ServeMux bool
}

const defaultIP = "192.0.2.1"

// An Explanation lists, step by step, how the rules decide about a request.
type Explanation struct {
	Route string   `json:"route"` // the route that a router with the file's routes chooses
	Steps []Step   `json:"steps"`
	Notes []string `json:"notes,omitempty"` // about the request, such as a tier that the file does not have
}

// A Step is the effect of one section on a request. Steps are in the order of evaluation.
type Step struct {
	Section string    `json:"section"`             // ban, allow, global, tiers, endpoints, default, application, overload
	Line    int       `json:"line,omitempty"`      // in the file; 0: not in the file
	Rule    string    `json:"rule,omitempty"`      // the rule that applies
	Tier    string    `json:"tier,omitempty"`      // the tier that the limit is for
	Own     bool      `json:"own,omitempty"`       // the limit is from overrides
	Until   time.Time `json:"until,omitzero"`      // when the override ends; zero: never
	Because string    `json:"because,omitempty"`   // why there is an override
	Key     string    `json:"key,omitempty"`       // the key that is charged; empty: one counter for all clients
	Limit   string    `json:"limit,omitempty"`     // as text; several limits are separated by commas
	Cost    int64     `json:"cost,omitempty"`      // in units
	Settled *int64    `json:"settled,omitempty"`   // what Request.Answer makes of the cost
	Outage  string    `json:"on_outage,omitempty"` // the rule's policy while Redis does not answer
	Shadow  bool      `json:"shadow,omitempty"`    // the rule is in shadow: it refuses nothing
	Fields  []string  `json:"fields,omitempty"`    // the rule's other fields, such as counts: 401
	Says    string    `json:"says"`                // the step in words
}

// Explain returns which rules apply to a request, in what order, with which keys and limits. It looks
// up bans in the list of Options.Config. It returns an error if the Request is not valid.
func (r *Rules) Explain(q Request) (Explanation, error) {
	request, err := r.request(q)
	if err != nil {
		return Explanation{}, err
	}
	config := r.Config()
	limits, err := r.idle(config)
	if err != nil {
		return Explanation{}, err
	}
	e := Explanation{Route: request.Pattern}
	if q.Host == "" && slices.ContainsFunc(r.scopes, func(at *scope) bool { return at.pattern != nil && at.pattern.Host != "" }) {
		e.Notes = append(e.Notes, "some endpoints are for one host, but the request names no host: set Host (--host)")
	}
	byName := map[string]*scopedRule{}
	tiers := slices.Clone(r.tiers)
	if o := r.file.Overload; o != nil {
		tiers = append(tiers, o.Priority...)
	}
	for _, p := range r.rules() {
		byName[p.name] = p
		tiers = slices.AppendSeq(tiers, maps.Keys(p.Tiers))
		if p.Mode == "off" {
			e.Notes = append(e.Notes, fmt.Sprintf("%s is off (line %d)", yamlfile.Join(p.path), r.line(p.path...)))
		}
	}
	if slices.Sort(tiers); q.Tier != "" && !slices.Contains(tiers, q.Tier) {
		there := cmp.Or(strings.Join(slices.Compact(tiers), ", "), "none")
		e.Notes = append(e.Notes, fmt.Sprintf("the file has no tier %q: there are %s", q.Tier, there))
	}
	var answer []byte
	if q.Answer != nil {
		if answer, err = io.ReadAll(q.Answer.Body); err != nil {
			return Explanation{}, invalid.New("rules", "the answer cannot be read: %w", err)
		}
	}
	step := func(s Step) { e.Steps = append(e.Steps, s) }
	found := limits.Explain(request)

	if _, onList := r.exempt.find(request); q.IP == "" && (onList || found.Ban.Key == defaultIP) {
		e.Notes = append(e.Notes, "the request comes from "+defaultIP+", as none was named: set IP (--ip)")
	}
	banned := Step{Section: "ban", Line: r.line("ban"), Says: "not banned"}
	if found.Banned {
		banned.Says = fmt.Sprintf("banned: answered %d", cmp.Or(config.Bans.Status, http.StatusForbidden))
		banned.Key, banned.Rule, banned.Shadow = found.Ban.Key, found.Ban.Rule, config.Shadow
		until, because := found.Ban.Until, found.Ban.Reason
		if banned.Key == "" {
			end, _ := r.banned.find(request)
			until, because = end.Until.Time, end.Because
		} else if until.IsZero() {
			banned.Says += ", permanently"
		}
		banned.Says += operate.Ends(until, because)
	}
	step(banned)
	denying := cmp.Or(byName[found.Denied], &applications)
	switch allow := (Step{Section: "allow", Line: r.line("allow"), Says: "not on the list"}); {
	case found.Banned && !config.Shadow:
		return e, nil
	case found.Exempt:
		end, _ := r.exempt.find(request)
		allow.Says = "on the list: not limited" + operate.Ends(end.Until.Time, end.Because)
		step(allow)
		return e, nil
	default:
		step(allow)
	}
	switch {
	case found.Denied != "":
		says := fmt.Sprintf("every request is denied: answered %d", found.Status)
		if denying.rule != nil && denying.MCP != "" {
			says = fmt.Sprintf("no version of MCP from %s on: answered %d", denying.MCP, found.Status)
		}
		step(Step{Section: denying.section, Line: r.line(denying.path...), Rule: found.Denied, Says: says})
		return e, nil
	case found.Status != 0:
		step(Step{Section: "rules", Says: fmt.Sprintf("%q has no key for it: answered %d", found.Keyless, found.Status)})
		return e, nil
	case len(found.Rules) == 0:
		step(Step{Section: "rules", Says: "none applies: not limited"})
	}
	for _, c := range found.Rules {
		p := cmp.Or(byName[c.Rule.Name], &applications)
		s := Step{
			Section: p.section, Line: r.line(p.path...), Rule: c.Rule.Name, Tier: c.Rule.Tier, Key: c.Key,
			Own: c.Rule.Own, Until: c.Rule.Until, Because: c.Rule.Because,
			Limit: limitOf(c.Rule.Limit), Cost: c.Cost, Shadow: c.Rule.Mode == middleware.Shadow,
			Outage: c.Rule.OnOutage.String(), Fields: r.saidBy(p),
		}
		if settlement, ok := r.Settlement(s.Rule); ok && q.Answer != nil {
			units := settlement.of(q.Answer, answer, s.Cost)
			s.Settled = &units
		}
		s.Says = s.words()
		step(s)
	}
	if found.Overload != "" {
		step(Step{Section: "overload", Line: r.line("overload"), Says: found.Overload})
	}
	return e, nil
}

// applications stands for the rules of Options.Config.
var applications = scopedRule{scope: &scope{section: "application"}}

func (s *Step) words() string {
	whom := "for all clients together"
	if s.Key != "" {
		whom = fmt.Sprintf("for %q", s.Key)
	}
	if parts := operate.Parts(s.Key); parts != nil {
		whom = fmt.Sprintf("for %s together, the key %q", strings.Join(inQuotes(parts), " and "), s.Key)
	}
	text := s.Limit + " " + whom
	switch {
	case s.Own:
		text += ", a limit of its own" + operate.Ends(s.Until, s.Because)
	case s.Tier != "":
		text += ", the limit of tier " + s.Tier
	}
	if s.Cost != 1 {
		text += fmt.Sprintf(", at a cost of %d", s.Cost)
	}
	if s.Settled != nil {
		text += fmt.Sprintf(", settled with %d", *s.Settled)
	}
	if s.Shadow {
		text += ", in shadow: refuses nothing"
	}
	return strings.Join(append([]string{text}, s.Fields...), "; ")
}

// inQuotes quotes the parts of a joined key that are not empty.
func inQuotes(parts []string) (texts []string) {
	for _, part := range parts {
		if part != "" {
			texts = append(texts, strconv.Quote(part))
		}
	}
	return texts
}

// line is the line of a field in the file, or 0.
func (r *Rules) line(path ...string) int {
	if len(path) == 0 || !r.doc.Has(path...) {
		return 0
	}
	return r.doc.Key(path...).Line
}

// request is q as a server receives it behind a router that knows the file's routes.
func (r *Rules) request(q Request) (*http.Request, error) {
	var errs []error
	if !strings.HasPrefix(q.Path, "/") {
		errs = append(errs, invalid.New("rules", "path %q does not begin with /", q.Path))
	}
	if strings.ContainsAny(q.Path, "?#") {
		errs = append(errs, invalid.New("rules", "path %q has a ? or #: put the query into Query (--query)", q.Path))
	}
	ip, err := netip.ParseAddr(cmp.Or(q.IP, defaultIP))
	if err != nil {
		errs = append(errs, invalid.New("rules", "ip %q is not an address", q.IP))
	}
	method := cmp.Or(q.Method, http.MethodGet)
	if strings.ContainsAny(q.Host, "/ ") {
		errs = append(errs, invalid.New("rules", "host %q is not a host such as example.org", q.Host))
	}
	if method != strings.ToUpper(method) || strings.ContainsAny(method, " /") {
		errs = append(errs, invalid.New("rules", "method %q is not in capitals", q.Method))
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
	if len(q.Body) > 0 {
		request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(q.Body)), cmp.Or(q.ContentLength, int64(len(q.Body)))
	}
	for name, values := range q.Header {
		request.Header[http.CanonicalHeaderKey(name)] = values
	}
	router := route.NewRouter(r.Routes())
	if request.Pattern = router.Route(request.Method, request.URL.Path); q.ServeMux {
		request.Pattern = router.OfMux(request)
	}
	return request, nil
}

// Routes returns the routes of endpoints, allow.routes and overload.exempt, sorted.
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
