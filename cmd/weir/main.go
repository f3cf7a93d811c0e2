// Weir checks and explains rules files, tries them on an access log, and shows what a change of rules
// changes. It also reads and changes the rules, counters and bans in a Redis.
//
//	GOTOOLCHAIN=go1.26.9+auto go install github.com/weirgo/weir/cmd/weir@latest
//	weir help
//	weir help top
//
// docs/command.md is its manual.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	_ "time/tzdata" // time zones of limits, also where the system has none

	"github.com/redis/go-redis/v9"
)

// Exit codes.
const (
	exitGood    = 0
	exitBad     = 1 // the command failed, or a file has problems
	exitUsage   = 2 // the command line is wrong, or a test cannot run
	exitDiffers = 3 // diff --exit-code: the rules differ

	exitInterrupted = 130 // top was stopped before it had scanned all keys
)

// A session is one run of the command. Its output is escaped.
type session struct {
	in       io.Reader
	out, err *printable
}

// open opens a file, or the standard input for "-".
func (s *session) open(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(s.in), nil
	}
	return os.Open(name)
}

// read reads a file, or the standard input for "-".
func (s *session) read(name string) ([]byte, error) {
	in, err := s.open(name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(in)
}

func main() {
	redis.SetLogger(silence{})
	os.Exit(execute(os.Stdin, os.Stdout, os.Stderr, os.Args[1:]))
}

// An exitError is the exit code of a command that has already written why it failed.
type exitError int

func (exitError) Error() string { return "" }

// A usageError is a mistake on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// execute runs the command and returns its exit code.
func execute(in io.Reader, stdout, stderr io.Writer, args []string) int {
	s := &session{in: in, out: &printable{to: stdout}, err: &printable{to: stderr}}
	exit := s.command(args)
	if s.out.failed != nil {
		fmt.Fprintf(s.err, "weir: the output cannot be written: %v\n", s.out.failed)
		exit = exitBad
	}
	for _, p := range []*printable{s.out, s.err} {
		if p.lines != nil {
			_ = p.lines.Close()
		}
	}
	return exit
}

func (s *session) command(args []string) int {
	root := s.cobra()
	if len(args) == 0 {
		root.SetOut(s.err)
		_ = root.Help()
		return exitUsage
	}
	if args[0] == "--version" {
		args = append([]string{"version"}, args[1:]...)
	}
	root.SetArgs(args)
	c, err := root.ExecuteC()
	var usage usageError
	var exit exitError
	switch {
	case err == nil:
		return exitGood
	case errors.As(err, &exit):
		return int(exit)
	case c == root: // no such command
		fmt.Fprintf(s.err, "weir: %s\n", inWords(err))
		return exitUsage
	}
	fmt.Fprintf(s.err, "%s: %s\n", c.CommandPath(), inWords(err))
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	}
	return exitBad
}
