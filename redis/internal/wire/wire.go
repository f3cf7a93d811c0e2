// Package wire is how Weir's packages talk to Redis: scripts, deadlines, messages, errors and their
// diagnosis, and the check of a prefix. It decides nothing about limits.
package wire

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/keyfunc"
)

// DefaultPrefix begins the names in Redis if a program sets no prefix.
const DefaultPrefix = "weir"

const longestPrefix = 64

// Check returns everything that is wrong with the options Prefix and Secret of package pkg. The errors
// do not show the secret.
func Check(pkg, prefix string, secret []byte) (errs []error) {
	if len(prefix) > longestPrefix {
		errs = append(errs, fmt.Errorf("%s: Prefix %.20q... has %d characters: at most %d are allowed", pkg, prefix, len(prefix), longestPrefix))
	}
	if i := strings.IndexFunc(prefix, func(c rune) bool { return c <= ' ' || c > '~' || c == '{' || c == '}' }); i >= 0 {
		errs = append(errs, fmt.Errorf("%s: Prefix %q has a space, a brace or a character outside printable ASCII", pkg, prefix))
	}
	if err := keyfunc.CheckSecret(pkg, secret); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// IsNil reports whether a client is nil, or a nil pointer.
func IsNil(client redis.UniversalClient) bool {
	v := reflect.ValueOf(client)
	return client == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// errNoStruct is the error of a server such as miniredis.
var errNoStruct = errors.New("the server's Lua lacks the library struct, as miniredis's does: there only counters are supported, and neither leases nor bans; use a Redis")

// plainly returns err, and what to do if the server lacks the library struct.
func plainly(err error) error {
	if err != nil && strings.Contains(err.Error(), "nonexistent global variable 'struct'") {
		return fmt.Errorf("%w (%w)", errNoStruct, err)
	}
	return err
}
