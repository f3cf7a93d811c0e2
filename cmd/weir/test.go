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
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

// testFlags are the flags of test.
type testFlags struct {
	*session
	rules, tiers, keys *string
	run                string
	only               *regexp.Regexp
	verbose            bool
}

// A testReport is the result of test on a file, as JSON.
type testReport struct {
	File     string          `json:"file"`
	Passed   bool            `json:"passed"`
	Tests    []testResult    `json:"tests"`
	Problems []rules.Problem `json:"problems"` // why the tests cannot run
	Notes    []string        `json:"notes"`    // what of the rules is not tested
}

func testRules(s *session, flags *pflag.FlagSet) action {
	f := &testFlags{session: s}
	out := s.output(flags)
	f.rules = flags.String("rules", "", "the `file` with the rules, in place of the test files' own")
	flags.StringVar(&f.run, "run", "", "only tests whose name matches this regular `expression`")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "show the decisions of each step, and what explain says about it")
	first := flags.Bool("init", false, "print a first test file for the rules in FILE")
	f.tiers, f.keys = knowing(flags)
	return func(files []string) (err error) {
		if *first {
			return f.init(files)
		}
		if f.only, err = regexp.Compile(f.run); err != nil {
			return usageError{fmt.Errorf("--run: %w", err)}
		}
		var reports []*testReport
		tests, failed, unreadable := 0, false, false
		for _, file := range files {
			r := f.test(file)
			reports, tests = append(reports, r), tests+len(r.Tests)
			failed, unreadable = failed || !r.Passed, unreadable || len(r.Problems) > 0
		}
		err = out.write(reports, func(table io.Writer) {
			for _, r := range reports {
				r.write(table, f.verbose)
			}
		})
		switch {
		case err != nil:
			return err
		case unreadable:
			return errUnreadable
		case tests == 0:
			return usageError{errors.New("--run matches no test")}
		case failed:
			return errBad
		}
		return nil
	}
}

// test runs the tests of a file.
func (f *testFlags) test(file string) *testReport {
	r := &testReport{File: file, Tests: []testResult{}, Problems: []rules.Problem{}, Notes: []string{}}
	err := f.runAll(r)
	var wrong *rules.Error
	switch {
	case errors.As(err, &wrong):
		r.Problems = wrong.Problems
	case err != nil:
		r.Problems = []rules.Problem{{File: file, Message: file + ": " + inWords(err)}}
	}
	r.Passed = err == nil && !slices.ContainsFunc(r.Tests, func(t testResult) bool { return !t.Passed })
	return r
}

func (f *testFlags) runAll(r *testReport) error {
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
	service, err := f.service(file, tests.Start)
	if err != nil {
		return err
	}
	if tests.checkNames(service.Rules(), list(*f.tiers)); tests.err() != nil {
		return tests.err()
	}
	r.Notes = append(r.Notes, service.notes()...)
	for i := range tests.Tests {
		t := &tests.Tests[i]
		if !f.only.MatchString(t.Name) {
			continue
		}
		if service, err = f.service(file, tests.Start); err != nil {
			return err
		}
		result := testResult{Name: t.Name, Line: t.line, Passed: true, Failures: []rules.Problem{}}
		if t.Log == "" {
			service.run(t, &result)
		} else if err := f.runLog(service.rules, beside(r.File, t.Log), t, &result); err != nil {
			tests.problem(t.place, "%s", inWords(err))
			return tests.err()
		}
		r.Tests = append(r.Tests, result)
	}
	return nil
}

// beside returns the path of a file that another file names, or "" for no name.
func beside(file, name string) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(file), name)
}

// checkNames reports the rules and tiers that the tests name and the rules do not have.
func (f *testFile) checkNames(infos []middleware.RuleInfo, tiers []string) {
	var names []string
	for _, info := range infos {
		names, tiers = append(names, info.Name), append(tiers, info.Tier, info.ForTier)
	}
	unknown := func(at place, what, name string, known []string) {
		if name != "" && !slices.Contains(known, name) {
			f.problem(at, "the rules have no %s %q%s", what, name, didYouMean(name, known))
		}
	}
	for _, t := range f.Tests {
		unknown(t.place, "tier", t.Tier, tiers)
		for _, s := range t.Steps {
			unknown(s.place, "tier", s.Tier, tiers)
			unknown(s.place, "rule", s.Rule, names)
		}
	}
}

// inTestFile replaces simulate's flags with the fields of a test.
var inTestFile = strings.NewReplacer("--map ", "map: ", "--zone UTC", "zone: UTC", "--zone", "zone", "--trust", "trust",
	", or leave such rules out with --partial", "", ": leave such rules out with --partial", "",
	", or count the proxy with --partial", "", "--format", "format")

// runLog runs a test with a log.
func (f *testFlags) runLog(loaded *rules.Rules, name string, t *ruleTest, r *testResult) error {
	flags := &logFlags{session: f.session, format: t.Format, mapped: t.Map, trusted: t.Trust, keys: *f.keys}
	if t.Zone != "" {
		flags.zone, _ = zoneNamed(t.Zone) // was checked
	}
	needs := loaded.Needs()
	if t.Tier != "" {
		needs = append(needs, rules.Need{Rule: t.Name, Of: "tier"})
	}
	var got tally
	err := flags.read(name, needs, []string{loaded.Proxies().Header()}, func(log *weblog) error {
		if _, err := leftOut(log); err != nil {
			return err
		}
		run, err := newRun(log, []*rules.Rules{loaded})
		if err != nil {
			return err
		}
		if names := run.services[0].Unplaced(); len(names) > 0 {
			return fmt.Errorf("%s needs how long requests took, which the log does not have: say where with map: took_ms=PLACE",
				strings.Join(names, ", "))
		}
		return run.each(func(e *accesslog.Entry, decisions []*simulate.Decision) {
			if t.Tier == "" || t.Tier == e.Tier {
				got.add(decisions[0])
				r.Requests++
			}
		})
	})
	switch {
	case err != nil:
		return errors.New(inTestFile.Replace(err.Error()))
	case r.Requests == 0:
		return errors.New("the log has no such request")
	}
	if unmet := got.unmet(t.Expect, ""); unmet != "" {
		r.fail(t.place, unmet)
	}
	return nil
}

// notes say what of the rules is not tested.
func (t *tested) notes() (notes []string) {
	for _, name := range t.Unqueued() {
		notes = append(notes, fmt.Sprintf(
			"Not tested: the queue of %q. A request that would wait there for a slot counts as refused.", name))
	}
	if t.rules.Config().Overload != nil {
		notes = append(notes, "Not tested: the overload section.")
	}
	return notes
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
			fmt.Fprintf(out, "=== %s\n", t.Name)
			for _, line := range t.shown {
				fmt.Fprintf(out, "    %s\n", line)
			}
		}
		for _, f := range t.Failures {
			fmt.Fprintf(out, "%s:%d:%d: %s: %s\n", r.File, f.Line, f.Column, t.Name, f.Message)
		}
	}
	(&report{Problems: r.Problems}).writeProblems(out)
	for _, note := range r.Notes {
		fmt.Fprintln(out, "note:", note)
	}
	of := fmt.Sprintf("%s, %s", count(int64(len(r.Tests)), "test", "tests"), count(requests, "request", "requests"))
	switch {
	case len(r.Problems) > 0:
		fmt.Fprintf(out, "FAIL  %s  cannot run\n", r.File)
	case failed > 0:
		fmt.Fprintf(out, "FAIL  %s  %d of %s\n", r.File, failed, of)
	default:
		fmt.Fprintf(out, "ok  %s  %s\n", r.File, of)
	}
}
