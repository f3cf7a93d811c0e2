package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/internal/yamlfile"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/rules"
)

// A testFile has tests of a rules file. Package yamlfile reads the tags of its fields.
type testFile struct {
	Rules string     `yaml:"rules"` // a path, relative to this file
	Start instant    `yaml:"start"` // of each test
	Tests []ruleTest `yaml:"tests" min:"1" required:"true"`

	name     string
	doc      *yamlfile.Document
	problems []rules.Problem
}

// A ruleTest has steps, or a log.
type ruleTest struct {
	Name  string     `yaml:"name" required:"true"`
	Steps []testStep `yaml:"steps" min:"1"`

	Log    string            `yaml:"log"` // a path, relative to the file
	Format string            `yaml:"format"`
	Zone   string            `yaml:"zone"`
	Map    map[string]string `yaml:"map"`
	Trust  []string          `yaml:"trust"`
	Tier   word              `yaml:"tier"` // only the requests of this tier
	Expect *expectation      `yaml:"expect"`

	path []string // in the file
	at   yamlfile.Position
}

// A testStep is a request that is sent once or several times.
type testStep struct {
	At      *timespan       `yaml:"at"` // since the start; nil: when the step before ended
	Request request         `yaml:"request" required:"true"`
	Host    string          `yaml:"host"`
	IP      netip.Addr      `yaml:"ip"` // of the peer; zero: an address that no other step has
	User    word            `yaml:"user"`
	Tier    word            `yaml:"tier"`
	Headers map[string]word `yaml:"headers"`
	Body    string          `yaml:"body"`
	Answer  int             `yaml:"answer" min:"200" max:"599"` // the status of the service's answer; 0: 200
	Cost    *int64          `yaml:"cost" min:"0"`               // that the service settles
	Takes   timespan        `yaml:"takes"`
	Every   timespan        `yaml:"every"`
	Times   int64           `yaml:"times" min:"1" max:"1000000"` // by default 1

	Expect     *expectation `yaml:"expect" required:"true"`
	Rule       word         `yaml:"rule"`
	Status     int          `yaml:"status"`
	RetryAfter *timespan    `yaml:"retry_after"`
	Remaining  *int64       `yaml:"remaining"`

	path []string
	at   yamlfile.Position
}

// The types from here to expectation read themselves from text.

// A word is text that needs no quotes, such as 42.
type word string

func (w *word) UnmarshalText(text []byte) error {
	*w = word(text)
	return nil
}

// A timespan is a duration, as in rules files, or 0.
type timespan struct{ time.Duration }

func (s *timespan) UnmarshalText(text []byte) (err error) {
	if string(text) != "0" && string(text) != "0s" {
		s.Duration, err = limiter.ParsePeriod(string(text))
	}
	return inWordsOrNil(err)
}

// An instant is a time, or the beginning of a day in UTC.
type instant struct{ time.Time }

func (i *instant) UnmarshalText(text []byte) (err error) {
	if i.Time, err = time.Parse(time.DateOnly, string(text)); err != nil {
		i.Time, err = time.Parse(time.RFC3339, string(text))
	}
	if err != nil || i.Year() < 1970 || i.Year() > 2100 {
		return fmt.Errorf("%.64q is not a time from 1970 to 2100, such as 2026-01-05 or 2026-01-05T09:00:00Z", text)
	}
	return nil
}

// A request is a method and a target.
type request struct{ method, target string }

func (r *request) UnmarshalText(text []byte) error {
	r.method, r.target, _ = strings.Cut(string(text), " ")
	if u, err := url.ParseRequestURI(r.target); err != nil || u.Host != "" || !route.IsMethod(r.method) {
		return fmt.Errorf("%.64q is not a method and a path, such as GET /search?q=1", text)
	}
	return nil
}

func (r request) String() string { return r.method + " " + r.target }

