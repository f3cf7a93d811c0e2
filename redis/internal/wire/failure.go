package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A failure is why Redis did not do what it was asked for.
type failure struct {
	pkg      string
	err      error
	unusable bool
}

func (f *failure) Error() string {
	// Redis repeats a command that it does not know, script and all.
	said, _, _ := strings.Cut(f.err.Error(), ", with args beginning with")
	return f.pkg + ": " + said
}

func (f *failure) Unwrap() error { return f.err }

// Unusable is for package failover.
func (f *failure) Unusable() bool { return f.unusable }

// A silence is a call that ended without an answer, of which err says no more than that.
type silence struct {
	in  time.Duration // 0: it is not known
	err error
}

func (s *silence) Unwrap() []error {
	if s.err == nil {
		return []error{context.DeadlineExceeded}
	}
	return []error{context.DeadlineExceeded, s.err}
}

func (s *silence) Error() string {
	if s.in == 0 {
		return "Redis gave no answer in time"
	}
	return fmt.Sprintf("Redis gave no answer in %v", s.in)
}

// ErrAnswer is for an answer that is not understood.
var ErrAnswer = errors.New("the answer is none that the script can have given")

// Failed is err as a package returns it, of a call that had so much time, if that is known. Its
// text begins with the package, once.
func (t *Transport) Failed(pkg string, err error, in time.Duration) error {
	var failed *failure
	if err == nil || errors.As(err, &failed) {
		return err
	}
	said, known := redis.Error(nil), (*silence)(nil)
	if isTimeout(err) && !errors.As(err, &known) {
		err = &silence{in, err}
	}
	err = plainly(err)
	return &failure{pkg, err, errors.As(err, &said) && t.isUnusable(said.Error())}
}

// isTimeout reports that an error says only that time was up, if only that of a connection that
// was being made.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

var (
	// passing are codes of answers that a healthy server gives too, for a time. What a
	// script comes upon stands within the answer where it is Redis 6 that says so.
	passing = []string{
		"OOM ", "READONLY ", "MISCONF ", "NOREPLICAS ", "LOADING ", "BUSY ", "MASTERDOWN ", "CLUSTERDOWN ", "TRYAGAIN ",
		"NOAUTH ", "WRONGPASS ", "SCRIPT KILL",
	}
	// unfit is of answers that come again however often the script is sent: there is no such
	// command, the user may not run it, the script does not run.
	unfit = []string{
		"unknown command", "unsupported command", "NOPERM ", "can't run this command",
		"Error running script", "Error compiling script", "user_script", "nonexistent global variable",
		"cluster support disabled",
	}
	// elsewhere is of a Cluster's answers to a client that is not for one.
	elsewhere = []string{"MOVED ", "ASK ", "CROSSSLOT "}
)

// isUnusable reports that a server that says this can't run the scripts, as it is configured.
func (t *Transport) isUnusable(said string) bool {
	within := func(s string) bool { return strings.Contains(said, s) }
	if slices.ContainsFunc(passing, within) {
		return false
	}
	return slices.ContainsFunc(unfit, within) ||
		!t.Split && slices.ContainsFunc(elsewhere, func(s string) bool { return strings.HasPrefix(said, s) })
}

// Join is errors.Join of those that say different things: a node that is down fails all
// scripts that were sent to it.
func Join(errs []error) error {
	said := make(map[string]bool, len(errs))
	var different []error
	for _, err := range errs {
		if text := err.Error(); !said[text] {
			said[text] = true
			different = append(different, err)
		}
	}
	if len(different) == 1 {
		return different[0]
	}
	return errors.Join(different...)
}
