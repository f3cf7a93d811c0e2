package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/weirgo/weir/internal/nearest"
)

// parseFlags is parse for a command without arguments.
func (s *session) parseFlags(flags *flag.FlagSet, args []string) error {
	rest, err := s.parse(flags, args)
	if err == nil && len(rest) > 0 {
		return usageError{errors.New("it takes flags only")}
	}
	return err
}

// parse reads flags and arguments in any order. All commands declare their flags for it, and
// do nothing before.
func (s *session) parse(flags *flag.FlagSet, args []string) (rest []string, err error) {
	if s.declared != nil {
		s.declared(flags)
		return nil, flag.ErrHelp
	}
	var wrong error
	types := map[string]flag.Value{}
	flags.VisitAll(func(f *flag.Flag) {
		types[f.Name] = f.Value
		f.Value = &quiet{f.Value, f.Name, &wrong}
	})
	flags.SetOutput(io.Discard)
	for {
		if err := misspelt(flags, args); err != nil {
			return nil, err
		}
		err := flags.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			flags.VisitAll(func(f *flag.Flag) { f.Value = types[f.Name] }) // of which it tells
			c, err := commandNamed(flags.Name())
			if err != nil {
				return nil, err
			}
			c.help(s.out, flags)
			return nil, flag.ErrHelp
		}
		if err != nil {
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

// misspelt is an error if package flag would meet a flag that there is not, which it has no
// suggestion for.
func misspelt(flags *flag.FlagSet, args []string) error {
	for len(args) > 0 {
		name, isFlag := strings.CutPrefix(args[0], "-")
		if !isFlag || name == "" || name == "-" {
			return nil // package flag goes no further either
		}
		name, _, hasValue := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		f := flags.Lookup(name)
		if f == nil {
			if name == "h" || name == "help" || name == "" || name[0] == '-' {
				return nil
			}
			var names []string
			flags.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
			if near := nearest.Of(name, names); near != "" {
				return usageError{fmt.Errorf("there is no flag --%s: did you mean %s?", name, dashed(near))}
			}
			return usageError{fmt.Errorf("there is no flag %s: weir help %s lists them", dashed(name), flags.Name())}
		}
		args = args[1:]
		if !hasValue && !f.Value.(*quiet).IsBoolFlag() && len(args) > 0 {
			args = args[1:]
		}
	}
	return nil
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
		*q.wrong = fmt.Errorf("%s: %w", dashed(q.name), err)
	}
	return nil
}

func (q *quiet) IsBoolFlag() bool {
	value, ok := q.Value.(interface{ IsBoolFlag() bool })
	return ok && value.IsBoolFlag()
}
