package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/simulate"
	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/internal/yamlfile"
	"github.com/weirgo/weir/middleware/rules"
)

// testFlags are the flags of test.
type testFlags struct {
	*session
	rules, tiers, keys *string
}

// A testReport is the result of test on a file, as JSON.
type testReport struct {
	File     string          `json:"file"`
	Passed   bool            `json:"passed"`
	Tests    []*testResult   `json:"tests"`
	Problems []rules.Problem `json:"problems"` // why the tests cannot run
	Notes    []string        `json:"notes"`    // what of the rules is not tested
}

// A testResult is the result of a test.
type testResult struct {
	Name     string          `json:"name"`
	Line     int             `json:"line"`
	Passed   bool            `json:"passed"`
	Requests int64           `json:"requests"`
	Failures []rules.Problem `json:"failures"` // expectations that were not met

	shown strings.Builder // what was decided on each step
}

func (r *testResult) fail(at yamlfile.Position, message string) {
	r.Passed = false
	r.Failures = append(r.Failures, rules.Problem{Line: at.Line, Column: at.Column, Message: message})
}

func testRules(s *session, flags *pflag.FlagSet) action {
	f := &testFlags{session: s}
	out := s.output(flags)
	f.rules = flags.String("rules", "", "the `file` with the rules, in place of the test files' own")
	run := flags.String("run", "", "only tests whose name matches this regular `expression`")
	verbose := flags.BoolP("verbose", "v", false, "show what was decided on each step")
	first := flags.Bool("init", false, "print a first test file for the rules in FILE")
	f.tiers, f.keys = knowing(flags)
	return func(files []string) error {
		if *first {
			return f.init(files)
		}
		only, err := regexp.Compile(*run)
		if err != nil {
			return usageError{fmt.Errorf("--run: %w", err)}
		}
		var reports []*testReport
		tests, failed, unreadable := 0, false, false
		for _, file := range files {
			r := f.test(file, only)
			reports, tests = append(reports, r), tests+len(r.Tests)
			failed, unreadable = failed || !r.Passed, unreadable || len(r.Problems) > 0
		}
		err = out.write(reports, func(table io.Writer) {
			for _, r := range reports {
				r.write(table, *verbose)
			}
		})
		switch {
		case err != nil:
			return err
		case unreadable:
			return exitError(exitUsage)
		case tests == 0:
			return usageError{errors.New("--run matches no test")}
		case failed:
			return exitError(exitBad)
		}
		return nil
	}
}

// test runs the tests of a file.
func (f *testFlags) test(file string, only *regexp.Regexp) *testReport {
	r := &testReport{File: file, Tests: []*testResult{}, Notes: []string{}}
	err := f.runAll(r, only)
	r.Problems = problemsOf(err, file)
	r.Passed = err == nil && !slices.ContainsFunc(r.Tests, func(t *testResult) bool { return !t.Passed })
	return r
}

func (f *testFlags) runAll(r *testReport, only *regexp.Regexp) error {
	text, err := f.read(r.File)
	if err != nil {
		return err
	}
	tests, err := parseTests(r.File, text)
	if err != nil {
		return err
	}
	file := cmp.Or(*f.rules, beside(r.File, tests.Rules))
	if file == "" {
		return errors.New("it names no rules: add rules: FILE, or use --rules FILE")
	}
	service, err := f.service(file, tests.Start.Time)
	if err != nil {
		return err
	}
	tiers := append(list(*f.tiers), "")
	for _, info := range service.Rules() {
		tiers = append(tiers, info.Tier, info.ForTier)
	}
	for i := range tests.Tests {
		tests.check(&tests.Tests[i], tiers)
	}
	r.Notes = append(r.Notes, notSimulated(service.rules, service.Simulation)...)
	for i := 0; i < len(tests.Tests) && tests.err() == nil; i++ {
		t := &tests.Tests[i]
		if !only.MatchString(t.Name) {
			continue
		}
		if service, err = f.service(file, tests.Start.Time); err != nil {
			return err
		}
		r.Tests = append(r.Tests, &testResult{Name: t.Name, Line: t.at.Line, Passed: true, Failures: []rules.Problem{}})
		result := r.Tests[len(r.Tests)-1]
		if t.Log == "" {
			service.run(t, result)
		} else if err := f.runLog(service.rules, beside(r.File, t.Log), t, result); err != nil {
			tests.problem(t.path, "%s", inWords(err))
		}
	}
	return tests.err()
}

// beside returns the path of a file that another file names, or "" for no name.
func beside(file, name string) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(file), name)
}

// runLog runs a test with a log.
func (f *testFlags) runLog(loaded *rules.Rules, name string, t *ruleTest, r *testResult) (err error) {
	flags := &logFlags{session: f.session, format: t.Format, mapped: t.Map, trusted: t.Trust, keys: *f.keys}
	needs := loaded.Needs()
	if t.Zone != "" {
		if flags.zone, err = zoneNamed(t.Zone); err != nil {
			return err
		}
	}
	if t.Tier != "" {
		needs = append(needs, rules.Need{Rule: t.Name, Of: "tier"})
	}
	var got tally
	err = flags.read(name, needs, []string{loaded.Proxies().Header()}, func(log *weblog) error {
		if _, err := leftOut(log); err != nil {
			return err
		}
		run, err := newRun(log, []*rules.Rules{loaded})
		if err != nil {
			return err
		}
		if names := run.services[0].Bounded(); len(names) > 0 && !log.Has("took") {
			return fmt.Errorf("%s needs how long requests took, which the log does not have: say where with --map took_ms=PLACE",
				strings.Join(names, ", "))
		}
		return run.each(func(e *accesslog.Entry, decisions []*simulate.Decision) {
			if t.Tier == "" || string(t.Tier) == e.Tier {
				got.add(decisions[0])
				r.Requests++
			}
		})
	})
	switch {
	case err != nil:
		return fmt.Errorf("%w (a test has fields in place of these flags)", err)
	case r.Requests == 0:
		return errors.New("the log has no such request")
	}
	if unmet := got.unmet(t.Expect, ""); unmet != "" {
		r.fail(t.at, unmet)
	}
	return nil
}

// write writes what failed, in the format of compilers, and a line for the file.
func (r *testReport) write(out io.Writer, verbose bool) {
	requests, failed := int64(0), int64(0)
	for _, t := range r.Tests {
		requests += t.Requests
		if !t.Passed {
			failed++
		}
		if verbose {
			fmt.Fprintf(out, "=== %s\n%s", t.Name, &t.shown)
		}
		for _, problem := range t.Failures {
			problem.File, problem.Field = r.File, t.Name
			fmt.Fprintln(out, problem)
		}
	}
	(&report{Problems: r.Problems}).writeProblems(out)
	for _, note := range r.Notes {
		fmt.Fprintln(out, "note:", note)
	}
	of := operate.Count(int64(len(r.Tests)), "test", "tests") + ", " + operate.Count(requests, "request", "requests")
	switch {
	case len(r.Problems) > 0:
		fmt.Fprintf(out, "FAIL  %s  cannot run\n", r.File)
	case failed > 0:
		fmt.Fprintf(out, "FAIL  %s  %d of %s\n", r.File, failed, of)
	default:
		fmt.Fprintf(out, "ok  %s  %s\n", r.File, of)
	}
}
