// Command memrace lets rate limiters that count in memory run against each other: Weir,
// other libraries for Go, what people write themselves, and a floor. The figures go to
// standard output, in Markdown.
//
//	go -C _benchmarks run ./memrace
//	go -C _benchmarks run ./memrace -quick -only weir,go-limiter
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weirgo/weir/benchmarks/race"
)

type settings struct {
	rounds    int
	slice     time.Duration
	only      []string
	cases     []string
	json      string
	svg       string
	many      []int // live keys
	fresh     int   // new keys
	held      []int // keys in memory
	strangers int   // of an attack
	progress  io.Writer
}

func main() {
	var err error
	if len(os.Args) == 3 && os.Args[1] == contestantFlag {
		err = perform(os.Args[2], os.Stdin, os.Stdout)
	} else {
		var s settings
		if s, err = parse(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "memrace:", err)
			os.Exit(2)
		}
		ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer cancel()
		err = run(ctx, s, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "memrace:", err)
		os.Exit(1)
	}
}

func parse(args []string) (settings, error) {
	s := settings{progress: os.Stderr, many: []int{100_000, 1_000_000}, fresh: 1_000_000, held: []int{1_000_000, 10_000_000}, strangers: 10_000_000}
	flags := flag.NewFlagSet("memrace", flag.ExitOnError)
	flags.IntVar(&s.rounds, "rounds", 7, "how many times every contestant runs in every case")
	flags.DurationVar(&s.slice, "slice", 150*time.Millisecond, "about how long it runs each time")
	flags.Func("only", "the `names` of those to run (default all)", list(&s.only))
	flags.Func("cases", "the `kinds` of cases to run (default all: "+strings.Join(kinds, ", ")+")", list(&s.cases))
	flags.StringVar(&s.json, "json", "", "also write the figures of each round to this `file`")
	flags.StringVar(&s.svg, "svg", "", "also draw the figures of allowed decisions to this `file`")
	quick := flags.Bool("quick", false, "one round of short slices and a smaller attack, for a look; other flags are above it")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if *quick {
		given := map[string]bool{}
		flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
		if !given["rounds"] {
			s.rounds = 1
		}
		if !given["slice"] {
			s.slice = 40 * time.Millisecond
		}
		s.held, s.strangers = []int{1_000_000}, 1_000_000
	}
	if s.rounds < 1 || s.slice <= 0 {
		return s, fmt.Errorf("-rounds and -slice must be above 0")
	}
	for _, name := range s.only {
		if _, ok := named(name); !ok {
			return s, fmt.Errorf("there is no contestant %q", name)
		}
	}
	for _, kind := range s.cases {
		if !slices.Contains(kinds, kind) {
			return s, fmt.Errorf("there is no kind of cases %q", kind)
		}
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("%q is no flag", flags.Arg(0))
	}
	return s, nil
}

func list(into *[]string) func(string) error {
	return func(text string) error {
		for name := range strings.SplitSeq(text, ",") {
			*into = append(*into, strings.TrimSpace(name))
		}
		return nil
	}
}

// kinds are the names of cases, in the order in which they run.
var kinds = []string{allowed, refused, newKeys, rules, requests, memory, flooded, besieged}

// A heat is cases that a contestant's process runs one after the other, on the same limiter.
type heat struct {
	cases  []race.Case
	rounds int
}

func (s settings) heats() []heat {
	cores := []int{1}
	if n := runtime.GOMAXPROCS(0); n > 1 {
		cores = append(cores, n)
	}
	everyCore := cores[len(cores)-1:]
	var heats []heat
	add := func(kind string, rounds int, goroutines []int, keys ...int) {
		if len(s.cases) > 0 && !slices.Contains(s.cases, kind) {
			return
		}
		for _, n := range keys {
			h := heat{rounds: rounds}
			for _, g := range goroutines {
				h.cases = append(h.cases, race.Case{Name: kind, Goroutines: g, Keys: n})
			}
			heats = append(heats, h)
		}
	}
	add(allowed, s.rounds, cores, append([]int{1}, s.many...)...)
	add(refused, s.rounds, cores, append([]int{1}, s.many...)...)
	add(newKeys, s.rounds, cores, s.fresh)
	add(rules, s.rounds, cores, 1)
	add(requests, s.rounds, cores, 1)
	add(memory, 1, cores[:1], s.held...)
	add(flooded, 1, everyCore, s.strangers)
	add(besieged, 1, everyCore, s.strangers)
	return heats
}

// A meet is all heats.
type meet struct {
	settings
	results race.Results
	cases   []race.Case
	notes   []string // on those who could not be measured
}

func run(ctx context.Context, s settings, out io.Writer) error {
	m := &meet{settings: s}
	for _, h := range s.heats() {
		if err := m.run(ctx, h); err != nil {
			return err
		}
	}
	m.report(out)
	if s.json != "" {
		if err := m.writeJSON(s.json); err != nil {
			return err
		}
	}
	if s.svg != "" {
		return os.WriteFile(s.svg, []byte(m.plot()), 0o644)
	}
	return nil
}

func (m *meet) run(ctx context.Context, h heat) error {
	processes := map[string]*process{}
	defer func() {
		for _, p := range processes {
			p.end()
		}
	}()
	out := map[string]bool{}
	plan := &race.Plan{
		Cases:    h.cases,
		Rounds:   h.rounds,
		Progress: func(done, of int, what string) { fmt.Fprintf(m.progress, "\r\033[K%d/%d %s", done, of, what) },
		Measure: func(ctx context.Context, contestant race.Contestant, c race.Case) (race.Figures, error) {
			if out[contestant.Name] {
				return nil, nil
			}
			p, err := processes[contestant.Name], error(nil)
			if p == nil {
				if p, err = start(ctx, contestant.Name); err != nil {
					return nil, err
				}
				processes[contestant.Name] = p
			}
			figures, err := p.measure(c, m.slice)
			if err != nil {
				out[contestant.Name] = true
				m.notes = append(m.notes, fmt.Sprintf("%s, %v: %v", contestant.Name, c, err))
			}
			if c.Name == memory { // each needs most of it
				p.end()
				delete(processes, contestant.Name)
			}
			return figures, nil
		},
	}
	for _, e := range entrants {
		if (len(m.only) == 0 || slices.Contains(m.only, e.name)) && e.takesPart(h.cases[0].Name) {
			plan.Contestants = append(plan.Contestants, race.Contestant{Name: e.name, About: e.about})
		}
	}
	results, err := plan.Run(ctx)
	fmt.Fprint(m.progress, "\r\033[K")
	if err != nil {
		return err
	}
	m.results.Include(results)
	m.cases = append(m.cases, h.cases...)
	return nil
}

func (m *meet) writeJSON(file string) error {
	text, err := json.MarshalIndent(map[string]any{
		"go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH, "gomaxprocs": runtime.GOMAXPROCS(0),
		"modules": versions(), "rounds": m.rounds, "slice": m.slice.String(),
		"results": &m.results, "notes": m.notes,
	}, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
