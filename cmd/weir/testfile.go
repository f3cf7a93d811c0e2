package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/rules"
)

// A testFile has tests of a rules file.
type testFile struct {
	Rules fileName
	Start time.Time // of each test
	Tests []ruleTest

	name     string
	problems []rules.Problem
}

// A place is where a value begins in a file.
type place struct{ line, column int }

// A ruleTest has steps, or a log.
type ruleTest struct {
	place `yaml:"-"`
	Name  string
	Steps []testStep

	Log          fileName
	Format, Zone string
	Map          map[string]string
	Trust        []string
	Tier         string // only the requests of this tier
	Expect       *expectation
}

// A testStep is a request that is sent once or several times.
type testStep struct {
	place   `yaml:"-"`
	At      *timespan         `yaml:",omitempty"` // since the start; nil: when the step before ended
	Request string            // method and target
	Host    string            `yaml:",omitempty"`
	IP      string            `yaml:",omitempty"`
	User    string            `yaml:",omitempty"`
	Tier    string            `yaml:",omitempty"`
	Headers map[string]string `yaml:",omitempty"`
	Body    string            `yaml:",omitempty"`
	Answer  int               `yaml:",omitempty"` // the status of the service's answer; 0: 200
	Cost    *int64            `yaml:",omitempty"` // that the service settles
	Takes   timespan          `yaml:",omitempty"`
	Every   timespan          `yaml:",omitempty"`
	Times   int64             `yaml:",omitempty"` // a file's default is 1

	Expect     *expectation
	Rule       string    `yaml:",omitempty"`
	Status     int       `yaml:",omitempty"`
	RetryAfter *timespan `yaml:"retry_after,omitempty"`
	Remaining  *int64    `yaml:",omitempty"`
}

