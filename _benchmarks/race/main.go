// Command race runs the benchmarks of a package in turns: each contestant in a process of its
// own, in every round once, in random order. A machine that is slow is slow for a while, so what
// counts is the median over the rounds, of figures and of the ratios of two contestants in one round.
//
//	go -C _benchmarks run ./race ./memory
//	go -C _benchmarks run ./race -bench 'Allowed/keys=1$' -only 'weir|go-limiter' -cpu 1,2 ./memory
//
// A benchmark's name is Benchmark…/case/contestant. The tables go to standard output, in Markdown;
// -out keeps the lines of all rounds for benchstat.
package main

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

type settings struct {
	bench, only *regexp.Regexp
	rounds      int
	time, cpu   string
	base, out   string
	short       bool
	pkg         string
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	s, err := parse(os.Args[1:])
	if err == nil {
		err = s.run(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "race:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*settings, error) {
	s := &settings{bench: regexp.MustCompile("."), only: regexp.MustCompile(".")}
	expression := func(into **regexp.Regexp) func(string) error {
		return func(text string) (err error) {
			*into, err = regexp.Compile(text)
			return err
		}
	}
	flags := flag.NewFlagSet("race", flag.ContinueOnError)
	flags.Func("bench", "the `cases` to run, a regular expression on names such as Allowed/keys=1", expression(&s.bench))
	flags.Func("only", "the `contestants` to run, a regular expression", expression(&s.only))
	flags.IntVar(&s.rounds, "rounds", 7, "how many times every contestant runs in every case")
	flags.StringVar(&s.time, "time", "150ms", "the -benchtime of each")
	flags.StringVar(&s.cpu, "cpu", "", "the -cpu of each, such as 1,2")
	flags.StringVar(&s.base, "base", "", "the contestant to compare with (default: the fastest peer of the case)")
	flags.StringVar(&s.out, "out", "", "also write the lines of all rounds to this `file`, for benchstat")
	flags.BoolVar(&s.short, "short", false, "smaller cases, for a look")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if s.rounds < 1 {
		return nil, fmt.Errorf("-rounds is %d: it must be above 0", s.rounds)
	}
	if flags.NArg() != 1 {
		return nil, fmt.Errorf("it takes one package, such as ./memory, and got %q", flags.Args())
	}
	s.pkg = flags.Arg(0)
	return s, nil
}

// ListEnv is set where a benchmark is to run nothing, as only its name is asked for.
const ListEnv = "RACE_LIST"

func (s *settings) run(ctx context.Context, w io.Writer) error {
	dir, err := os.MkdirTemp("", "race")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "race.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", program, s.pkg)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	cases, err := s.list(ctx, program)
	if err != nil {
		return err
	}
	var raw bytes.Buffer
	results := newResults()
	for round := range s.rounds {
		for _, c := range shuffled(cases.names) {
			for _, contestant := range shuffled(cases.contestants[c]) {
				fmt.Fprintf(os.Stderr, "\r\033[K%d/%d %s %s", round+1, s.rounds, c, contestant)
				lines, err := s.exec(ctx, program, c+"/"+contestant)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err != nil {
					results.failed[c+"/"+contestant] = err
					continue
				}
				raw.WriteString(lines)
				results.add(round, lines)
			}
		}
	}
	fmt.Fprint(os.Stderr, "\r\033[K")
	if s.out != "" {
		if err := os.WriteFile(s.out, raw.Bytes(), 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "%s on %s/%s, %d cores; medians over %d rounds of %s, ratios are medians of each round's\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), s.rounds, s.time)
	results.report(w, s.base)
	return nil
}

// A caseList is which contestants there are, by case.
type caseList struct {
	names       []string
	contestants map[string][]string
}

func (s *settings) list(ctx context.Context, program string) (*caseList, error) {
	cmd := s.command(ctx, program, "-test.bench=.", "-test.benchtime=1x", "-test.cpu=1")
	cmd.Env = append(os.Environ(), ListEnv+"=1")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("the list of benchmarks: %w\n%s", err, out)
	}
	list := &caseList{contestants: map[string][]string{}}
	for _, l := range parseLines(string(out)) {
		if !s.bench.MatchString(l.c) || !s.only.MatchString(l.contestant) {
			continue
		}
		if list.contestants[l.c] == nil {
			list.names = append(list.names, l.c)
		}
		list.contestants[l.c] = append(list.contestants[l.c], l.contestant)
	}
	if len(list.names) == 0 {
		return nil, fmt.Errorf("no benchmark of %s is asked for", s.pkg)
	}
	return list, nil
}

func (s *settings) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, append(args, "-test.run=^$", "-test.benchmem", "-test.short="+strconv.FormatBool(s.short))...)
	cmd.Dir = s.pkg // as go test has it
	return cmd
}

