package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/simulate"
	"github.com/weirgo/weir/internal/nearest"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

// A testResult is the result of a test.
type testResult struct {
	Name     string        `json:"name"`
	Line     int           `json:"line"`
	Passed   bool          `json:"passed"`
	Requests int64         `json:"requests"`
	Failures []testFailure `json:"failures"`

	shown []string // what was decided on each step, and why
}

// A testFailure is an expectation that was not met.
type testFailure struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

func (r *testResult) fail(line, column int, message string) {
	r.Passed, r.Failures = false, append(r.Failures, testFailure{line, column, message})
}

// checkNames reports the rules and tiers that the tests name and the rules do not have.
func (f *testFile) checkNames(infos []middleware.RuleInfo, tiers []string) {
	var names []string
	for _, info := range infos {
		names, tiers = append(names, info.Name), append(tiers, info.Tier, info.ForTier)
	}
	unknown := func(line, column int, what, name string, known []string) {
		if name == "" || slices.Contains(known, name) {
			return
		}
		message := fmt.Sprintf("the rules have no %s %q", what, name)
		if near := nearest.Of(name, known); near != "" {
			message += fmt.Sprintf(": did you mean %q?", near)
		}
		f.problem(line, column, "%s", message)
	}
	for _, t := range f.Tests {
		unknown(t.line, t.column, "tier", t.of.Tier, tiers)
		for _, s := range t.of.Steps {
			unknown(s.line, s.column, "tier", s.of.Tier, tiers)
			unknown(s.line, s.column, "rule", s.of.Rule, names)
		}
	}
}

// A tested service has rules that no request has met.
type tested struct {
	*simulate.Simulation
	rules   *rules.Rules
	settled []string // the rules with cost.settle
	start   time.Time
	at      time.Duration // when the last step ended
}

func newTested(load func() (*rules.Rules, error), start time.Time) (*tested, error) {
	loaded, err := load()
	if err != nil {
		return nil, err
	}
	t := &tested{rules: loaded, start: start}
	for _, need := range loaded.Needs() {
		if need.Of == "settled" {
			t.settled = append(t.settled, need.Rule)
		}
	}
	t.Simulation, err = simulate.New(loaded.Config(), simulate.Options{HasTook: true, Answers: true})
	return t, err
}

// run runs a test with steps.
func (t *tested) run(test *placed[ruleTest]) testResult {
	defer t.Close()
	r := testResult{Name: test.of.Name, Line: test.line, Passed: true, Failures: []testFailure{}}
	for i := range test.of.Steps {
		at := &test.of.Steps[i]
		s := at.of
		if s.IP == "" {
			s.IP = t.address(&s, i, test.of.Steps)
		}
		if s.At != nil {
			t.at = s.At.Duration
		}
		why, began := t.explain(&s), t.at
		got, wrong := t.step(&s)
		r.Requests += s.times()
		r.shown = append(r.shown, fmt.Sprintf("%d:%d: at %v, %d × %s from %s: %s",
			at.line, at.column, began, s.times(), s.Request, s.IP, &got))
		for i, step := range why.Steps {
			if step.Rule != "" || i+1 == len(why.Steps) {
				r.shown = append(r.shown, strings.TrimSpace(fmt.Sprintf("    %s %s", step.Section, step.Rule))+": "+step.Says)
			}
		}
		if unmet := got.unmet(s.Expect, s.Rule); unmet != "" {
			wrong = []string{unmet}
		}
		for _, message := range wrong {
			r.fail(at.line, at.column, message)
		}
	}
	return r
}

// step sends the requests of a step. It returns what was decided, and what else is not as expected.
func (t *tested) step(s *testStep) (got tally, wrong []string) {
	for i := range s.times() {
		if i > 0 {
			t.at += s.Every.Duration
		}
		d, h, err := t.send(s, &got)
		switch {
		case len(wrong) > 0:
		case err != nil:
			wrong = append(wrong, err.Error())
		case s.Rule != "" && !hasMet(d, s.Rule):
			wrong = append(wrong, fmt.Sprintf("expected a decision of %s, but %s", s.Rule, described(d)))
		case i+1 == s.times():
			wrong = t.compare(s, d, h)
		}
	}
	return got, wrong
}