// A fileName is a path, relative to the file of tests.
type fileName struct {
	place
	path string
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (f *fileName) UnmarshalYAML(n *yaml.Node) error {
	f.place = place{n.Line, n.Column}
	return n.Load(&f.path)
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (t *ruleTest) UnmarshalYAML(n *yaml.Node) error {
	type fields ruleTest
	t.place = place{n.Line, n.Column}
	return n.Load((*fields)(t), yaml.WithKnownFields())
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (s *testStep) UnmarshalYAML(n *yaml.Node) error {
	type fields testStep
	s.place, s.Times = place{n.Line, n.Column}, 1
	return n.Load((*fields)(s), yaml.WithKnownFields())
}

// A timespan is a duration, as in rules files, or 0.
type timespan struct{ time.Duration }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *timespan) UnmarshalText(text []byte) (err error) {
	if string(text) != "0" && string(text) != "0s" {
		s.Duration, err = limiter.ParsePeriod(string(text))
	}
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (s timespan) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// outcomes are what can be expected of requests.
var outcomes = []string{"allowed", "refused", "banned", "denied"}

// An expectation is the outcome of all requests, or the numbers of some outcomes.
type expectation struct {
	all    string
	counts map[string]int64
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (e *expectation) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.MappingNode {
		return n.Load(&e.counts)
	}
	return n.Load(&e.all)
}

// MarshalYAML implements yaml.Marshaler.
func (e *expectation) MarshalYAML() (any, error) { return e.counts, nil }

// of returns the numbers of outcomes that are expected of n requests.
func (e *expectation) of(n int64) map[string]int64 {
	if e.all != "" {
		return map[string]int64{e.all: n}
	}
	return e.counts
}

// wrong returns why an expectation of at most n requests can never fail, or always fails.
func (e *expectation) wrong(n int64) string {
	if e == nil || len(e.of(n)) == 0 {
		return "has no expect"
	}
	sum := int64(0)
	for outcome, count := range e.of(n) {
		if !slices.Contains(outcomes, outcome) {
			return fmt.Sprintf("expects %q: want %s, or numbers of them", outcome, strings.Join(outcomes, ", "))
		}
		if count < 0 || count > n-sum {
			return fmt.Sprintf("expects more outcomes than its requests, which are %d, or less than 0", n)
		}
		sum += count
	}
	return ""
}

// firstMonday is when tests start by default. A Monday begins most calendar windows.
var firstMonday = time.Date(2026, time.January, 5, 0, 0, 0, 0, time.UTC)

// parseTests reads a file of tests. An error is a *rules.Error with all problems.
func parseTests(name string, text []byte) (*testFile, error) {
	f := &testFile{name: name, Start: firstMonday}
	err := yaml.Load(text, f, yaml.WithKnownFields())
	var several *yaml.LoadErrors
	var one *yaml.LoadError
	switch {
	case errors.As(err, &several):
		for _, err := range several.Errors {
			f.problem(place{err.Mark.Line, err.Mark.Column}, "%s", inTestWords(err.Message))
		}
	case errors.As(err, &one):
		f.problem(place{one.Mark.Line, one.Mark.Column}, "%s", one.Message)
	case err != nil:
		f.problem(place{}, "%s", err)
	case len(f.Tests) == 0:
		f.problem(place{}, "has no tests")
	case f.Start.Year() < 1970 || f.Start.Year() > 2100:
		f.problem(place{}, "start is %v: want a year from 1970 to 2100", f.Start)
	}
	return f, f.err()
}

// goTypes are the names of this program's types in messages of the YAML library.
var goTypes = regexp.MustCompile(`(?s)^field (.+) (not found) in type .*|^cannot construct !!(\w+) .* into .*`)

// inTestWords returns a message of the YAML library without names of Go types.
func inTestWords(message string) string {
	switch found := goTypes.FindStringSubmatch(message); {
	case found == nil:
		return inWords(errors.New(message))
	case found[1] != "":
		return fmt.Sprintf("unknown field %q here", found[1])
	default:
		return fmt.Sprintf("a value of type %s is not allowed here", found[3])
	}
}

func (f *testFile) problem(at place, format string, args ...any) {
	f.problems = append(f.problems, rules.Problem{
		File: f.name, Line: max(at.line, 1), Column: max(at.column, 1), Message: fmt.Sprintf(format, args...),
	})
}

func (f *testFile) err() error {
	if len(f.problems) == 0 {
		return nil
	}
	return &rules.Error{Problems: f.problems}
}

const longestTest = 100 * 365 * 24 * time.Hour

// check reports what is wrong with a test of rules that have these names and tiers.
func (f *testFile) check(t *ruleTest, names, tiers []string) {
	isOfLog := t.Format+t.Zone+t.Tier != "" || t.Map != nil || t.Trust != nil || t.Expect != nil
	switch {
	case t.Name == "":
		f.problem(t.place, "a test has no name")
	case (len(t.Steps) > 0) == (t.Log.path != ""):
		f.problem(t.place, "a test has steps, or a log")
	case t.Log.path == "" && isOfLog:
		f.problem(t.place, "format, zone, map, trust, tier and expect of a test are for its log")
	case !slices.Contains(tiers, t.Tier):
		f.problem(t.place, "the rules have no tier %q", t.Tier)
	case t.Log.path != "" && t.Expect.wrong(1e9) != "":
		f.problem(t.place, "the test %s", t.Expect.wrong(1e9))
	}
	var end time.Duration
	for i := range t.Steps {
		s := &t.Steps[i]
		at := end
		if s.At != nil {
			at = s.At.Duration
		}
		between := time.Duration(max(s.Times, 1) - 1)
		switch wrong := s.wrong(); {
		case wrong != "":
			f.problem(s.place, "the step %s", wrong)
		case !slices.Contains(tiers, s.Tier):
			f.problem(s.place, "the rules have no tier %q", s.Tier)
		case !slices.Contains(names, s.Rule):
			f.problem(s.place, "the rules have no rule %q", s.Rule)
		case at < end:
			f.problem(s.place, "at %v is before the step before has ended, at %v", at, end)
		case s.Every.Duration > (longestTest-at)/max(between, 1):
			f.problem(s.place, "the step ends more than a hundred years after the start")
			return
		}
		end = at + between*s.Every.Duration
	}
}

// wrong returns what is wrong with a step, or "".
func (s *testStep) wrong() string {
	method, target, _ := strings.Cut(s.Request, " ")
	url, badTarget := url.ParseRequestURI(target)
	_, badIP := netip.ParseAddr(cmp.Or(s.IP, "::"))
	switch {
	case badTarget != nil || url.Host != "" || method == "" || !route.IsMethod(method):
		return fmt.Sprintf("has request %q: want a method and a path, such as GET /search?q=1", s.Request)
	case badIP != nil:
		return fmt.Sprintf("has ip %q, which is not an address", s.IP)
	case s.Times < 1 || s.Times > 1e6:
		return fmt.Sprintf("is sent %d times: want 1 to 1,000,000", s.Times)
	case s.Answer != 0 && (s.Answer < 200 || s.Answer > 599):
		return fmt.Sprintf("has answer %d: want a status from 200 to 599", s.Answer)
	case s.Cost != nil && *s.Cost < 0:
		return "has a cost below 0"
	case s.Expect.wrong(s.Times) != "":
		return s.Expect.wrong(s.Times)
	case s.Expect.of(s.Times)["allowed"] == s.Times && (s.Status != 0 || s.RetryAfter != nil):
		return "expects allowed, and status or retry_after, which are of refusals"
	}
	return ""
}
