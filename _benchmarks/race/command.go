package race

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Main is a race's main function. It parses the arguments and runs the race until that is
// done or interrupted, with the report on standard output. In a Child it runs child instead.
func Main[S any](name string, child func(in io.Reader, out io.Writer) error, parse func(args []string) (S, error), run func(context.Context, S, io.Writer) error) {
	fail := func(err error, code int) {
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(code)
		}
	}
	if IsChild() {
		fail(child(os.Stdin, os.Stdout), 1)
		return
	}
	s, err := parse(os.Args[1:])
	fail(err, 2)
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	fail(run(ctx, s, os.Stdout), 1)
}

// Progress is where a command says how far it is: a terminal. What is written to a file or
// a log, where lines cannot be taken back, is discarded.
func Progress(f *os.File) io.Writer {
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return io.Discard
	}
	return f
}

// ProgressTo is a Plan's Progress on such a writer.
func ProgressTo(w io.Writer) func(done, of int, what string) {
	return func(done, of int, what string) {
		fmt.Fprint(w, "\r\033[K")
		if done < of {
			fmt.Fprintf(w, "%d/%d %s", done, of, what)
		}
	}
}
