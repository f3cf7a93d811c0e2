package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

// init writes first tests of a rules file: for each limit, the requests that fit, and one more. It finds them by
// sending requests. A limit that one client does not reach is a comment.
func (f *testFlags) init(files []string) error {
	if len(files) != 1 {
		return usageError{errors.New("--init is for one file of rules")}
	}
	service, err := f.service(files[0], firstMonday)
	if err != nil {
		return err
	}
	fmt.Fprintf(f.out, "rules: %s\ntests:\n", inYAML(filepath.Base(files[0])))
	for _, info := range service.Rules() {
		limits, atOnce, _ := limiter.Split(info.Limit)
		goals := make([]goal, 0, len(limits)+1)
		for _, l := range limits {
			goals = append(goals, goal{info: info, limit: l, name: l.String()})
		}
		if atOnce.Max > 0 {
			goals = append(goals, goal{info: info, slots: atOnce.Max, name: atOnce.String()})
		}
		for _, g := range goals {
			name := strings.TrimSpace(info.Name+" "+info.Tier) + ": " + g.name
			steps, why := f.firstTest(files[0], &g, service.rules.Needs())
			if steps == nil {
				fmt.Fprintf(f.out, "  # %s is not tested: %s\n", name, why)
				continue
			}
			fmt.Fprintf(f.out, "  - name: %s\n    steps:\n", strconv.Quote(name))
			for _, s := range steps {
				fmt.Fprintf(f.out, "      - %s\n", inYAML(s))
			}
		}
	}
	return nil
}

// inYAML returns a value as YAML in one line.
func inYAML(v any) string {
	var n yaml.Node
	err := n.Encode(v)
	n.Style |= yaml.FlowStyle
	text, err2 := yaml.Marshal(&n)
	if err = cmp.Or(err, err2); err != nil {
		panic(err) // the types are this command's
	}
	return strings.TrimSpace(string(text))
}

// A goal is a limit that a first test reaches, or the slots of a rule.
type goal struct {
	info  middleware.RuleInfo
	limit limiter.Limit
	slots int64
	name  string
}

// refuses reports whether it refused a request by the limit.
func (g *goal) refuses(r middleware.RuleResult) bool {
	isIt := r.Rule.Name == g.info.Name && r.Rule.Tier == g.info.Tier && r.Rule.Mode != middleware.Shadow
	return isIt && !r.Allowed && r.Binding() == g.limit && r.IsConcurrency() == (g.slots > 0)
}

// mostInFirstTest is the most requests that a first test sends.
const mostInFirstTest = 100_000

// firstTest returns steps that reach a limit, or why there are none.
func (f *testFlags) firstTest(file string, g *goal, needs []rules.Need) (steps []testStep, why string) {
	switch most := max(g.limit.Events, g.limit.Burst, g.slots); {
	case g.info.Mode == middleware.Shadow:
		return nil, "it is in shadow"
	case most > mostInFirstTest:
		return nil, fmt.Sprintf("it takes more than %d requests", mostInFirstTest)
	}
	statuses := []int{0}
	if slices.Contains(needs, rules.Need{Rule: g.info.Name, Of: "status"}) {
		statuses = []int{http.StatusOK, http.StatusUnauthorized, http.StatusInternalServerError}
	}
	pauses := []time.Duration{0}
	if g.limit.Events > 0 { // a pause keeps shorter limits from refusing
		pace := g.limit.Per / time.Duration(g.limit.Events)
		pauses = append(pauses, pace/2, pace*9/10)
	}
	for _, status := range statuses {
		for _, pause := range pauses {
			service, err := f.service(file, firstMonday)
			if err != nil {
				return nil, err.Error()
			}
			s := g.request(needs)
			s.IP, s.Answer, s.Every.Duration = service.address(s, 0, nil), status, pause.Truncate(time.Microsecond)
			steps, reason := service.reach(g, s)
			if service.Close(); steps != nil {
				return steps, ""
			}
			why = cmp.Or(reason, why)
		}
	}
	return nil, cmp.Or(why, "it refuses no request")
}

var parameter = regexp.MustCompile(`\{[^/]*\}|[:*][^/]*`)

// request returns a request that meets the rule.
func (g *goal) request(needs []rules.Need) testStep {
	p, _ := route.ParseRule(cmp.Or(g.info.Route, "/"))
	path, query := parameter.ReplaceAllString(p.Path, "1"), ""
	if p.Below {
		path += "/1"
	}
	s := testStep{Host: strings.Replace(p.Host, "*", "www", 1), Tier: cmp.Or(g.info.Tier, g.info.ForTier)}
	s.Headers = map[string]string{}
	for _, need := range needs {
		kind, name, _ := strings.Cut(need.Of, ":")
		switch {
		case need.Rule != g.info.Name:
		case kind == "user":
			s.User = "somebody"
		case kind == "host":
			s.Host = cmp.Or(s.Host, "example.org")
		case name == "Authorization":
			s.Headers[name] = "Bearer 1"
		case kind == "header":
			s.Headers[name] = "1"
		case kind == "cookie":
			s.Headers["Cookie"] = name + "=1"
		case kind == "key":
			s.Headers[need.Of] = "1"
		case kind == "query":
			query += "&" + name + "=1"
		}
	}
	if g.slots > 0 {
		s.Takes.Duration = time.Hour
	}
	s.Request = cmp.Or(p.Method, http.MethodGet) + " " + path + strings.Replace(query, "&", "?", 1)
	return s
}

// reach sends requests until the limit refuses one. It returns steps that do the same, or what refuses first.
func (t *tested) reach(g *goal, s testStep) (steps []testStep, reason string) {
	fit, more := s, s
	for n := range 2*(g.limit.Events+g.limit.Burst+g.slots) + 1 {
		d, h, _ := t.send(&s)
		if d.Passed() {
			if left, err := strconv.ParseInt(t.left(h), 10, 64); err == nil {
				fit.Remaining = &left
			}
			t.at += s.Every.Duration
			continue
		}
		isBan := d.Outcome == middleware.OutcomeBanned && d.Refusal.Rule == g.info.Name
		if n == 0 || !isBan && !slices.ContainsFunc(d.Rules, g.refuses) {
			return nil, described(d) + " first"
		}
		fit.Times, fit.Expect, fit.Rule = n, &expectation{all: "allowed"}, g.info.Name
		if n == 1 {
			fit.Every = timespan{}
		}
		after := retryAfter(h)
		more.At, more.Every, more.RetryAfter = &timespan{t.at}, timespan{}, &after
		more.Expect, more.Rule, more.Status = &expectation{all: outcomeOf(d)}, g.info.Name, d.Refusal.Status
		steps = []testStep{fit, more}
		if a := g.limit.Algorithm; a == limiter.TokenBucket || a == limiter.LeakyBucket {
			steps = append(steps, t.refill(g, s))
		}
		return steps, ""
	}
	return nil, ""
}

// refill sends twice as many requests as a bucket, which is used up, refills in a period. It returns the step.
func (t *tested) refill(g *goal, s testStep) testStep {
	s.Times = 2 * g.limit.Events
	s.Every.Duration = max(g.limit.Per/time.Duration(s.Times), time.Microsecond).Truncate(time.Microsecond)
	t.at += s.Every.Duration
	s.At = &timespan{t.at}
	got, _ := t.step(&s)
	s.Expect = &expectation{counts: got.counts}
	return s
}
