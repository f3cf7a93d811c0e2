// Command pacerace calls a third party that has limits, from three processes with 64 callers
// each: through package pace, and through what is used in its place. The third party, nginx or
// Weir, keeps count of what arrives. The program starts it, and a redis-server that the
// processes share. The figures go to standard output, in Markdown.
//
//	go -C _benchmarks run ./pacerace
//	go -C _benchmarks run ./pacerace -quick -cases weir,cooldown
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir/benchmarks/race"
)

type settings struct {
	race.Flags
	cases   []string
	callers int
}

func main() { race.Main("pacerace", serveTasks, parse, run) }

func parse(args []string) (settings, error) {
	s := settings{}
	flags := flag.NewFlagSet("pacerace", flag.ContinueOnError)
	flags.Func("cases", "the `names` of cases to run (default all: "+strings.Join(caseNames(), ", ")+")", race.List(&s.cases))
	flags.IntVar(&s.callers, "callers", 64, "goroutines in each process, each of which asks again as soon as it has an answer")
	if err := s.Parse(flags, args, 5*time.Second, 2*time.Second); err != nil {
		return s, err
	}
	if s.callers < 1 {
		return s, fmt.Errorf("-callers is %d: it must be above 0", s.callers)
	}
	for _, name := range s.Only {
		if _, ok := named(name); !ok {
			return s, fmt.Errorf("there is no contestant %q", name)
		}
	}
	for _, name := range s.cases {
		if !slices.Contains(caseNames(), name) {
			return s, fmt.Errorf("there is no case %q", name)
		}
	}
	return s, nil
}

func run(ctx context.Context, s settings, out io.Writer) error {
	redis, err := race.StartServer(ctx)
	if err != nil {
		return err
	}
	defer redis.Stop()
	processes, err := startService(ctx)
	if err != nil {
		return err
	}
	defer processes.close()

	results := &race.Results{}
	field := &field{settings: s, redis: redis, service: processes, complaints: map[string]string{}}
	var ran []kind
	for _, k := range kinds {
		if len(s.cases) > 0 && !slices.Contains(s.cases, k.name) {
			continue
		}
		these, err := field.run(ctx, k)
		if err != nil {
			return err
		}
		results.Include(these)
		ran = append(ran, k)
	}
	report(out, s, results, ran, field.complaints)
	return s.WriteJSON(results, map[string]any{"callers": s.callers, "processes": len(processes), "modules": versions()})
}

func report(out io.Writer, s settings, results *race.Results, ran []kind, complaints map[string]string) {
	fmt.Fprintf(out, "# Calling a third party that has limits\n\n- %s; %d processes with %d callers each, which share a redis-server, over loopback\n", race.Machine(), processes, s.callers)
	fmt.Fprintf(out, "- medians over %d rounds of %v; 429s are sums\n", s.Rounds, s.Slice)
	fmt.Fprintf(out, "- %s\n\n", strings.Join(versions(), ", "))
	for _, c := range contestants {
		fmt.Fprintf(out, "- **%s**: %s\n", c.name, c.about)
	}
	for _, k := range ran {
		fmt.Fprintf(out, "\n### %s: %s\n\n", k.name, k.about)
		results.WriteCase(out, k.raceCase(s), k.metrics, nil)
	}
	for _, name := range slices.Sorted(maps.Keys(complaints)) {
		fmt.Fprintf(out, "\nThe first error of %s: %s\n", name, complaints[name])
	}
	fmt.Fprintf(out, "\n### Goals\n")
	results.WriteGoals(out, goals(s))
}

// libraries are those that run, by a part of their paths.
var libraries = []string{"go-redis", "x/time", "go-retryablehttp"}

func versions() []string {
	return race.Versions(func(path string) bool {
		return slices.ContainsFunc(libraries, func(name string) bool { return strings.Contains(path, name) })
	})
}
