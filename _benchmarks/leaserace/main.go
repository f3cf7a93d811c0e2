// Command leaserace shows what the modes of leasestore cost and what they buy: three
// instances, each a process of its own, ask for the same keys of one redis-server, which the
// program starts. Every decision is recorded, and compared with what an exact limiter would
// have said to the very same requests. The tables go to standard output, in Markdown.
//
//	go -C _benchmarks run ./leaserace
//	go -C _benchmarks run ./leaserace -quick -limits 100 -svg plot.svg
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir/benchmarks/race"
)

type settings struct {
	duration time.Duration
	load     float64 // decisions per second of all instances
	keys     int
	limits   []int
	traffics []string
	modes    []string
	svg      string
}

// What there is.
var (
	modes    = []string{exact, leased, synchronized}
	traffics = []string{steady, bursty}
)

const (
	exact, leased, synchronized = "exact", "leased", "synchronized"

	// memory is a floor, only if asked for: a store in each process, which shares nothing.
	memory = "memory"

	steady, bursty = "steady", "bursty"
)

// shares is how the load is split.
var shares = []float64{0.6, 0.3, 0.1}

func main() { race.Main("leaserace", runInstance, parse, run) }

func parse(args []string) (settings, error) {
	s := settings{limits: []int{10, 100, 300}, traffics: traffics, modes: modes}
	flags := flag.NewFlagSet("leaserace", flag.ContinueOnError)
	flags.DurationVar(&s.duration, "duration", 30*time.Second, "how long each mode runs under each limit and traffic")
	flags.Float64Var(&s.load, "load", 20_000, "decisions per second of all instances together")
	flags.IntVar(&s.keys, "keys", 1000, "how many keys, of which the first is asked for most (Zipf 1.1)")
	flags.Func("limits", "events per second of each key, a `list` (default 10,100,300)", race.Numbers(&s.limits))
	flags.Func("traffic", "steady, bursty or both, a `list` (default both)", names(&s.traffics, traffics))
	flags.Func("modes", "a `list` of exact, leased and synchronized (default all), and memory, a floor that shares nothing", names(&s.modes, append(modes, memory)))
	flags.StringVar(&s.svg, "svg", "", "also draw the hottest key's admissions to this `file`")
	quick := flags.Bool("quick", false, "for a look: 5 seconds each")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if *quick {
		s.duration = 5 * time.Second
	}
	if s.duration < 100*time.Millisecond || s.load <= 0 || s.keys < 2 {
		return s, fmt.Errorf("-duration is %v, -load is %g and -keys is %d: they must be at least 100ms, above 0 and at least 2", s.duration, s.load, s.keys)
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("%q is no flag", flags.Arg(0))
	}
	return s, nil
}

// names reads a list of some of those there are.
func names(into *[]string, of []string) func(string) error {
	return func(list string) error {
		*into = nil
		if err := race.List(into)(list); err != nil {
			return err
		}
		for _, name := range *into {
			if !slices.Contains(of, name) {
				return fmt.Errorf("%q is none of %s", name, strings.Join(of, ", "))
			}
		}
		return nil
	}
}

func run(ctx context.Context, s settings, out io.Writer) error {
	server, err := race.StartServer(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	fmt.Fprintf(out, "# Leases: %d instances, %d keys (Zipf 1.1), %g decisions/s split %v, %v each\n\n", len(shares), s.keys, s.load, shares, s.duration)
	fmt.Fprintf(out, "- %s; one redis-server on the same machine, over loopback\n", race.Machine())
	fmt.Fprintf(out, "- token buckets with a burst of a second's events; bursty is four times the load for half a second, every two seconds\n")
	fmt.Fprintf(out, "- below and above compare with an exact limiter's answers to the same requests\n")
	plan := &race.Plan{Rounds: 1, Metrics: metrics, Progress: race.ProgressTo(race.Progress(os.Stderr))}
	for _, mode := range s.modes {
		plan.Contestants = append(plan.Contestants, race.Contestant{Name: mode})
	}
	todo := map[race.Case]measurement{}
	for _, limit := range s.limits {
		for _, traffic := range s.traffics {
			m := measurement{Traffic: traffic, Limit: int64(limit), Keys: s.keys, Load: s.load, Duration: s.duration}
			c := race.Case{Name: fmt.Sprintf("%d/s, %s", limit, traffic), Goroutines: workers * len(shares), Keys: s.keys}
			plan.Cases = append(plan.Cases, c)
			todo[c] = m
		}
	}
	var reports []*report
	plan.Measure = func(ctx context.Context, contestant race.Contestant, c race.Case) (race.Figures, error) {
		m := todo[c]
		m.Mode = contestant.Name
		r, err := m.run(ctx, environment{server})
		if err != nil {
			return nil, err
		}
		reports = append(reports, r)
		return r.figures, nil
	}
	results, err := plan.Run(ctx)
	if err != nil {
		return err
	}
	var all []race.Goal
	for _, c := range plan.Cases {
		fmt.Fprintf(out, "\n### %v\n\n", c)
		results.WriteCase(out, c, metrics, nil)
		all = append(all, goals(c, float64(todo[c].Limit))...)
	}
	for _, r := range reports {
		if r.err != "" {
			fmt.Fprintf(out, "\nThe first error of %v: %s\n", r.measurement, r.err)
		}
	}
	fmt.Fprintf(out, "\n### Goals\n")
	results.WriteGoals(out, all)
	if s.svg != "" {
		return os.WriteFile(s.svg, []byte(plot(s, reports)), 0o644)
	}
	return nil
}