// exec runs one benchmark, and returns its lines.
func (s *settings) exec(ctx context.Context, program, name string) (string, error) {
	var pattern []string
	for part := range strings.SplitSeq("Benchmark"+name, "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}
	args := []string{"-test.bench=" + strings.Join(pattern, "/"), "-test.benchtime=" + s.time}
	if s.cpu != "" {
		args = append(args, "-test.cpu="+s.cpu)
	}
	out, err := s.command(ctx, program, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	return string(out), nil
}

// A line is what one benchmark has printed.
type line struct {
	c, contestant string
	figures       map[string]float64 // by unit
	units         []string
}

var benchmarkLine = regexp.MustCompile(`(?m)^Benchmark(\S+)/([^\s/]+?)(-\d+)?\s+\d+\s+(.*)$`)

func parseLines(text string) (all []line) {
	for _, m := range benchmarkLine.FindAllStringSubmatch(text, -1) {
		l := line{c: m[1], contestant: m[2], figures: map[string]float64{}}
		if m[3] != "" {
			l.c += " on" + strings.Replace(m[3], "-", " ", 1) + " cores"
		}
		fields := strings.Fields(m[4])
		for i := 0; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err == nil {
				l.figures[fields[i+1]] = value
				l.units = append(l.units, fields[i+1])
			}
		}
		all = append(all, l)
	}
	return all
}

type results struct {
	cases  []string
	of     map[string]map[string][]map[string]float64 // case, contestant, round
	units  map[string][]string                        // by case
	failed map[string]error
}

func newResults() *results {
	return &results{of: map[string]map[string][]map[string]float64{}, units: map[string][]string{}, failed: map[string]error{}}
}

func (r *results) add(round int, lines string) {
	for _, l := range parseLines(lines) {
		if r.of[l.c] == nil {
			r.cases, r.of[l.c], r.units[l.c] = append(r.cases, l.c), map[string][]map[string]float64{}, l.units
		}
		rounds := r.of[l.c][l.contestant]
		for len(rounds) <= round {
			rounds = append(rounds, nil) // one that failed
		}
		rounds[round] = l.figures
		r.of[l.c][l.contestant] = rounds
	}
}

// report writes a table for each case. Its first unit is the one that contestants are compared by.
func (r *results) report(w io.Writer, base string) {
	slices.Sort(r.cases)
	for _, c := range r.cases {
		units, names := r.units[c], []string{}
		for name := range r.of[c] {
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int {
			return cmp.Or(cmp.Compare(r.median(c, a, units[0]), r.median(c, b, units[0])), cmp.Compare(a, b))
		})
		to := base
		if i := slices.IndexFunc(names, isPeer); to == "" && i >= 0 {
			to = names[i]
		}
		fmt.Fprintf(w, "\n### %s\n\n| contestant | %s | × %s |\n|---%s|--:|\n", c, strings.Join(units, " | "), to, strings.Repeat("|--:", len(units)))
		for _, name := range names {
			fmt.Fprintf(w, "| %s |", name)
			for _, unit := range units {
				fmt.Fprintf(w, " %.4g |", r.median(c, name, unit))
			}
			ratio, least, most := r.ratio(c, name, to, units[0])
			fmt.Fprintf(w, " %.2f (%.2f to %.2f) |\n", ratio, least, most)
		}
	}
	for name, err := range r.failed {
		fmt.Fprintf(w, "\n%s failed: %v\n", name, err)
	}
}

// isPeer reports whether a contestant is another library, or what people write themselves.
func isPeer(name string) bool {
	return !strings.HasPrefix(name, "weir") && !strings.HasPrefix(name, "floor")
}

func (r *results) median(c, contestant, unit string) float64 {
	var each []float64
	for _, figures := range r.of[c][contestant] {
		if figure, ok := figures[unit]; ok {
			each = append(each, figure)
		}
	}
	return median(each)
}

// ratio is the median of the ratios of single rounds, with the least and the most of them.
func (r *results) ratio(c, of, to, unit string) (middle, least, most float64) {
	var each []float64
	theirs := r.of[c][to]
	for i, figures := range r.of[c][of] {
		if i < len(theirs) && figures != nil && theirs[i][unit] != 0 {
			each = append(each, figures[unit]/theirs[i][unit])
		}
	}
	if len(each) == 0 {
		return 0, 0, 0
	}
	return median(each), slices.Min(each), slices.Max(each)
}

func median(of []float64) float64 {
	if len(of) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(of))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

func shuffled(of []string) []string {
	order := slices.Clone(of)
	rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}
