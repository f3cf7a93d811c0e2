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
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weirgo/weir/benchmarks/race"
)

type settings struct {
	race.Flags
	goroutines []int
	keys       []int
	pool       int
}

func main() {
	s, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "redisrace:", err)
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, s, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "redisrace:", err)
		os.Exit(1)
	}
}

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
	addr, stop, err := startServer(ctx)
	if err != nil {
		return err
	}
	defer stop()
	course := newCourse(addr, s.pool, slices.Max(s.keys))
	defer course.close()
	contestants, err := course.contestants(ctx, s.Only)
	if err != nil {
		return err
	}
	progress := race.Progress(os.Stderr)
	plan := &race.Plan{
		Contestants: contestants,
		Rounds:      s.Rounds,
		Slice:       s.Slice,
		Meters:      []race.Meter{race.ClientCPU, course.cpu()},
		Reset:       course.reset,
		Progress:    func(done, of int, what string) { fmt.Fprintf(progress, "\r\033[K%d/%d %s", done, of, what) },
	}
	for _, keys := range s.keys {
		for _, goroutines := range s.goroutines {
			plan.Cases = append(plan.Cases, race.Case{Goroutines: goroutines, Keys: keys})
		}
	}
	server, err := course.version(ctx)
	if err != nil {
		return err
	}
	results, err := plan.Run(ctx)
	fmt.Fprint(progress, "\r\033[K")
	if err != nil {
		return err
	}
	report(out, plan, results, server, s)
	return s.WriteJSON(results, map[string]any{"redis": server, "modules": versions(), "pool": s.pool})
}

func report(w io.Writer, plan *race.Plan, results *race.Results, server string, s settings) {
	fmt.Fprintf(w, "# Limiters that count in Redis\n\n")
	fmt.Fprintf(w, "- %s on %s/%s, GOMAXPROCS %d; Redis %s on the same machine, over loopback\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), server)
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

// versions are of the libraries that run.
func versions() []string {
	var versions []string
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		for _, name := range []string{"go-redis", "redis_rate", "ulule/limiter", "throttled", "httprate", "rueidis"} {
			if strings.Contains(m.Path, name) {
				versions = append(versions, strings.TrimPrefix(m.Path, "github.com/")+" "+m.Version)
				break
			}
		}
	}
	return versions
}
