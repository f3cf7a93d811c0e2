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
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
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

func main() {
	if len(os.Args) == 2 && os.Args[1] == instanceFlag {
		if err := perform(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "leaserace: instance:", err)
			os.Exit(1)
		}
		return
	}
	s, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "leaserace:", err)
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, s, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "leaserace:", err)
		os.Exit(1)
	}
}

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
	server, err := startServer(ctx)
	if err != nil {
		return err
	}
	defer server.stop()
	fmt.Fprintf(out, "# Leases: %d instances, %d keys (Zipf 1.1), %g decisions/s split %v, %v each\n\n", len(shares), s.keys, s.load, shares, s.duration)
	fmt.Fprintf(out, "- %s on %s/%s, GOMAXPROCS %d; one redis-server on the same machine, over loopback\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))
	fmt.Fprintf(out, "- token buckets, whose burst is a second's events; bursty is four times the load for half a second, every two seconds\n")
	fmt.Fprintf(out, "- below and above compare with an exact limiter's answers to the same requests\n")
	progress := race.Progress(os.Stderr)
	var reports []*report
	for _, limit := range s.limits {
		for _, traffic := range s.traffics {
			for _, mode := range s.modes {
				c := course{Mode: mode, Traffic: traffic, Limit: int64(limit), Keys: s.keys, Load: s.load, Duration: s.duration}
				fmt.Fprintf(progress, "\r\033[K%v", c)
				r, err := c.run(ctx, server)
				if err != nil {
					fmt.Fprintln(progress)
					return err
				}
				reports = append(reports, r)
			}
		}
	}
	fmt.Fprint(progress, "\r\033[K")
	writeTables(out, reports)
	writeGoals(out, reports)
	if s.svg != "" {
		return os.WriteFile(s.svg, []byte(plot(reports)), 0o644)
	}
	return nil
}
