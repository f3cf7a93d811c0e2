package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/simulate"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

// A tested service has rules that no request has met.
type tested struct {
	*simulate.Simulation
	rules *rules.Rules
	start time.Time
	at    time.Duration // when the last step ended
}

// service returns a service with the rules in a file.
func (f *testFlags) service(file string, start time.Time) (*tested, error) {
	o := (&logFlags{keys: *f.keys}).options()
	o.Tiers = list(*f.tiers)
	loaded, err := rules.Load(file, o)
	if err != nil {
		return nil, err
	}
	simulation, err := simulate.New(loaded.Config(), simulate.Options{Answers: true})
	return &tested{Simulation: simulation, rules: loaded, start: start}, err
}

// run sends the requests of a test with steps.
func (t *tested) run(test *ruleTest, r *testResult) {
	defer t.Close()
	for i := range test.Steps {
		s := &test.Steps[i]
		if s.At != nil {
			t.at = s.At.Duration
		}
		s.IP = cmp.Or(s.IP, t.address(*s, i, test.Steps))
		why, began := t.explain(s), t.at
		got, wrong := t.step(s)
		r.Requests += s.Times
		fmt.Fprintf(&r.shown, "    %d:%d: at %v, %d × %s from %s: %s\n", s.line, s.column, began, s.Times, s.Request, s.IP, &got)
		writeSteps(&r.shown, why, "        ")
		if wrong = cmp.Or(got.unmet(s.Expect, s.Rule), wrong); wrong != "" {
			r.fail(s.place, wrong)
		}
	}
}

// explain returns what explain says about a step, at its time. A request that the gateway cannot read has no steps.
func (t *tested) explain(s *testStep) []rules.Step {
	t.Advance(t.start.Add(t.at).UnixMicro())
	r := s.http()
	e, _ := t.rules.Explain(rules.Request{
		Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Host: s.Host, IP: s.IP, Tier: s.Tier, User: s.User,
		Header: r.Header, ContentLength: r.ContentLength,
	})
	return e.Steps
}

// address returns an address for the i-th step, which no other step has and, if one of three will do, no list.
func (t *tested) address(s testStep, i int, all []testStep) string {
	for _, network := range []byte{198, 100, 44} {
		s.IP = netip.AddrFrom4([4]byte{network, byte(18 + i>>8), byte(i), 1}).String()
		steps := t.explain(&s)
		isListed := len(steps) <= 2 || t.rules.Proxies().Has(s.peer()) || // banned, exempt, a proxy, or in overrides
			slices.ContainsFunc(steps, func(step rules.Step) bool { return step.Own })
		if !isListed && !slices.ContainsFunc(all, func(other testStep) bool { return other.IP == s.IP }) {
			break
		}
	}
	return s.IP
}

// step sends the requests of a step. It returns what was decided, and what else is not as expected.
func (t *tested) step(s *testStep) (got tally, wrong string) {
	for i := range s.Times {
		if i > 0 {
			t.at += s.Every.Duration
		}
		d, h, err := t.send(s)
		got.add(d)
		switch {
		case wrong != "":
		case err != nil:
			wrong = err.Error()
		case s.Rule != "" && !hasMet(d, s.Rule):
			wrong = fmt.Sprintf("expected a decision of %s, but %s", s.Rule, described(d))
		case i+1 == s.Times:
			wrong = t.compare(s, d, h)
		}
	}
	return got, wrong
}

// send sends the request of a step. The error says why its cost was not settled.
func (t *tested) send(s *testStep) (d *simulate.Decision, h http.Header, err error) {
	service := func(w http.ResponseWriter, r *http.Request) {
		if s.Cost != nil {
			err = t.settle(r, *s.Cost)
		}
		w.WriteHeader(cmp.Or(s.Answer, http.StatusOK))
	}
	d, h = t.Serve(s.http(), t.start.Add(t.at).UnixMicro(), s.Takes.Duration, service)
	return d, h, err
}

// settle settles the cost under each rule with cost.settle that applies.
func (t *tested) settle(r *http.Request, cost int64) error {
	err := errors.New("the step has a cost, and no rule with cost.settle applies")
	for _, need := range t.rules.Needs() {
		if need.Of == "settled" && middleware.Settle(r.Context(), need.Rule, cost) == nil {
			err = nil
		}
	}
	return err
}

