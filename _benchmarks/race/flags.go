package race

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// Flags are what every race can be told on the command line.
type Flags struct {
	Rounds int
	Slice  time.Duration
	Only   []string // the names of those to run; none: all
	JSON   string   // the file for WriteJSON
	Quick  bool
}

// Parse reads args into f and what is in flags already. Slices are as long as that, and
// with -quick as quick.
func (f *Flags) Parse(flags *flag.FlagSet, args []string, slice, quick time.Duration) error {
	flags.IntVar(&f.Rounds, "rounds", 7, "how many times every contestant runs in every case")
	flags.DurationVar(&f.Slice, "slice", slice, "about how long it runs each time")
	flags.Func("only", "the `names` of those to run (default all)", List(&f.Only))
	flags.StringVar(&f.JSON, "json", "", "also write the figures of each round to this `file`")
	flags.BoolVar(&f.Quick, "quick", false, "for a look: one round of short slices, and less where a case is large; other flags are above it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if f.Quick {
		given := map[string]bool{}
		flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
		if !given["rounds"] {
			f.Rounds = 1
		}
		if !given["slice"] {
			f.Slice = quick
		}
	}
	if f.Rounds < 1 || f.Slice <= 0 {
		return fmt.Errorf("-rounds is %d and -slice is %v: they must be above 0", f.Rounds, f.Slice)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is no flag", flags.Arg(0))
	}
	return nil
}

// List is a flag's value of several names.
func List(into *[]string) func(string) error {
	return func(text string) error {
		for name := range strings.SplitSeq(text, ",") {
			*into = append(*into, strings.TrimSpace(name))
		}
		return nil
	}
}

// WriteJSON writes results to f.JSON, if it is set, with what else is worth knowing.
func (f *Flags) WriteJSON(results *Results, more map[string]any) error {
	if f.JSON == "" {
		return nil
	}
	all := map[string]any{
		"go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH, "gomaxprocs": runtime.GOMAXPROCS(0),
		"rounds": f.Rounds, "slice": f.Slice.String(), "results": results,
	}
	for name, value := range more {
		all[name] = value
	}
	text, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(f.JSON, append(text, '\n'), 0o644)
}

// Machine is what figures depend on, for the head of a report.
func Machine() string {
	return fmt.Sprintf("%s on %s/%s, GOMAXPROCS %d", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))
}

// Versions are those of the modules in this program that are wanted, behind their paths.
func Versions(wanted func(path string) bool) (versions []string) {
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if wanted(m.Path) {
			versions = append(versions, m.Path+" "+m.Version)
		}
	}
	return versions
}

// Numbers reads a list of positive numbers.
func Numbers(into *[]int) func(string) error {
	return func(list string) error {
		*into = nil
		for text := range strings.SplitSeq(list, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil || n < 1 {
				return fmt.Errorf("%q is no positive number", text)
			}
			*into = append(*into, n)
		}
		return nil
	}
}