// An expectation is the outcome of all requests, or the numbers of some outcomes.
type expectation struct {
	All     string `yaml:"all" short:"true" words:"allowed refused banned denied"`
	Allowed *int64 `yaml:"allowed" min:"0"`
	Refused *int64 `yaml:"refused" min:"0"`
	Banned  *int64 `yaml:"banned" min:"0"`
	Denied  *int64 `yaml:"denied" min:"0"`
}

// of returns the numbers of outcomes that are expected of n requests.
func (e *expectation) of(n int64) map[string]int64 {
	if e.All != "" {
		return map[string]int64{e.All: n}
	}
	numbers := map[string]int64{}
	for outcome, number := range map[string]*int64{
		"allowed": e.Allowed, "refused": e.Refused, "banned": e.Banned, "denied": e.Denied,
	} {
		if number != nil {
			numbers[outcome] = *number
		}
	}
	return numbers
}

// firstMonday is when tests start by default. A Monday begins most calendar windows.
var firstMonday = time.Date(2026, time.January, 5, 0, 0, 0, 0, time.UTC)

// parseTests reads a file of tests. An error is a *rules.Error with all problems.
func parseTests(name string, text []byte) (*testFile, error) {
	f := &testFile{name: name, Start: instant{firstMonday}}
	f.doc = yamlfile.Read(text, f, yamlfile.Wrapper{}, f.report)
	for i := range f.Tests {
		t := &f.Tests[i]
		t.path = f.doc.Element([]string{"tests"}, i)
		t.at = f.doc.Position(t.path...)
		for j := range t.Steps {
			s := &t.Steps[j]
			s.path = f.doc.Element(yamlfile.Sub(t.path, "steps"), j)
			s.at, s.Times = f.doc.Position(s.path...), max(s.Times, 1)
			if !s.IP.IsValid() {
				s.IP = netip.AddrFrom4([4]byte{198, 19 + byte(j>>8), byte(j), 1})
			}
		}
	}
	return f, f.err()
}

// report is a yamlfile.Report.
func (f *testFile) report(at yamlfile.Position, path []string, message string) {
	f.problems = append(f.problems, rules.Problem{
		File: f.name, Line: at.Line, Column: at.Column, Field: yamlfile.Join(path), Message: message,
	})
}

func (f *testFile) problem(path []string, format string, args ...any) {
	f.report(f.doc.Position(path...), path, fmt.Sprintf(format, args...))
}

func (f *testFile) err() error {
	if len(f.problems) == 0 {
		return nil
	}
	return &rules.Error{Problems: f.problems}
}

const longestTest = 100 * 365 * 24 * time.Hour

// check reports what is wrong with a test of rules that have these tiers.
func (f *testFile) check(t *ruleTest, tiers []string) {
	isOfLog := t.Format+t.Zone+string(t.Tier) != "" || t.Map != nil || t.Trust != nil || t.Expect != nil
	switch {
	case (len(t.Steps) > 0) == (t.Log != ""):
		f.problem(t.path, "a test has steps, or a log")
	case t.Log == "" && isOfLog:
		f.problem(t.path, "format, zone, map, trust, tier and expect of a test are for its log")
	case !slices.Contains(tiers, string(t.Tier)):
		f.problem(t.path, "the rules have no tier %q", t.Tier)
	case t.Log != "" && (t.Expect == nil || len(t.Expect.of(1)) == 0):
		f.problem(t.path, "the test expects nothing")
	}
	var end time.Duration
	for i := range t.Steps {
		s := &t.Steps[i]
		at := cmp.Or(s.At, &timespan{end}).Duration
		switch {
		case len(s.Expect.of(1)) == 0:
			f.problem(s.path, "the step expects nothing")
		case !slices.Contains(tiers, string(s.Tier)):
			f.problem(s.path, "the rules have no tier %q", s.Tier)
		case at < end:
			f.problem(s.path, "at %v is before the step before has ended, at %v", at, end)
		case s.Every.Duration > (longestTest-at)/time.Duration(s.Times):
			f.problem(s.path, "the step ends more than a hundred years after the start")
			return
		}
		end = at + time.Duration(s.Times-1)*s.Every.Duration
	}
}