// compare returns the first difference in what the client of a step's last request sees, or "".
func (t *tested) compare(s *testStep, d *simulate.Decision, h http.Header) string {
	const differs = "expected %s %v, but it is %v"
	left, after := t.left(h), retryAfter(h)
	switch {
	case s.Status != 0 && s.Status != d.Refusal.Status:
		return fmt.Sprintf(differs, "status", s.Status, d.Refusal.Status)
	case s.RetryAfter != nil && *s.RetryAfter != after:
		return fmt.Sprintf(differs, "retry_after", s.RetryAfter, after)
	case s.Remaining != nil && left != strconv.FormatInt(*s.Remaining, 10):
		return fmt.Sprintf(differs, "remaining", *s.Remaining, cmp.Or(left, "missing"))
	}
	return ""
}

// retryAfter returns the Retry-After of an answer; 0: it has none.
func retryAfter(h http.Header) timespan {
	seconds, _ := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
	return timespan{time.Duration(seconds) * time.Second}
}

// left returns the X-RateLimit-Remaining of an answer.
func (t *tested) left(h http.Header) string {
	return h.Get(cmp.Or(t.rules.Config().Headers.Prefix, "X-RateLimit") + "-Remaining")
}

// http returns the request as a server receives it.
func (s *testStep) http() *http.Request {
	ctx := context.Background()
	if s.User != "" {
		ctx = keyfunc.WithUser(ctx, s.User)
	}
	if s.Tier != "" {
		ctx = middleware.WithTier(ctx, s.Tier)
	}
	method, target, _ := strings.Cut(s.Request, " ")
	r, _ := http.NewRequestWithContext(ctx, method, "/", strings.NewReader(s.Body)) // the method was checked
	r.URL, _ = url.ParseRequestURI(target)                                          // so was the target
	r.RequestURI, r.Host, r.RemoteAddr = target, s.Host, s.peer()
	for name, value := range s.Headers {
		r.Header.Set(name, value)
	}
	if n, err := strconv.ParseInt(r.Header.Get("Content-Length"), 10, 64); err == nil {
		r.ContentLength = n
	}
	return r
}

func (s *testStep) peer() string { return net.JoinHostPort(s.IP, "1024") }

// A tally is how many requests had each outcome.
type tally struct {
	total  int64
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
	t.total++
	outcome := outcomeOf(d)
	if t.counts[outcome]++; t.counts[outcome] == 1 {
		t.first[outcome] = described(d)
	}
}

// String describes the decision, or how many there were with each outcome.
func (t *tally) String() string {
	return t.text(t.counts, func(outcome string) string { return t.first[outcome] })
}

// text returns the number of each outcome. If there was one decision, it returns the outcome alone.
func (t *tally) text(counts map[string]int64, named func(outcome string) string) string {
	var texts []string
	for _, outcome := range slices.Sorted(maps.Keys(counts)) {
		text := named(outcome)
		if t.total > 1 {
			text = fmt.Sprintf("%d %s", counts[outcome], text)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " and ")
}

// unmet returns what was expected and what there was in its place, or "". Rule is expected to refuse.
func (t *tally) unmet(e *expectation, rule string) string {
	want := e.of(t.total)
	for outcome, n := range want {
		if n == t.counts[outcome] {
			continue
		}
		return fmt.Sprintf("expected %s, but %s", t.text(want, func(outcome string) string {
			if rule != "" && outcome != "allowed" {
				return outcome + " by " + rule
			}
			return outcome
		}), t)
	}
	return ""
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
	default:
		if d.Refusal.Rule != "" {
			text += " by " + d.Refusal.Rule
		}
		parts = append(parts, strconv.Itoa(d.Refusal.Status))
		if after := d.Refusal.RetryAfter; after > 0 && after != limiter.Never {
			parts = append(parts, "retry after "+(after+time.Second-1).Truncate(time.Second).String())
		}
	}
	return text + " (" + strings.Join(parts, ", ") + ")"
}
