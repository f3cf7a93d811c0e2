// Weir checks and explains rules files, tries them on an access log, and is an operator's hand
// on the counters and bans in a Redis.
//
//	go install github.com/weirgo/weir/cmd/weir@latest
//	weir check limits.yaml
//	weir explain limits.yaml --method POST --path /login --ip 203.0.113.7 --tier free
//	weir simulate limits.yaml access.log --report week.html
//	weir recommend access.log --per 1m --spare 99.9%
//	weir schema > limits.schema.json
//	weir top --redis redis://localhost:6379
//	weir peek limits.yaml --key user:42
//	weir reset limits.yaml --key user:42 --rule "POST /login"
//	weir ban 203.0.113.7 --for 1h
//	weir bans
//	weir unban 203.0.113.7
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	_ "time/tzdata" // of limits, wherever the command runs

	"github.com/redis/go-redis/v9"
)

// What the command ends with.
const (
	exitGood  = 0
	exitBad   = 1 // the file has problems
	exitUsage = 2 // it was not asked anything that it knows
)

// A command is what the first argument names.
type command struct {
	name, args, does string
	run              func(*session, []string) error
}

func commands() []command {
	return []command{
		{"check", "FILE...", "tells everything that is wrong with rules files", check},
		{"explain", "FILE --path PATH", "tells which rules apply to a request, in what order, with which keys and limits", explain},
		{"simulate", "FILE [NEW-FILE] LOG", "tells what rules would have refused of the requests in a log, or what new rules change", simulateLog},
		{"recommend", "LOG", "tells what limit the clients in a log need, and what any limit would have refused", recommend},
		{"schema", "", "writes the JSON Schema of rules files, for editors", schema},
		{"top", "", "lists the keys in a Redis that have used most of their limit", top},
		{"peek", "FILE --key KEY", "tells what a key has left of each rule, and takes nothing", peek},
		{"reset", "FILE --key KEY", "makes a key as if its rules had never seen it", reset},
		{"ban", "KEY", "locks a key out of all processes that share the list of bans", ban},
		{"unban", "KEY", "lets it in again", unban},
		{"bans", "", "lists the keys that are banned", listBans},
	}
}

// A session is one run of the command.
type session struct {
	in       io.Reader
	out, err io.Writer
}

// silence is for go-redis, which logs what commands say themselves, and the end of connections.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func main() {
	redis.SetLogger(silence{})
	os.Exit((&session{os.Stdin, os.Stdout, os.Stderr}).run(os.Args[1:]))
}

// errBad says that what is wrong has been told.
var errBad = errors.New("the file has problems")

// usageError is about the command line.
type usageError struct{ error }

// run is one run of the command. All that it writes passes through printable writers.
func (s *session) run(args []string) int {
	out, err := &printable{to: s.out}, &printable{to: s.err}
	defer out.flush()
	defer err.flush()
	return (&session{s.in, out, err}).command(args)
}

func (s *session) command(args []string) int {
	if len(args) == 0 {
		s.usage()
		return exitUsage
	}
	if slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		s.usage()
		return exitGood
	}
	known := commands()
	i := slices.IndexFunc(known, func(c command) bool { return c.name == args[0] })
	if i < 0 {
		fmt.Fprintf(s.err, "weir: there is no command %q\n", args[0])
		s.usage()
		return exitUsage
	}
	err := known[i].run(s, args[1:])
	var usage usageError
	switch {
	case err == nil:
		return exitGood
	case errors.Is(err, flag.ErrHelp):
		return exitGood
	case errors.Is(err, errBad):
		return exitBad
	case errors.As(err, &usage):
		fmt.Fprintf(s.err, "weir %s: %v\n", known[i].name, err)
		return exitUsage
	}
	fmt.Fprintf(s.err, "weir %s: %v\n", known[i].name, err)
	return exitBad
}

func (s *session) usage() {
	fmt.Fprintln(s.err, "usage: weir COMMAND, which is one of")
	for _, c := range commands() {
		fmt.Fprintf(s.err, "  %-30s %s\n", c.name+" "+c.args, c.does)
	}
	fmt.Fprintln(s.err, "weir COMMAND --help tells its flags.")
}

// parse reads flags and arguments in any order.
func (s *session) parse(flags *flag.FlagSet, args []string) (rest []string, err error) {
	flags.SetOutput(s.err)
	var wrong error
	flags.VisitAll(func(f *flag.Flag) { f.Value = &quiet{f.Value, f.Name, &wrong} })
	flags.Usage = func() {
		flags.VisitAll(func(f *flag.Flag) { // for it to tell their types
			if q, ok := f.Value.(*quiet); ok {
				f.Value = q.Value
			}
		})
		fmt.Fprintf(s.err, "usage of weir %s:\n", flags.Name())
		flags.PrintDefaults()
	}
	for {
		if err := flags.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil, err
			}
			return nil, usageError{err}
		}
		if wrong != nil {
			return nil, usageError{wrong}
		}
		if flags.NArg() == 0 {
			return rest, nil
		}
		rest = append(rest, flags.Arg(0))
		args = flags.Args()[1:]
	}
}

// quiet is the value of a flag that reports its mistakes here: package flag quotes the text,
// which may be a credential.
type quiet struct {
	flag.Value
	name  string
	wrong *error
}

func (q *quiet) Set(text string) error {
	if err := q.Value.Set(text); err != nil && *q.wrong == nil {
		*q.wrong = fmt.Errorf("--%s: %w", q.name, err)
	}
	return nil
}

func (q *quiet) IsBoolFlag() bool {
	value, ok := q.Value.(interface{ IsBoolFlag() bool })
	return ok && value.IsBoolFlag()
}
