package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirgo/weir/cmd/weir/internal/ask"
	"github.com/weirgo/weir/cmd/weir/internal/gateway"
	"github.com/weirgo/weir/cmd/weir/internal/serving"
	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/middleware/shed"
)

// knowing declares flags for the tiers and keys of the application.
func knowing(flags *pflag.FlagSet) (tiers, keys *string) {
	return flags.String("tiers", "", "comma-separated `names` of the tiers that the application assigns"), ownKeys(flags)
}

func ownKeys(flags *pflag.FlagSet) *string {
	return flags.String("keys", "", "comma-separated `names` of the application's own keys")
}

func options(tiers, keys string) rules.Options {
	o := rules.Options{Tiers: list(tiers), Keys: map[string]keyfunc.Func{}, Overload: shed.FromRules}
	for _, name := range list(keys) {
		o.Keys[name] = func(*http.Request) (string, error) { return name + ":...", nil }
	}
	return o
}

func list(text string) (names []string) {
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// load reads a file, or the standard input for "-".
func (s *session) load(name string, o rules.Options) (*rules.Rules, error) {
	if name != "-" {
		return rules.Load(name, o)
	}
	_, loaded, err := s.parse(name, o)
	return loaded, err
}

// parse reads a file without those that it includes.
func (s *session) parse(name string, o rules.Options) ([]byte, *rules.Rules, error) {
	text, err := s.read(name)
	if err != nil {
		return nil, nil, err
	}
	loaded, err := rules.Parse(text, o)
	if wrong := (*rules.Error)(nil); errors.As(err, &wrong) {
		inFile(wrong.Problems, name)
	}
	return text, loaded, err
}

// inFile sets the file of problems.
func inFile(problems []rules.Problem, name string) {
	for i := range problems {
		problems[i].File = name
	}
}

// A report is the result of check on a file, as JSON.
type report struct {
	File     string          `json:"file"`
	Good     bool            `json:"good"`
	Problems []rules.Problem `json:"problems"`
	Warnings []rules.Problem `json:"warnings"`
}

func check(s *session, flags *pflag.FlagSet) action {
	out := s.output(flags)
	tiers, keys := knowing(flags)
	strict := flags.Bool("strict", false, "exit with 1 if a file has warnings too")
	asked := flags.Bool("ask", false, "check for weir serve --ask: report what a proxy that asks does not say, or reads in another way")
	serves := flags.Bool("serve", false, "check for weir serve --proxy: report what it would refuse with the same --user-header and --tier-header")
	proxy := gateway.Options{Proxy: ":0=http://127.0.0.1", Paths: serving.PathsStrict, Timeout: time.Minute, ClientTimeout: time.Minute}
	identityFlags(flags, &proxy)
	return func(files []string) error {
		o := options(*tiers, *keys)
		var services []serving.Service
		if *asked {
			services = append(services, ask.New("", serving.PathsStrict))
		}
		if *serves {
			service, err := gateway.New(proxy)
			if err != nil {
				return usageError{err}
			}
			services = append(services, service)
		} else if proxy.UserHeader != "" || proxy.TierHeader != "" {
			return usageError{errors.New("--user-header and --tier-header need --serve")}
		}
		if len(services) > 0 {
			o.Lacks = lacks(services)
		}
		var reports []report
		bad := false
		for _, file := range files {
			loaded, err := s.load(file, o)
			isRead := err == nil || errors.As(err, new(*rules.Error))
			if !isRead && !*out.asJSON {
				fmt.Fprintf(s.err, "weir check: %s\n", inWords(err))
				bad = true
				continue
			}
			r := report{File: file, Good: err == nil, Problems: problemsOf(err, file), Warnings: []rules.Problem{}}
			if err == nil {
				r.Warnings = append(r.Warnings, loaded.Warnings()...)
			}
			bad = bad || err != nil || *strict && len(r.Warnings) > 0
			reports = append(reports, r)
		}
		err := out.write(reports, func(table io.Writer) {
			for _, r := range reports {
				r.write(table)
			}
		})
		if bad && err == nil {
			err = exitError(exitBad)
		}
		return err
	}
}

// problemsOf returns the problems in a file, or the error of reading it as one without a line.
func problemsOf(err error, file string) []rules.Problem {
	var wrong *rules.Error
	switch {
	case err == nil:
		return []rules.Problem{}
	case errors.As(err, &wrong):
		return wrong.Problems
	}
	return []rules.Problem{{File: file, Message: file + ": " + inWords(err)}}
}

// writeProblems writes problems in the format of compilers, for people and editors.
func (r *report) writeProblems(out io.Writer) {
	for _, problem := range r.Problems {
		if problem.Line == 0 {
			fmt.Fprintln(out, problem.Message)
			continue
		}
		fmt.Fprintln(out, problem)
	}
	for _, warning := range r.Warnings {
		warning.Message = "warning: " + warning.Message
		fmt.Fprintln(out, warning)
	}
}

func (r *report) write(out io.Writer) {
	r.writeProblems(out)
	says := "good"
	if !r.Good {
		says = operate.Count(int64(len(r.Problems)), "problem", "problems")
	}
	fmt.Fprintf(out, "%s: %s\n", r.File, says)
}
