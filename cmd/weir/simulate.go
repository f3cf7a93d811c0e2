package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirgo/weir/cmd/weir/internal/simulate"
	"github.com/weirgo/weir/cmd/weir/internal/verdict"
	"github.com/weirgo/weir/middleware/rules"
)

// How many clients are told of.
const (
	mostOnTerminal = 10
	mostInReport   = 100
)

func simulateLog(s *session, flags *pflag.FlagSet) action {
	f := newLogFlags(flags)
	return func(names []string) error {
		if len(names) < 2 || len(names) > 3 {
			return usageError{errors.New("name a rules file, or an old and a new one, and a log, or - for the standard input")}
		}
		shown, err := f.shown()
		if err != nil {
			return err
		}
		files, logName := names[:len(names)-1], names[len(names)-1]
		if slices.Contains(files, "-") {
			return usageError{errors.New("a rules file has to be a file: the standard input is for the log")}
		}
		var needs []rules.Need
		bounded := false
		for _, file := range files {
			loaded, err := rules.Load(file, f.options())
			if err != nil {
				return err
			}
			needs = append(needs, loaded.Needs()...)
			bounded = bounded || loaded.Config().Overload != nil
		}
		log, missing, err := s.open(logName, f, needs)
		if err != nil {
			return err
		}
		defer log.file.Close()
		if !log.Has("method") || !log.Has("target") {
			return fmt.Errorf("%s: the log has no requests' methods and paths: say where with --map method=PLACE --map target=PLACE, or --map request=PLACE", logName)
		}
		notes, err := partly(missing, f)
		if err != nil {
			return err
		}
		for _, need := range needs {
			if note := fmt.Sprintf("%q settles what a request really cost, which the log does not have: each costs what it reserves.", need.Rule); need.Of == "settled" && !slices.Contains(notes, note) {
				notes = append(notes, note)
			}
		}
		if bounded {
			notes = append(notes, "The overload section is left out: a log does not say how much the service could do.")
		}
		collectOften()
		run := &run{flags: f, log: log}
		for _, need := range missing {
			run.left = append(run.left, need.Rule)
		}
		if err := run.all(files); err != nil {
			return fmt.Errorf("%s: %w", logName, err)
		}
		return run.tell(s, names, notes, shown)
	}
}

// A run is of one file of rules, or two, over a log.
type run struct {
	flags *logFlags
	log   *weblog
	left  []string // rules that need what the log lacks

	services []*simulate.Simulation // one for each file
	tallies  []*simulate.Tally
	changes  simulate.Changes
}

// all decides about all requests of the log.
func (r *run) all(files []string) error {
	for _, file := range files {
		loaded, err := rules.Load(file, r.flags.options())
		if err != nil {
			return err
		}
		service, err := simulate.New(loaded.Config(), simulate.Options{
			LeftOut: r.left, Routes: append(loaded.Routes(), r.flags.routes...), ServeMux: r.flags.serveMux,
			Headers: r.log.Headers(), Client: loaded.IP(), HasTook: r.log.Has("took"),
		})
		if err != nil {
			return err
		}
		r.services = append(r.services, service)
		r.tallies = append(r.tallies, simulate.NewTally(service.Rules()))
	}
	passed := make([]bool, len(files))
	for {
		e, err := r.log.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for i, service := range r.services {
			d := service.Do(e, e.At)
			r.tallies[i].Add(e, e.At, d)
			passed[i] = d.Passed()
		}
		r.changes.Add(passed[0], passed[len(passed)-1])
	}
}

