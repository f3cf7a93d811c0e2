// Package wire is what the packages that speak Redis share: scripts, and what is
// allowed in a prefix and a secret. It knows nothing of limits and bans.
package wire

import (
	"errors"
	"fmt"
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

// IsNil tells a client that is none, whatever its type.
func IsNil(client redis.UniversalClient) bool {
	switch c := client.(type) {
	case nil:
		return true
	case *redis.Client:
		return c == nil
	case *redis.ClusterClient:
		return c == nil
	case *redis.Ring:
		return c == nil
	}
	return false
}

// IsUnknown tells that the server has not seen the script, or not since it was restarted.
func IsUnknown(err error) bool { return strings.HasPrefix(err.Error(), "NOSCRIPT") }

// LacksStruct tells that the server's Lua lacks the library struct.
func LacksStruct(err error) bool {
	return strings.Contains(err.Error(), "nonexistent global variable 'struct'")
}

// errNoStruct is for what miniredis is not for, and its kind.
var errNoStruct = errors.New("the server's Lua lacks the library struct, as miniredis's does: there only counters are supported, and neither leases nor bans; use a Redis")

// Plainly is err, or what to do about it.
func Plainly(err error) error {
	if err != nil && LacksStruct(err) {
		return fmt.Errorf("%w (%w)", errNoStruct, err)
	}
	return err
}
