// Command memrace lets rate limiters that count in memory run against each other: Weir,
// other libraries for Go, what people write themselves, and a floor. The figures go to
// standard output, in Markdown.
//
//	go -C _benchmarks run ./memrace
//	go -C _benchmarks run ./memrace -quick -only weir,go-limiter
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir/benchmarks/race"
)

type settings struct {
	race.Flags
	cases     []string
	svg       string
	many      []int // live keys
	fresh     int   // new keys
	held      []int // keys in memory
	strangers int   // of an attack
	progress  io.Writer
}

func main() { race.Main("memrace", answerQuestions, parse, run) }

func parse(args []string) (settings, error) {
	s := settings{progress: race.Progress(os.Stderr), many: []int{100_000, 1_000_000}, fresh: 1_000_000, held: []int{1_000_000, 10_000_000}, strangers: 10_000_000}
	flags := flag.NewFlagSet("memrace", flag.ExitOnError)
	flags.Func("cases", "the `kinds` of cases to run (default all: "+strings.Join(kinds, ", ")+")", race.List(&s.cases))
	flags.StringVar(&s.svg, "svg", "", "also draw the figures of allowed decisions to this `file`")
	if err := s.Parse(flags, args, 150*time.Millisecond, 40*time.Millisecond); err != nil {
		return s, err
	}
	if s.Quick {
		s.held, s.strangers = []int{1_000_000}, 1_000_000
	}
	for _, name := range s.Only {
		if _, ok := named(name); !ok {
			return s, fmt.Errorf("there is no contestant %q", name)
		}
	}
	for _, kind := range s.cases {
		if !slices.Contains(kinds, kind) {
			return s, fmt.Errorf("there is no kind of cases %q", kind)
		}
	}
	return s, nil
}

// kinds are the names of cases, in the order in which they run.
var kinds = []string{allowed, refused, newKeys, rules, requests, memory, flooded, besieged}

// A group is cases that a contestant's process runs one after the other, on the same limiter.
type group struct {
	cases  []race.Case
	rounds int
}

func (s settings) groups() []group {
	cores := []int{1}
	if n := runtime.GOMAXPROCS(0); n > 1 {
		cores = append(cores, n)
	}
	everyCore := cores[len(cores)-1:]
	var groups []group
	add := func(kind string, rounds int, goroutines []int, keys ...int) {
		if len(s.cases) > 0 && !slices.Contains(s.cases, kind) {
			return
		}
		for _, n := range keys {
			h := group{rounds: rounds}
			for _, g := range goroutines {
				h.cases = append(h.cases, race.Case{Name: kind, Goroutines: g, Keys: n})
			}
			groups = append(groups, h)
		}
	}
	add(allowed, s.Rounds, cores, append([]int{1}, s.many...)...)
	add(refused, s.Rounds, cores, append([]int{1}, s.many...)...)
	add(newKeys, s.Rounds, cores, s.fresh)
	add(rules, s.Rounds, cores, 1)
	add(requests, s.Rounds, cores, 1)
	add(memory, 1, cores[:1], s.held...)
	add(flooded, 1, everyCore, s.strangers)
	add(besieged, 1, everyCore, s.strangers)
	return groups
}

// A benchmark is all groups.
type benchmark struct {
	settings
	results race.Results
	cases   []race.Case
	notes   []string // on contestants that could not be measured
}

func run(ctx context.Context, s settings, out io.Writer) error {
	m := &benchmark{settings: s}
	for _, h := range s.groups() {
		if err := m.run(ctx, h); err != nil {
			return err
		}
	}
	m.report(out)
	if err := m.WriteJSON(&m.results, map[string]any{"modules": versions(), "notes": m.notes}); err != nil {
		return err
	}
	if s.svg != "" {
		return os.WriteFile(s.svg, []byte(m.plot()), 0o644)
	}
	return nil
}

func (m *benchmark) run(ctx context.Context, h group) error {
	processes := map[string]*race.Child{}
	defer func() {
		for _, p := range processes {
			p.Close()
		}
	}()
	out := map[string]bool{}
	plan := &race.Plan{
		Cases:    h.cases,
		Rounds:   h.rounds,
		Progress: race.ProgressTo(m.progress),
		Measure: func(ctx context.Context, contestant race.Contestant, c race.Case) (race.Figures, error) {
			if out[contestant.Name] {
				return nil, nil
			}
			p, err := processes[contestant.Name], error(nil)
			if p == nil {
				if p, err = race.StartChild(ctx); err != nil {
					return nil, err
				}
				processes[contestant.Name] = p
			}
			figures, err := ask(p, question{contestant.Name, c, m.Slice})
			if err != nil {
				out[contestant.Name] = true
				m.notes = append(m.notes, fmt.Sprintf("%s, %v: %v", contestant.Name, c, err))
			}
			if c.Name == memory { // each needs most of it
				p.Close()
				delete(processes, contestant.Name)
			}
			return figures, nil
		},
	}
	for _, e := range contestants {
		if (len(m.Only) == 0 || slices.Contains(m.Only, e.name)) && e.takesPart(h.cases[0].Name) {
			plan.Contestants = append(plan.Contestants, race.Contestant{Name: e.name, About: e.about})
		}
	}
	results, err := plan.Run(ctx)
	if err != nil {
		return err
	}
	m.results.Include(results)
	m.cases = append(m.cases, h.cases...)
	return nil
}
