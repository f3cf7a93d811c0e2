// Command httprace lets rate limiters for HTTP run against each other in whole servers: each
// serves in a process of its own, this one is the client, and what counts is the CPU time that
// the server takes for a request. The figures go to standard output, in Markdown.
//
//	go -C _benchmarks run ./httprace
//	go -C _benchmarks run ./httprace -quick -only weir,go-limiter
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weirgo/weir/benchmarks/race"
)

// inProcess is behind a stage in the name of a case without a network.
const inProcess = " in process"

// kinds are the names of cases.
var kinds = []string{allowed, refused, allowed + inProcess, refused + inProcess}

type settings struct {
	race.Flags
	kinds       []string
	connections int
	progress    io.Writer
}

func main() {
	var err error
	if len(os.Args) == 4 && os.Args[1] == contestantFlag {
		err = perform(os.Args[2], os.Args[3], os.Stdin, os.Stdout)
	} else {
		var s settings
		if s, err = parse(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "httprace:", err)
			os.Exit(2)
		}
		ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer cancel()
		err = run(ctx, s, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "httprace:", err)
		os.Exit(1)
	}
}

func parse(args []string) (settings, error) {
	s := settings{progress: race.Progress(os.Stderr)}
	flags := flag.NewFlagSet("httprace", flag.ExitOnError)
	flags.Func("cases", "the `kinds` of cases to run (default all: "+strings.Join(kinds, ", ")+")", race.List(&s.kinds))
	flags.IntVar(&s.connections, "connections", 8, "how many the client has, each of which asks again as soon as it has an answer")
	if err := s.Parse(flags, args, 400*time.Millisecond, 200*time.Millisecond); err != nil {
		return s, err
	}
	if s.connections < 1 {
		return s, fmt.Errorf("-connections is %d: it must be above 0", s.connections)
	}
	for _, name := range s.Only {
		if _, ok := named(name); !ok {
			return s, fmt.Errorf("there is no contestant %q", name)
		}
	}
	for _, kind := range s.kinds {
		if !slices.Contains(kinds, kind) {
			return s, fmt.Errorf("there is no kind of cases %q", kind)
		}
	}
	if s.kinds == nil {
		s.kinds = kinds
	}
	return s, nil
}

// caseOf is by its name: the number of goroutines is that of connections.
func (s settings) caseOf(kind string) race.Case {
	if strings.HasSuffix(kind, inProcess) {
		return race.Case{Name: kind, Goroutines: 1, Keys: 1}
	}
	return race.Case{Name: kind, Goroutines: s.connections, Keys: 1}
}

func (s settings) plan() *race.Plan {
	plan := &race.Plan{
		Rounds:  s.Rounds,
		Slice:   s.Slice,
		Metrics: slices.Concat(serverMetrics, loopMetrics),
		Progress: func(done, of int, what string) {
			fmt.Fprintf(s.progress, "\r\033[K%d/%d %s", done, of, what)
		},
	}
	for _, e := range contestants {
		if len(s.Only) == 0 || slices.Contains(s.Only, e.Name) {
			plan.Contestants = append(plan.Contestants, race.Contestant{Name: e.Name, About: e.About})
		}
	}
	for _, kind := range s.kinds {
		plan.Cases = append(plan.Cases, s.caseOf(kind))
	}
	return plan
}

// measure runs the plan, with a process for each contestant and stage.
func (s settings) measure(ctx context.Context) (*race.Results, error) {
	type place struct{ name, stage string }
	processes := map[place]*process{}
	defer func() {
		for _, p := range processes {
			p.end()
		}
	}()
	plan := s.plan()
	plan.Measure = func(ctx context.Context, contestant race.Contestant, c race.Case) (race.Figures, error) {
		stage, alone := strings.CutSuffix(c.Name, inProcess)
		e, _ := named(contestant.Name)
		if !e.takesPart(stage) {
			return nil, nil
		}
		p := processes[place{e.Name, stage}]
		if p == nil {
			var err error
			if p, err = start(ctx, e, stage, s.connections); err != nil {
				return nil, err
			}
			processes[place{e.Name, stage}] = p
		}
		if alone {
			return p.measureLoop(s.Slice)
		}
		return p.measureServer(s.Slice)
	}
	results, err := plan.Run(ctx)
	fmt.Fprint(s.progress, "\r\033[K")
	return results, err
}

func run(ctx context.Context, s settings, out io.Writer) error {
	results, err := s.measure(ctx)
	if err != nil {
		return err
	}
	s.report(out, results)
	return s.WriteJSON(results, map[string]any{"connections": s.connections, "modules": versions()})
}
