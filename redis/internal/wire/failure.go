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

// A failure is an error of a call of Redis, as a package returns it.
type failure struct {
	pkg      string
	err      error
	unusable bool
}

func (f *failure) Error() string {
	// Redis quotes a command that it does not know, with the whole script.
	said, _, _ := strings.Cut(f.err.Error(), ", with args beginning with")
	return f.pkg + ": " + said
}

func (f *failure) Unwrap() error { return f.err }

// Package is the name that begins the text.
func (f *failure) Package() string { return f.pkg }

// Unusable tells package failover that the server cannot run the scripts.
func (f *failure) Unusable() bool { return f.unusable }

// A silence is the error of a call whose time was up. The cause err says no more than that.
type silence struct {
	in  time.Duration // 0: unknown
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

// ErrAnswer is the error of an answer that cannot be read.
var ErrAnswer = errors.New("the answer cannot be one of the script")

// Failed returns err as the error of a package. Its text begins with the package's name, once. The
// call had the time in, or an unknown one if in is 0.
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

// isTimeout reports whether err is a deadline's, or the timeout of a connection.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

var (
	// passing are codes of errors that a working server may return for a while. Redis 6 has the
	// error of a script's command within its answer.
	passing = []string{
		"OOM ", "READONLY ", "MISCONF ", "NOREPLICAS ", "LOADING ", "BUSY ", "MASTERDOWN ", "CLUSTERDOWN ", "TRYAGAIN ",
		"NOAUTH ", "WRONGPASS ", "SCRIPT KILL",
	}
	// unfit are parts of errors that return however often the script is sent: the command does
	// not exist, the user may not run it, the script fails.
	unfit = []string{
		"unknown command", "unsupported command", "NOPERM ", "can't run this command",
		"Error running script", "Error compiling script", "user_script", "nonexistent global variable",
		"cluster support disabled", "scripting engine", "ACL failure in script",
	}
	// elsewhere are errors of a Cluster, and of a proxy before one, to a client that is for one server.
	elsewhere = []string{"MOVED ", "ASK ", "CROSSSLOT ", "ERR Cross-slot queries"}
)

// isUnusable reports whether the error says that the server, as configured, cannot run the scripts.
func (t *Transport) isUnusable(said string) bool {
	within := func(s string) bool { return strings.Contains(said, s) }
	if slices.ContainsFunc(passing, within) {
		return false
	}
	return slices.ContainsFunc(unfit, within) ||
		!t.IsSplit() && slices.ContainsFunc(elsewhere, func(s string) bool { return strings.HasPrefix(said, s) })
}
