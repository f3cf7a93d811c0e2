package main

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/weirgo/weir/internal/nearest"
	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/rules"
)

// A testFile has tests of a rules file.
type testFile struct {
	Rules string    // a path, relative to the file
	Start time.Time // of each test
	Tests []placed[ruleTest]

	name     string
	problems []rules.Problem
}

// A ruleTest has steps, or a log.
type ruleTest struct {
	Name  string
	Steps []placed[testStep]

	Log, Format string
	Map         map[string]string
	Trust       []string
	Tier        string // only the requests of this tier
	Expect      *expectation
}

// A testStep is a request that is sent once or several times.
type testStep struct {
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
	Times   *int64            `yaml:",omitempty"` // nil: 1

	Expect     *expectation
	Rule       string    `yaml:",omitempty"`
	Status     int       `yaml:",omitempty"`
	RetryAfter *timespan `yaml:"retry_after,omitempty"`
	Remaining  *int64    `yaml:",omitempty"`
}

// times returns how often the request is sent.
func (s *testStep) times() int64 {
	if s.Times == nil {
		return 1
	}
	return *s.Times
}

// A placed value is written at a line and column of a file.
type placed[T any] struct {
	of           T
	line, column int
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (p *placed[T]) UnmarshalYAML(n *yaml.Node) error {
	p.line, p.column = n.Line, n.Column
	return n.Load(&p.of, yaml.WithKnownFields())
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

// outcomes are what is expected of requests, in the order in which they are shown.
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
func (e *expectation) MarshalYAML() (any, error) {
	if e.all != "" {
		return e.all, nil
	}
	return e.counts, nil
}

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
			f.problem(err.Mark.Line, err.Mark.Column, "%s", inTestWords(err.Message))
		}
	case errors.As(err, &one):
		f.problem(one.Mark.Line, one.Mark.Column, "%s", one.Message)
	case err != nil:
		f.problem(1, 1, "%s", err)
	case len(f.Tests) == 0:
		f.problem(1, 1, "has no tests")
	}
	for i := range f.Tests {
		f.check(&f.Tests[i])
	}
	return f, f.err()
}

var (
	unknownField = regexp.MustCompile(`^field (.+) not found in type .*`)
	wrongKind    = regexp.MustCompile(`(?s)^cannot construct !!(\w+) .* into .*`)
	testFields   = strings.Fields("rules start tests name steps log format map trust tier expect " +
		"request host ip user body headers at times every takes cost answer rule status retry_after remaining")
)

// inTestWords returns a message of the YAML library without names of Go types.
func inTestWords(message string) string {
	if m := unknownField.FindStringSubmatch(message); m != nil {
		message = fmt.Sprintf("unknown field %q here", m[1])
		if near := nearest.Of(m[1], testFields); near != "" && near != m[1] {
			message += fmt.Sprintf(": did you mean %q?", near)
		}
	}
	return inWords(errors.New(wrongKind.ReplaceAllString(message, "a value of type $1 is not allowed here")))
}

func (f *testFile) problem(line, column int, format string, args ...any) {
	f.problems = append(f.problems,
		rules.Problem{File: f.name, Line: max(line, 1), Column: max(column, 1), Message: fmt.Sprintf(format, args...)})
}

func (f *testFile) err() error {
	if len(f.problems) == 0 {
		return nil
	}
	return &rules.Error{Problems: f.problems}
}

// check reports what is wrong with a test, whatever the rules are.
func (f *testFile) check(at *placed[ruleTest]) {
	t := &at.of
	switch isLog := t.Format != "" || t.Map != nil || t.Trust != nil || t.Tier != "" || t.Expect != nil; {
	case t.Name == "":
		f.problem(at.line, at.column, "a test has no name")
	case (len(t.Steps) > 0) == (t.Log != ""):
		f.problem(at.line, at.column, "a test has steps, or a log")
	case t.Log == "" && isLog:
		f.problem(at.line, at.column, "format, map, trust, tier and expect of a test are for its log")
	case t.Log != "" && t.Expect.wrong(1e9) != "":
		f.problem(at.line, at.column, "the test %s", t.Expect.wrong(1e9))
	}
	var end time.Duration
	for i := range t.Steps {
		at := &t.Steps[i]
		s := &at.of
		if s.At != nil && s.At.Duration < end {
			f.problem(at.line, at.column, "at %v is before the step before has ended, at %v", s.At, end)
		} else if s.At != nil {
			end = s.At.Duration
		}
		end += time.Duration(s.times()-1) * s.Every.Duration
		if wrong := s.wrong(); wrong != "" {
			f.problem(at.line, at.column, "the step %s", wrong)
		}
	}
}

// wrong returns what is wrong with a step, or "".
func (s *testStep) wrong() string {
	method, target, _ := strings.Cut(s.Request, " ")
	url, badTarget := url.ParseRequestURI(target)
	_, badIP := netip.ParseAddr(s.IP)
	switch {
	case badTarget != nil || url.Host != "" || method == "" || !route.IsMethod(method):
		return fmt.Sprintf("has request %q: want a method and a path, such as GET /search?q=1", s.Request)
	case s.IP != "" && badIP != nil:
		return fmt.Sprintf("has ip %q, which is not an address", s.IP)
	case s.times() < 1 || s.times() > 1e6:
		return fmt.Sprintf("is sent %d times: want 1 to 1,000,000", s.times())
	case s.Every.Duration > 0 && s.times() == 1:
		return "has every, and is sent once"
	case s.Answer != 0 && (s.Answer < 200 || s.Answer > 599):
		return fmt.Sprintf("has answer %d: want a status from 200 to 599", s.Answer)
	case s.Cost != nil && *s.Cost < 0:
		return "has a cost below 0"
	case s.Expect.wrong(s.times()) != "":
		return s.Expect.wrong(s.times())
	case s.Expect.of(s.times())["allowed"] == s.times() && (s.Status != 0 || s.RetryAfter != nil):
		return "expects allowed, and status or retry_after, which are of refusals"
	}
	return ""
}
