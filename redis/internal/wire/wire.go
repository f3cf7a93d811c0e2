// Package wire is what the packages that speak Redis share: the one way to call it, with its
// deadlines, errors and their diagnosis; scripts; and what is allowed in a prefix. It decides
// on nothing.
package wire

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/keyfunc"
)

// DefaultPrefix begins the names in Redis where none is given.
const DefaultPrefix = "weir"

const longestPrefix = 64

// Check returns everything that is wrong with a prefix and a secret, for the package of that
// name. The errors name the fields Prefix and Secret, and nothing of the secret itself.
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

// IsNil reports that a client is none, whatever its type.
func IsNil(client redis.UniversalClient) bool {
	v := reflect.ValueOf(client)
	return client == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// errNoStruct is what to do about it: use no miniredis.
var errNoStruct = errors.New("the server's Lua lacks the library struct, as miniredis's does: there only counters are supported, and neither leases nor bans; use a Redis")

// plainly is err, or what to do about it.
func plainly(err error) error {
	if err != nil && strings.Contains(err.Error(), "nonexistent global variable 'struct'") {
		return fmt.Errorf("%w (%w)", errNoStruct, err)
	}
	return err
}
