package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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
		began := t.at
		got, wrong := t.step(s)
		r.Requests += s.Times
		fmt.Fprintf(&r.shown, "    %d:%d: at %v, %d × %v from %v: %s\n",
			s.at.Line, s.at.Column, began, s.Times, s.Request, s.IP, &got)
		if wrong = cmp.Or(got.unmet(s.Expect, string(s.Rule)), wrong); wrong != "" {
			r.fail(s.at, wrong)
		}
	}
}

// step sends the requests of a step. It returns what was decided, and what else is not as expected.
func (t *tested) step(s *testStep) (got tally, wrong string) {
	for n := range s.Times {
		if n > 0 {
			t.at += s.Every.Duration
		}
		d, h, err := t.send(s)
		got.add(d)
		switch {
		case wrong != "":
		case err != nil:
			wrong = err.Error()
		case s.Rule != "" && !hasMet(d, string(s.Rule)):
			wrong = fmt.Sprintf("expected a decision of %s, but %s", s.Rule, described(d))
		case n+1 == s.Times:
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
	left := h.Get(cmp.Or(t.rules.Config().Headers.Prefix, "X-RateLimit") + "-Remaining")
	seconds, _ := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
	after := time.Duration(seconds) * time.Second
	switch {
	case s.Status != 0 && s.Status != d.Refusal.Status:
		return fmt.Sprintf(differs, "status", s.Status, d.Refusal.Status)
	case s.RetryAfter != nil && s.RetryAfter.Duration != after:
		return fmt.Sprintf(differs, "retry_after", s.RetryAfter, after)
	case s.Remaining != nil && left != strconv.FormatInt(*s.Remaining, 10):
		return fmt.Sprintf(differs, "remaining", *s.Remaining, cmp.Or(left, "missing"))
	}
	return ""
}

// http returns the request as a server receives it.
func (s *testStep) http() *http.Request {
	ctx := context.Background()
	if s.User != "" {
		ctx = keyfunc.WithUser(ctx, string(s.User))
	}
	if s.Tier != "" {
		ctx = middleware.WithTier(ctx, string(s.Tier))
	}
	r, _ := http.NewRequestWithContext(ctx, s.Request.method, "/", strings.NewReader(s.Body)) // the method was checked
	r.URL, _ = url.ParseRequestURI(s.Request.target)                                          // so was the target
	r.RequestURI, r.Host, r.RemoteAddr = s.Request.target, s.Host, netip.AddrPortFrom(s.IP, 1024).String()
	for name, value := range s.Headers {
		r.Header.Set(name, string(value))
	}
	if n, err := strconv.ParseInt(r.Header.Get("Content-Length"), 10, 64); err == nil {
		r.ContentLength = n
	}
	return r
}

// A tally is how many requests had each outcome.
type tally struct {
	counts map[string]int64
	total  int64
	last   string // describes the last decision
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
		t.counts = map[string]int64{}
	}
	t.counts[outcomeOf(d)]++
	t.total++
	t.last = described(d)
}

// String describes the decision, or says how many there were with each outcome, and describes the last.
func (t *tally) String() string {
	if t.total == 1 {
		return t.last
	}
	return numbered(t.counts) + ", the last " + t.last
}

func numbered(counts map[string]int64) string {
	var texts []string
	for _, outcome := range slices.Sorted(maps.Keys(counts)) {
		texts = append(texts, fmt.Sprintf("%d %s", counts[outcome], outcome))
	}
	return strings.Join(texts, " and ")
}

// unmet returns what was expected and what there was in its place, or "". Rule is expected to refuse.
func (t *tally) unmet(e *expectation, rule string) string {
	want := e.of(t.total)
	for outcome, n := range want {
		if n != t.counts[outcome] {
			text := cmp.Or(e.All, numbered(want))
			if rule != "" && e.All != "allowed" {
				text += " by " + rule
			}
			return fmt.Sprintf("expected %s, but %s", text, t)
		}
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
