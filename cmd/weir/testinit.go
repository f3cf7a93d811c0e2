package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

// init writes first tests of a rules file: for each limit, the requests that fit, and one more. It sends the requests,
// and expects what was decided. A limit that one client does not reach is a comment.
func (f *testFlags) init(files []string) error {
	if len(files) != 1 {
		return usageError{errors.New("--init is for one file of rules")}
	}
	service, err := f.service(files[0], firstMonday)
	if err != nil {
		return err
	}
	fmt.Fprintf(f.out, "rules: %s\ntests:\n", inYAML(filepath.Base(files[0])))
	for _, g := range goals(service) {
		step, why := f.firstStep(files[0], &g, service.rules.Needs())
		if step == nil {
			fmt.Fprintf(f.out, "  # %q is not tested: %s\n", g.name, why)
			continue
		}
		fmt.Fprintf(f.out, "  - name: %q\n    steps:\n      - %s\n", g.name, inYAML(step))
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

// A goal is a limit, or the slots of a rule, that a first test reaches.
type goal struct {
	name  string
	info  middleware.RuleInfo
	key   string // of an override; empty: any key without one
	limit limiter.Limit
	slots int64
}

// goals returns a goal for each limit of the rules.
func goals(t *tested) (all []goal) {
	add := func(info middleware.RuleInfo, key string) {
		shown := key
		if isCredential(key) {
			shown = "override"
		}
		of := slices.DeleteFunc([]string{info.Name, info.Tier, shown}, func(part string) bool { return part == "" })
		name := strings.Join(of, " ") + ": "
		limits, atOnce, _ := limiter.Split(info.Limit)
		for _, l := range limits {
			all = append(all, goal{name: name + l.String(), info: info, key: key, limit: l})
		}
		if atOnce.Max > 0 {
			all = append(all, goal{name: name + atOnce.String(), info: info, key: key, slots: atOnce.Max})
		}
	}
	overrides := overridesOf(t.rules.Config())
	for _, info := range t.Rules() {
		add(info, "")
		own := overrides[info.Name]
		delete(overrides, info.Name) // they hold in each tier
		for _, key := range slices.Sorted(maps.Keys(own)) {
			info.Limit, info.Own = own[key].Limit, true
			add(info, key)
		}
	}
	return all
}

// isCredential reports whether a key may be one, or may have one in it.
func isCredential(key string) bool {
	kind, _, _ := keyfunc.KindOf(key)
	return slices.Contains([]string{"apikey", "bearer", "cookie", "join"}, kind)
}

// overridesOf returns the overrides of each rule by its name.
func overridesOf(c middleware.Config) map[string]map[string]middleware.Override {
	lists := [][]middleware.Rule{c.Rules, c.Default}
	lists = slices.AppendSeq(lists, maps.Values(c.ByTier))
	lists = slices.AppendSeq(lists, maps.Values(c.ByRoute))
	found := map[string]map[string]middleware.Override{}
	for _, r := range slices.Concat(lists...) {
		found[r.Name] = r.Overrides
	}
	return found
}

// refused reports whether the limit, or a ban by its rule, refused a request.
func (g *goal) refused(r middleware.RuleResult) bool {
	isIt := r.Rule.Name == g.info.Name && r.Rule.Tier == g.info.Tier && r.Rule.Own == g.info.Own
	return isIt && r.Rule.Mode != middleware.Shadow && !r.Allowed && r.Binding() == g.limit && r.IsConcurrency() == (g.slots > 0)
}

// mostInFirstTest is the most requests that a first test sends.
const mostInFirstTest = 100_000

// firstStep returns a step in which the limit refuses requests, or why there is none.
func (f *testFlags) firstStep(file string, g *goal, needs []rules.Need) (step *testStep, why string) {
	switch most := max(g.limit.Events, g.limit.Burst, g.slots); {
	case g.info.Mode == middleware.Shadow:
		return nil, "it is in shadow"
	case isCredential(g.key):
		return nil, "its key may be a credential"
	case most > mostInFirstTest:
		return nil, fmt.Sprintf("it takes more than %d requests", mostInFirstTest)
	}
	statuses := []int{0}
	if slices.Contains(needs, rules.Need{Rule: g.info.Name, Of: "status"}) {
		statuses = []int{http.StatusOK, http.StatusUnauthorized, http.StatusInternalServerError}
	}
	pauses := []time.Duration{0}
	switch {
	case g.isBucket():
		pauses = []time.Duration{g.limit.Per / time.Duration(2*g.limit.Events)}
	case g.limit.Events > 0: // a pause keeps shorter limits from refusing
		pauses = append(pauses, g.limit.Per/time.Duration(g.limit.Events)*9/10)
	}
	for _, status := range statuses {
		for _, pause := range pauses {
			service, err := f.service(file, firstMonday)
			if err != nil {
				return nil, err.Error()
			}
			s := g.request(needs)
			s.IP = cmp.Or(s.IP, service.address(s, 0, nil))
			s.Answer, s.Every.Duration = status, pause.Truncate(time.Microsecond)
			why = service.reach(g, &s)
			if service.Close(); why == "" {
				return &s, ""
			}
		}
	}
	return nil, why
}

func (g *goal) isBucket() bool {
	return g.limit.Algorithm == limiter.TokenBucket || g.limit.Algorithm == limiter.LeakyBucket
}

var parameter = regexp.MustCompile(`\{[^/]*\}|[:*][^/]*`)

// request returns a request that meets the rule, with the key of the override.
func (g *goal) request(needs []rules.Need) testStep {
	p, _ := route.ParseRule(cmp.Or(g.info.Route, "/"))
	path, query, value := parameter.ReplaceAllString(p.Path, "1"), "", "1"
	if p.Below {
		path += "/1"
	}
	s := testStep{Host: strings.Replace(p.Host, "*", "www", 1), Tier: cmp.Or(g.info.Tier, g.info.ForTier)}
	s.Headers = map[string]string{}
	if address, _, _ := strings.Cut(g.key, "/"); g.key != "" {
		if _, err := netip.ParseAddr(address); err == nil {
			s.IP, needs = address, nil
		}
		_, _, value = keyfunc.KindOf(g.key)
	}
	for _, need := range needs {
		kind, name, _ := strings.Cut(need.Of, ":")
		switch {
		case need.Rule != g.info.Name:
		case kind == "user":
			s.User = value
		case kind == "host":
			s.Host = cmp.Or(s.Host, "example.org")
		case name == "Authorization":
			s.Headers[name] = "Bearer " + value
		case kind == "header":
			s.Headers[name] = value
		case kind == "cookie":
			s.Headers["Cookie"] = name + "=" + value
		case kind == "key":
			s.Headers[need.Of] = strings.TrimPrefix(value, name+":")
		case kind == "query":
			query += "&" + url.Values{name: {value}}.Encode()
		}
	}
	if g.slots > 0 {
		s.Takes.Duration = time.Hour
	}
	s.Request = cmp.Or(p.Method, http.MethodGet) + " " + path + strings.Replace(query, "&", "?", 1)
	return s
}

// reach sends the request of s until the limit refuses it; to a bucket, for longer than it takes to refill. It makes s
// a step that expects the same decisions, or returns what refuses first.
func (t *tested) reach(g *goal, s *testStep) (why string) {
	var got tally
	most := 2*(g.limit.Events+g.limit.Burst+g.slots) + 1
	for s.Times = 1; ; s.Times++ {
		d, h, _ := t.send(s)
		got.add(d)
		isBan := d.Outcome == middleware.OutcomeBanned && d.Refusal.Rule == g.info.Name
		isOurs := isBan || slices.ContainsFunc(d.Rules, g.refused)
		if !d.Passed() && (s.Times == 1 || !isOurs) {
			return described(d) + " first"
		}
		s.Status, s.RetryAfter = d.Refusal.Status, nil
		if !d.Passed() {
			after := retryAfter(h)
			s.RetryAfter = &after
		}
		if s.Times == most || !d.Passed() && !g.isBucket() {
			break
		}
		t.at += s.Every.Duration
	}
	if got.counts["allowed"] == got.total {
		return "it refuses no request"
	}
	s.Expect, s.Rule = &expectation{counts: got.counts}, g.info.Name
	return ""
}