// send sends the request of a step, and adds the decision to a tally. The error says why its cost was not settled.
func (t *tested) send(s *testStep, to *tally) (d *simulate.Decision, h http.Header, err error) {
	service := func(w http.ResponseWriter, r *http.Request) {
		if s.Cost != nil {
			err = t.settle(r, *s.Cost)
		}
		w.WriteHeader(cmp.Or(s.Answer, http.StatusOK))
	}
	d, h = t.Serve(s.http(), t.start.Add(t.at).UnixMicro(), s.Takes.Duration, service)
	to.add(d)
	return d, h, err
}

func (t *tested) settle(r *http.Request, cost int64) error {
	err := errors.New("the step has a cost, and no rule with cost.settle applies")
	for _, rule := range t.settled {
		if settled := middleware.Settle(r.Context(), rule, cost); settled == nil {
			err = nil
		}
	}
	return err
}

// compare compares what the client of a step's last request sees.
func (t *tested) compare(s *testStep, d *simulate.Decision, h http.Header) (wrong []string) {
	differs := func(is bool, field string, want, got any) {
		if is {
			wrong = append(wrong, fmt.Sprintf("expected %s %v, but it is %v", field, want, got))
		}
	}
	differs(s.Status != 0 && s.Status != d.Refusal.Status, "status", s.Status, d.Refusal.Status)
	differs(s.RetryAfter != nil && s.RetryAfter.Duration != retryAfter(h), "retry_after", s.RetryAfter, retryAfter(h))
	left := cmp.Or(t.left(h), "missing")
	if s.Remaining != nil {
		differs(left != strconv.FormatInt(*s.Remaining, 10), "remaining", *s.Remaining, left)
	}
	return wrong
}

// retryAfter returns the Retry-After of an answer; 0: it has none.
func retryAfter(h http.Header) time.Duration {
	seconds, _ := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
	return time.Duration(seconds) * time.Second
}

// left returns the X-RateLimit-Remaining of an answer.
func (t *tested) left(h http.Header) string {
	return h.Get(cmp.Or(t.rules.Config().Headers.Prefix, "X-RateLimit") + "-Remaining")
}

// http returns the request as a server receives it.
func (s *testStep) http() *http.Request {
	method, target, _ := strings.Cut(s.Request, " ")
	at, _ := url.ParseRequestURI(target) // was checked
	r := &http.Request{
		Method: method, URL: at, RequestURI: target, Host: s.Host, RemoteAddr: s.peer(), Header: http.Header{},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(strings.NewReader(s.Body)), ContentLength: int64(len(s.Body)),
	}
	for name, value := range s.Headers {
		r.Header.Set(name, value)
	}
	if n, err := strconv.ParseInt(r.Header.Get("Content-Length"), 10, 64); err == nil {
		r.ContentLength = n
	}
	ctx := r.Context()
	if s.User != "" {
		ctx = keyfunc.WithUser(ctx, s.User)
	}
	if s.Tier != "" {
		ctx = middleware.WithTier(ctx, s.Tier)
	}
	return r.WithContext(ctx)
}

func (s *testStep) peer() string { return netip.AddrPortFrom(netip.MustParseAddr(s.IP), 1024).String() }

// explain returns what explain says about a step. A request that the gateway cannot read has no steps.
func (t *tested) explain(s *testStep) rules.Explanation {
	r := s.http()
	e, _ := t.rules.Explain(rules.Request{
		Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Host: s.Host, IP: s.IP, Tier: s.Tier, User: s.User,
		Header: r.Header, ContentLength: r.ContentLength,
	})
	return e
}

// address returns an address for the i-th step, which no other step has. If the rules list it, another one is taken.
func (t *tested) address(s *testStep, i int, all []placed[testStep]) (ip string) {
	for _, network := range []byte{198, 100, 44} {
		given := *s
		given.IP = netip.AddrFrom4([4]byte{network, byte(18 + i>>8), byte(i), 1}).String()
		ip = cmp.Or(ip, given.IP)
		steps := t.explain(&given).Steps
		isListed := len(steps) <= 2 || t.rules.Proxies().Has(given.peer()) || // banned, exempt, a proxy, or in overrides
			slices.ContainsFunc(steps, func(step rules.Step) bool { return step.Own })
		isTaken := slices.ContainsFunc(all, func(other placed[testStep]) bool { return other.of.IP == given.IP })
		if !isListed && !isTaken {
			return given.IP
		}
	}
	return ip
}