// places says what a simulation knows of how many requests are in progress, if rules bound that:
// what the log says, or nothing, and then their names.
func (r *run) places() (notes []string) {
	var left, queued []string
	bounded := false
	for _, service := range r.services {
		left, queued = append(left, service.Unplaced()...), append(queued, service.Unqueued()...)
		for _, rule := range service.Rules() {
			bounded = bounded || rule.Concurrency.Max > 0
		}
	}
	named := func(names []string) string {
		slices.Sort(names)
		return strings.Trim(fmt.Sprintf("%q", slices.Compact(names)), "[]")
	}
	if len(left) > 0 {
		return []string{"Not simulated: the concurrency of " + named(left) + ". The log does not have how long requests took: say where with --map took_ms=PLACE."}
	}
	if bounded {
		notes = append(notes, "A request has its slot for as long as the log says that it took.")
	}
	if len(queued) > 0 {
		notes = append(notes, "Not simulated: the queue of "+named(queued)+". A request that would wait there for a slot counts as refused.")
	}
	return notes
}

// tell says what came of it.
func (r *run) tell(s *session, names, notes []string, shown func(string) string) error {
	last := len(r.tallies) - 1
	summary := r.tallies[last].Summary(mostInReport, shown)
	page := &verdict.Page{Title: titleOf(names), Words: verdict.Simulated(summary), Summary: summary}
	var change *simulate.Change
	if last > 0 {
		change = simulate.Compare(r.tallies[0], r.tallies[1], r.changes, mostInReport, shown)
		page.Change, page.Words = change, verdict.Changed(change)
	}
	stats := r.log.Stats()
	page.Notes = append(slices.Concat(notes, r.places(), r.log.anonymous(r.flags)), verdict.Log(&stats, summary.Answered)...)
	if err := writeReport(r.flags.report, page); err != nil {
		return err
	}
	if r.flags.asJSON {
		said := struct {
			Verdict string `json:"verdict"`
			*simulate.Summary
			Change *simulate.Change `json:"change,omitempty"`
			Log    logReport        `json:"log"`
			Notes  []string         `json:"notes"`
		}{page.Verdict, summary, change, newLogReport(&stats), append([]string{}, page.Notes...)}
		return writeJSON(s.out, said)
	}
	s.say(page)
	table := newTable(s)
	fmt.Fprintln(table, "RULE\tLIMIT\tASKED\tREFUSED\tKEYS")
	for _, rule := range summary.Rules {
		name := ruleName(rule.Rule, rule.Tier)
		if rule.Shadow {
			name += ", in shadow"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", name, rule.Limit, verdict.Number(rule.Asked), verdict.Number(rule.Refused), verdict.Number(rule.Keys))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if change != nil && len(change.Clients) > 0 {
		fmt.Fprintln(table, "\nCLIENT\tREQUESTS\tREFUSED, OLD\tNEW")
		for _, c := range change.Clients[:min(mostOnTerminal, len(change.Clients))] {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", c.Client, verdict.Number(c.Requests), verdict.Number(c.Old), verdict.Number(c.New))
		}
	} else if change == nil && len(summary.Hit) > 0 {
		fmt.Fprintln(table, "\nCLIENT\tREFUSED\tOF\tBY\tFIRST")
		for _, c := range summary.Hit[:min(mostOnTerminal, len(summary.Hit))] {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", c.Client, verdict.Number(c.Stopped), verdict.Number(c.Requests), c.By, c.First.Format("2006-01-02 15:04:05"))
		}
	}
	return table.Flush()
}

// say writes what a page begins with.
func (s *session) say(page *verdict.Page) {
	fmt.Fprintf(s.out, "%s\n%s\n", page.Verdict, page.Detail)
	for _, note := range page.Notes {
		fmt.Fprintln(s.out, "note:", note)
	}
	fmt.Fprintln(s.out)
}

func titleOf(names []string) string {
	title := ""
	for i, name := range names {
		if i > 0 {
			title += ", "
		}
		if name == "-" {
			name = "standard input"
		}
		title += filepath.Base(name)
	}
	return title
}

// writeReport writes a page to a file, if there is to be one.
func writeReport(name string, page *verdict.Page) error {
	if name == "" {
		return nil
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(page.Write(file), file.Close())
}
