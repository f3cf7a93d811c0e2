package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

// init writes a first file of tests: for each rule, the requests that it admits at once, and the first that it
// refuses. It sends them, and expects what was decided. A rule that needs more than a user, a tier or a host is a comment.
func (f *testFlags) init(files []string) error {
	if len(files) != 1 {
		return usageError{errors.New("--init is for one file of rules")}
	}
	first, err := f.service(files[0], firstMonday)
	if err != nil {
		return err
	}
	fmt.Fprintf(f.out, "rules: %q\ntests:\n", filepath.Base(files[0]))
	for _, info := range first.Rules() {
		service, err := f.service(files[0], firstMonday)
		if err != nil {
			return err
		}
		name := strings.TrimSpace(info.Name + " " + info.Tier)
		if steps, why := service.firstSteps(&info); why == "" {
			fmt.Fprintf(f.out, "  - name: %q\n    steps:\n      - %s\n", name, strings.Join(steps, "\n      - "))
		} else {
			fmt.Fprintf(f.out, "  # %q is not tested: %s\n", name, why)
		}
		service.Close()
	}
	return nil
}

// mostInFirstTest is the most requests that a first test sends.
const mostInFirstTest = 10_000

// firstSteps sends a request until a rule refuses it. It returns the steps as YAML, or why there are none.
func (t *tested) firstSteps(rule *middleware.RuleInfo) (steps []string, why string) {
	s, needs := firstRequest(rule, t.rules.Needs())
	switch {
	case needs != "":
		return nil, "it needs " + needs
	case rule.Mode == middleware.Shadow:
		return nil, "it is in shadow"
	}
	text := fmt.Sprintf("{request: %q, ip: %v", s.Request, s.IP)
	for _, field := range [][2]string{{"host", s.Host}, {"user", string(s.User)}, {"tier", string(s.Tier)}} {
		if field[1] != "" {
			text += fmt.Sprintf(", %s: %q", field[0], field[1])
		}
	}
	if s.Answer > 0 {
		text += fmt.Sprintf(", answer: %d", s.Answer)
	}
	if s.Takes.Duration > 0 {
		text += fmt.Sprintf(", takes: %v", s.Takes)
	}
	for n := range mostInFirstTest {
		d, _, _ := t.send(s)
		switch {
		case d.Passed():
			continue
		case d.Refusal.Rule != rule.Name:
			return nil, described(d) + " first"
		case n > 0:
			steps = append(steps, fmt.Sprintf("%s, times: %d, expect: allowed}", text, n))
		}
		last := fmt.Sprintf("%s, expect: %s, rule: %q, status: %d}", text, outcomeOf(d), rule.Name, d.Refusal.Status)
		return append(steps, last), ""
	}
	return nil, fmt.Sprintf("it refuses none of %d requests", mostInFirstTest)
}

var parameter = regexp.MustCompile(`\{[^/]*\}|[:*][^/]*`)

// firstRequest returns a request that meets a rule, and what else the rule needs.
func firstRequest(rule *middleware.RuleInfo, needs []rules.Need) (s *testStep, lacking string) {
	p, _ := route.ParseRule(cmp.Or(rule.Route, "/"))
	path := parameter.ReplaceAllString(p.Path, "1")
	if p.Below {
		path += "/1"
	}
	s = &testStep{
		Request: request{cmp.Or(p.Method, http.MethodGet), path}, Host: strings.Replace(p.Host, "*", "www", 1),
		IP: netip.AddrFrom4([4]byte{198, 18, 0, 1}), Tier: word(cmp.Or(rule.Tier, rule.ForTier)),
	}
	if _, atOnce, _ := limiter.Split(rule.Limit); atOnce.Max > 0 {
		s.Takes.Duration = time.Second
	}
	for _, need := range needs {
		switch {
		case need.Rule != rule.Name || need.Of == "tier":
		case need.Of == "user":
			s.User = "1"
		case need.Of == "host":
			s.Host = cmp.Or(s.Host, "example.org")
		case need.Of == "status":
			s.Answer = http.StatusUnauthorized
		default:
			lacking = need.Of
		}
	}
	return s, lacking
}
