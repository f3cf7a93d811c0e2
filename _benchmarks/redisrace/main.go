// Command redisrace lets rate limiters that count in Redis run against each other: Weir,
// other libraries for Go, and floors that no limiter on the same client can get under. It
// starts a redis-server of its own. The figures go to standard output, in Markdown.
//
//	go -C _benchmarks run ./redisrace
//	go -C _benchmarks run ./redisrace -quick -only weir,redis_rate
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
	race.Flags
	goroutines []int
	keys       []int
	pool       int
}

func main() { race.Main("redisrace", nil, parse, run) }

func parse(args []string) (settings, error) {
	s := settings{goroutines: []int{1, 8, 64, 256}, keys: []int{10_000, 1}}
	flags := flag.NewFlagSet("redisrace", flag.ExitOnError)
	flags.Func("goroutines", "how many call at once, a `list` (default 1,8,64,256)", race.Numbers(&s.goroutines))
	flags.Func("keys", "about how many keys, a `list` (default 10000,1)", race.Numbers(&s.keys))
	flags.IntVar(&s.pool, "pool", 64, "connections of each client of go-redis")
	if err := s.Parse(flags, args, 300*time.Millisecond, 100*time.Millisecond); err != nil {
		return s, err
	}
	if s.pool < 1 {
		return s, fmt.Errorf("-pool must be above 0")
	}
	return s, nil
}

func run(ctx context.Context, s settings, out io.Writer) error {
	redis, err := race.StartServer(ctx)
	if err != nil {
		return err
	}
	defer redis.Stop()
	env := newEnvironment(redis.Addr, s.pool, slices.Max(s.keys))
	defer env.close()
	ready, err := env.open(ctx, s.Only)
	if err != nil {
		return err
	}
	plan := &race.Plan{
		Contestants: ready,
		Rounds:      s.Rounds,
		Slice:       s.Slice,
		Meters:      []race.Meter{race.ClientCPU, env.cpu()},
		Reset:       env.reset,
		Progress:    race.ProgressTo(race.Progress(os.Stderr)),
	}
	for _, keys := range s.keys {
		for _, goroutines := range s.goroutines {
			plan.Cases = append(plan.Cases, race.Case{Goroutines: goroutines, Keys: keys})
		}
	}
	server, err := env.version(ctx)
	if err != nil {
		return err
	}
	results, err := plan.Run(ctx)
	if err != nil {
		return err
	}
	report(out, plan, results, server, s)
	return s.WriteJSON(results, map[string]any{"redis": server, "modules": versions(), "pool": s.pool})
}

func report(w io.Writer, plan *race.Plan, results *race.Results, server string, s settings) {
	fmt.Fprintf(w, "# Limiters that count in Redis\n\n- %s; Redis %s on the same machine, over loopback\n", race.Machine(), server)
	fmt.Fprintf(w, "- medians over %d rounds of %v; ratios are medians of each round's; errors and refusals are sums\n", s.Rounds, s.Slice)
	fmt.Fprintf(w, "- go-redis with PoolSize %d and defaults otherwise; rueidis with its defaults\n", s.pool)
	fmt.Fprintf(w, "- %s\n", strings.Join(versions(), ", "))
	fmt.Fprintf(w, "- client CPU includes the loop that calls, the same for all; Redis CPU is its main thread's\n\n")
	for _, c := range plan.Contestants {
		fmt.Fprintf(w, "- **%s**: %s\n", c.Name, c.About)
	}
	results.WriteTables(w, redisRate)
	fmt.Fprintf(w, "\n### Goals\n\nIn parentheses: the lowest and the highest ratio of a single round.\n")
	results.WriteGoals(w, goals(slices.Max(s.keys)))
}

// libraries are those that run, by a part of their paths.
var libraries = []string{"go-redis", "redis_rate", "ulule/limiter", "throttled", "httprate", "rueidis"}

func versions() []string {
	return race.Versions(func(path string) bool {
		return slices.ContainsFunc(libraries, func(name string) bool { return strings.Contains(path, name) })
	})
}
