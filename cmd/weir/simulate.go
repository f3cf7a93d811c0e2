package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/simulate"
	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/middleware/rules"
)

func simulateLog(s *session, flags *pflag.FlagSet) action {
	f := newLogFlags(s, flags)
	flags.BoolVar(&f.partial, "partial", false, "leave out rules that need what the log does not have, and name them")
	return func(names []string) error {
		files, logName := names[:len(names)-1], names[len(names)-1]
		if slices.Contains(files, "-") {
			return usageError{errors.New("a rules file has to be a file: the standard input is for the log")}
		}
		shown, err := f.shown()
		if err != nil {
			return err
		}
		var loaded []*rules.Rules
		var needs []rules.Need
		var naming []string
		for _, file := range files {
			one, err := rules.Load(file, f.options())
			if err != nil {
				return err
			}
			loaded, needs = append(loaded, one), append(needs, one.Needs()...)
			naming = append(naming, one.Proxies().Header())
		}
		return f.read(logName, needs, naming, func(log *weblog) error {
			if !log.Has("method") || !log.Has("target") {
				return errors.New("the log has no requests' methods and paths: say where with --map method=PLACE --map target=PLACE, or --map request=PLACE")
			}
			notes, err := leftOut(log)
			if err != nil {
				return err
			}
			for _, need := range needs {
				if note := fmt.Sprintf("%q settles what a request really cost, which the log does not have: each costs what it reserves.", need.Rule); isSettlement(need.Of) && !slices.Contains(notes, note) {
					notes = append(notes, note)
				}
			}
			run, err := newRun(log, loaded)
			if err != nil {
				return err
			}
			err = run.each(func(e *accesslog.Entry, decisions []*simulate.Decision) {
				for i, d := range decisions {
					run.tallies[i].Add(e, e.At, d)
				}
				run.changes.Add(decisions[0].Passed(), decisions[len(decisions)-1].Passed())
			})
			if err != nil {
				return err
			}
			return run.write(append(notes, run.notes(loaded)...), shown)
		})
	}
}

// leftOut names the rules that need an input that the log lacks: in an error, or with --partial
// in notes.
func leftOut(log *weblog) (notes []string, err error) {
	of := map[string][]string{}
	for _, need := range log.missing {
		of[need.Of] = append(of[need.Of], fmt.Sprintf("%q", need.Rule))
	}
	var errs []error
	for _, need := range slices.Sorted(maps.Keys(of)) {
		names := strings.Join(of[need], ", ")
		note := fmt.Sprintf("Left out: %s. The log does not have %s.", names, need)
		if need == "tier" { // default is not for a tier with rules of its own
			note += " Every request counts as if it had no tier."
		}
		notes = append(notes, note)
		where := "say where with --map " + need + "=PLACE, or "
		if need == "route" {
			where = "say with --route PATTERN which the service has, or "
		} else if strings.HasPrefix(need, "json:") || strings.HasPrefix(need, "form:") {
			where = "" // no log has bodies
		}
		errs = append(errs, fmt.Errorf("%s: the log does not have %s: %sleave such rules out with --partial", names, need, where))
	}
	if log.flags.partial {
		return notes, nil
	}
	return nil, errors.Join(errs...)
}

// A run simulates one or two files of rules on a log.
type run struct {
	log      *weblog
	services []*simulate.Simulation // one for each file
	tallies  []*simulate.Tally
	changes  simulate.Changes
}

func newRun(log *weblog, loaded []*rules.Rules) (*run, error) {
	r := &run{log: log}
	var left []string
	for _, need := range log.missing {
		left = append(left, need.Rule)
	}
	for i, of := range loaded {
		o := log.options(i)
		o.LeftOut, o.Routes, o.Client = left, append(of.Routes(), o.Routes...), of.IP()
		service, err := simulate.New(of.Config(), o)
		if err != nil {
			return nil, err
		}
		r.services = append(r.services, service)
		r.tallies = append(r.tallies, simulate.NewTally(service.Rules()))
	}
	return r, nil
}

// each calls do with each request of the log, and the decision of each service.
func (r *run) each(do func(*accesslog.Entry, []*simulate.Decision)) error {
	decisions := make([]*simulate.Decision, len(r.services))
	return r.log.each(func(e *accesslog.Entry) error {
		for i, service := range r.services {
			decisions[i] = service.Do(e, e.At)
			if err := r.log.lacksClients(i, service.Peers().Unnamed); err != nil {
				return err
			}
		}
		do(e, decisions)
		return nil
	})
}

// notes returns what a simulation leaves out or takes from the log.
func (r *run) notes(loaded []*rules.Rules) (notes []string) {
	for i, service := range r.services {
		notes = append(notes, notSimulated(loaded[i], service)...)
		for _, name := range service.Bounded() {
			note := "A request has its slot for as long as the log says that it took."
			if !r.log.Has("took") {
				note = fmt.Sprintf("Not simulated: the concurrency of %q. "+
					"The log does not have how long requests took: say where with --map took_ms=PLACE.", name)
			}
			notes = append(notes, note)
		}
	}
	slices.Sort(notes)
	return slices.Compact(notes)
}

// notSimulated returns notes on the parts of rules that a simulation leaves out.
func notSimulated(of *rules.Rules, service *simulate.Simulation) (notes []string) {
	if of.Config().Overload != nil {
		notes = append(notes, "Not simulated: the overload section.")
	}
	for _, name := range service.Unqueued() {
		notes = append(notes, fmt.Sprintf(
			"Not simulated: the queue of %q. A request that would wait there for a slot counts as refused.", name))
	}
	return notes
}

// write writes the result.
func (r *run) write(notes []string, shown func(string) string) error {
	last := r.tallies[len(r.tallies)-1]
	summary := last.Summary(mostInJSON, shown)
	verdict, detail := simulated(summary)
	var change *simulate.Change
	if len(r.tallies) > 1 {
		change = simulate.Compare(r.tallies[0], last, r.changes, mostInJSON, shown)
		verdict, detail = changed(change)
	}
	peers := r.services[0].Peers()
	if last := r.services[len(r.services)-1].Peers(); last != (simulate.Peers{}) {
		peers = last
	}
	begin := r.log.found(verdict, detail, notes, peers, summary.Answered)
	said := struct {
		finding
		*simulate.Summary
		Change *simulate.Change `json:"change,omitempty"`
	}{begin, summary, change}
	return r.log.flags.write(said, func(table io.Writer) {
		begin.write(table)
		fmt.Fprintln(table, "RULE\tLIMIT\tASKED\tREFUSED\tKEYS")
		for _, rule := range summary.Rules {
			name := ruleName(rule.Rule, rule.Tier)
			if rule.Shadow {
				name += ", in shadow"
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", name, rule.Limit, operate.Number(rule.Asked), operate.Number(rule.Refused), operate.Number(rule.Keys))
		}
		if change != nil && len(change.Clients) > 0 {
			fmt.Fprintln(table, "\nCLIENT\tREQUESTS\tREFUSED, OLD\tNEW")
			for _, c := range change.Clients[:min(mostOnTerminal, len(change.Clients))] {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", c.Client, operate.Number(c.Requests), operate.Number(c.Old), operate.Number(c.New))
			}
		} else if change == nil && len(summary.Hit) > 0 {
			fmt.Fprintln(table, "\nCLIENT\tREFUSED\tOF\tBY\tFIRST")
			for _, c := range summary.Hit[:min(mostOnTerminal, len(summary.Hit))] {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", c.Client, operate.Number(c.Stopped), operate.Number(c.Requests), c.By, c.First.Format(time.DateTime))
			}
		}
	})
}
