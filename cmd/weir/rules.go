package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/middleware/shed"
)

// knowing are the flags about what the application knows and the file does not.
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
	text, err := io.ReadAll(s.in)
	if err != nil {
		return nil, err
	}
	return rules.Parse(text, o)
}

// A report is what check has to say about a file, as JSON.
type report struct {
	File     string          `json:"file"`
	Good     bool            `json:"good"`
	Problems []rules.Problem `json:"problems"`
	Warnings []rules.Problem `json:"warnings"`
}

func check(s *session, flags *pflag.FlagSet) action {
	asJSON := flags.Bool("json", false, "write a JSON array with an object for each file")
	tiers, keys := knowing(flags)
	return func(files []string) error {
		if len(files) == 0 {
			return usageError{errors.New("name a file to check, or - for the standard input")}
		}
		var reports []report
		bad := false
		var err error
		for _, file := range files {
			r := report{File: file, Good: true, Problems: []rules.Problem{}, Warnings: []rules.Problem{}}
			loaded, err := s.load(file, options(*tiers, *keys))
			var wrong *rules.Error
			switch {
			case errors.As(err, &wrong):
				r.Problems = wrong.Problems
			case err != nil:
				r.Problems = []rules.Problem{{File: file, Message: inWords(err)}}
			default:
				r.Warnings = append(r.Warnings, loaded.Warnings()...)
			}
			r.Good = err == nil
			bad = bad || err != nil
			reports = append(reports, r)
		}
		if *asJSON {
			err = writeJSON(s.out, reports)
		} else {
			for _, r := range reports {
				r.write(s.out)
			}
		}
		if bad && err == nil {
			err = errBad
		}
		return err
	}
}

// writeProblems writes them for people, and for editors that know how compilers write.
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
	switch n := len(r.Problems); {
	case r.Good:
		fmt.Fprintf(out, "%s: good\n", r.File)
	case n == 1:
		fmt.Fprintf(out, "%s: 1 problem\n", r.File)
	default:
		fmt.Fprintf(out, "%s: %d problems\n", r.File, n)
	}
}

func explain(s *session, flags *pflag.FlagSet) action {
	q := rules.Request{Header: http.Header{}}
	flags.StringVar(&q.Method, "method", http.MethodGet, "the request's `method`")
	flags.StringVar(&q.Path, "path", "", "its `path`, such as /users/42, or its route, such as /users/{id}")
	flags.StringVar(&q.Query, "query", "", "its `query`, such as tenant=acme")
	flags.StringVar(&q.Host, "host", "", "the `host` it asks for, which endpoints can begin with")
	flags.BoolVar(&q.ServeMux, "servemux", false, "the router is an http.ServeMux, where \"/static/\" is for all that is below it")
	flags.StringVar(&q.IP, "ip", "192.0.2.1", "the `address` of the connection's other end")
	flags.StringVar(&q.Tier, "tier", "", "the `tier` that the application puts it in")
	flags.StringVar(&q.User, "user", "", "the `id` of its user, as the application says")
	flags.Int64Var(&q.ContentLength, "length", 0, "the length of its body in `bytes`; -1: unknown")
	flags.Func("header", "a `header` of it, such as \"X-Device: 7\"; may be repeated", func(text string) error {
		name, value, ok := strings.Cut(text, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return errors.New("want a name, a colon and a value")
		}
		q.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		return nil
	})
	asJSON := flags.Bool("json", false, "write JSON")
	tiers, keys := knowing(flags)
	return func(files []string) error {
		if len(files) != 1 || q.Path == "" {
			return usageError{errors.New("name one file, or - for the standard input, and a --path")}
		}
		loaded, err := s.load(files[0], options(*tiers, *keys))
		if err != nil {
			return err
		}
		explanation, err := loaded.Explain(q)
		if err != nil {
			return usageError{err}
		}
		if *asJSON {
			return writeJSON(s.out, explanation)
		}
		fmt.Fprintf(s.out, "%s %s%s, routed as %s\n", q.Method, q.Host, q.Path, explanation.Route)
		table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
		for i, step := range explanation.Steps {
			line := ""
			if step.Line > 0 {
				line = fmt.Sprintf("line %d", step.Line)
			}
			says := step.Says
			if step.Rule != "" && step.Rule != step.Section {
				says = fmt.Sprintf("%q: %s", step.Rule, says)
			}
			fmt.Fprintf(table, "%d.\t%s\t%s\t%s\n", i+1, step.Section, line, says)
		}
		if err := table.Flush(); err != nil {
			return err
		}
		for _, note := range explanation.Notes {
			fmt.Fprintf(s.out, "note: %s\n", note)
		}
		return nil
	}
}

func schema(s *session, _ *pflag.FlagSet) action {
	return func([]string) error {
		_, err := s.out.Write(rules.Schema())
		return err
	}
}