// A tally is how many requests had each outcome.
type tally struct {
	counts map[string]int64
	first  map[string]string // describes the first
}

// unread is the outcome of a request that the gateway cannot read, which nobody can expect.
const unread = "answered 400 by the gateway"

func outcomeOf(d *simulate.Decision) string {
	switch {
	case d.Passed():
		return "allowed"
	case d.Outcome == middleware.OutcomeBanned:
		return "banned"
	case d.Outcome == middleware.OutcomeUndecided:
		return unread
	case len(d.Rules) == 1 && d.Rules[0].Rule.Mode == middleware.Deny:
		return "denied"
	}
	return "refused"
}

func (t *tally) add(d *simulate.Decision) {
	if t.counts == nil {
		t.counts, t.first = map[string]int64{}, map[string]string{}
	}
	outcome := outcomeOf(d)
	if t.counts[outcome]++; t.counts[outcome] == 1 {
		t.first[outcome] = described(d)
	}
}

// String describes the decision, or how many there were with each outcome.
func (t *tally) String() string {
	var texts []string
	for _, outcome := range append(slices.Clone(outcomes), unread) {
		switch n := t.counts[outcome]; {
		case n == 1 && len(t.counts) == 1:
			return t.first[outcome]
		case n > 0:
			texts = append(texts, fmt.Sprintf("%d %s", n, t.first[outcome]))
		}
	}
	return strings.Join(texts, " and ")
}

// unmet returns what was expected and what there was in its place, or "". Rule is expected to refuse.
func (t *tally) unmet(e *expectation, rule string) string {
	total := int64(0)
	for _, n := range t.counts {
		total += n
	}
	var texts []string
	differs, want := false, e.of(total)
	for _, outcome := range outcomes {
		n, ok := want[outcome]
		if !ok {
			continue
		}
		differs = differs || n != t.counts[outcome]
		if rule != "" && outcome != "allowed" {
			outcome += " by " + rule
		}
		if total > 1 {
			outcome = fmt.Sprintf("%d %s", n, outcome)
		}
		texts = append(texts, outcome)
	}
	if !differs {
		return ""
	}
	return fmt.Sprintf("expected %s, but %s", strings.Join(texts, " and "), t)
}

// hasMet reports whether a rule led to a decision: it refused the request, or is among those that admitted it.
func hasMet(d *simulate.Decision, rule string) bool {
	return !d.Passed() && d.Refusal.Rule == rule || slices.ContainsFunc(d.Rules, func(r middleware.RuleResult) bool {
		return r.Rule.Name == rule && (d.Passed() || !r.Allowed && r.Rule.Mode != middleware.Shadow)
	})
}

// described returns a decision in words: "refused by login (429, retry after 1m0s)", "allowed (login: 1 of 5 left)".
func described(d *simulate.Decision) string {
	text := outcomeOf(d)
	var parts []string
	switch {
	case text == unread:
		return text + ": it cannot tell which path or host is requested"
	case d.Outcome == middleware.OutcomeExempt:
		return text + " (never limited)"
	case d.Passed() && len(d.Rules) == 0:
		return text + " (no rule applies)"
	case d.Passed():
		for i := range d.Rules {
			r := &d.Rules[i]
			parts = append(parts, fmt.Sprintf("%s: %d of %d left", r.Rule.Name, r.Remaining, r.Limit))
		}
		return text + " (" + strings.Join(parts, ", ") + ")"
	case d.Refusal.Rule != "":
		text += " by " + d.Refusal.Rule
	}
	parts = append(parts, strconv.Itoa(d.Refusal.Status))
	if after := d.Refusal.RetryAfter; after > 0 && after != limiter.Never {
		parts = append(parts, "retry after "+(after+time.Second-1).Truncate(time.Second).String())
	}
	return text + " (" + strings.Join(parts, ", ") + ")"
}
