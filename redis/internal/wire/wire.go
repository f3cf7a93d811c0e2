// Package wire is how Weir's packages talk to Redis: scripts, deadlines, messages, errors and their
// diagnosis, and the check of a prefix. It decides nothing about limits.
package wire

import (
	"errors"
	"fmt"
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
		errs = append(errs, Errorf(pkg, "Prefix %.20q... has %d characters: at most %d are allowed", prefix, len(prefix), longestPrefix))
	}
	if i := strings.IndexFunc(prefix, func(c rune) bool { return c <= ' ' || c > '~' || c == '{' || c == '}' }); i >= 0 {
		errs = append(errs, Errorf(pkg, "Prefix %q has a space, a brace or a character outside printable ASCII", prefix))
	}
	if err := keyfunc.CheckSecret(pkg, secret); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// CheckClient returns why package pkg cannot use a client, or nil. A client of another kind does not say whether
// it is for one server, and an AutoPipeline keeps no deadline.
func CheckClient(pkg string, client redis.UniversalClient) error {
	isNil := false
	switch client := client.(type) {
	case nil:
		isNil = true
	case *redis.Client:
		isNil = client == nil
	case *redis.ClusterClient:
		isNil = client == nil
	case *redis.Ring:
		return Errorf(pkg, "the client is a *redis.Ring, whose shards are not one store: when a shard is lost, its keys are counted anew on others; use a *redis.ClusterClient, or a *redis.Client for one server or Sentinel")
	default:
		return Errorf(pkg, "the client is a %T: it must be a *redis.Client (one server or Sentinel) or a *redis.ClusterClient; of a wrapper or an AutoPipeline pass the client inside: Weir sends pipelines itself, and must set timeouts and know if there are several servers", client)
	}
	if isNil {
		return Errorf(pkg, "it needs a client, and this one is nil")
	}
	return nil
}

// errNoStruct is the error of a server such as miniredis.
var errNoStruct = errors.New("the server's Lua lacks the library struct, as miniredis's does: there only counters are supported, and neither leases nor bans; use a Redis")

// errNoLua is the error of a Valkey without its Lua module.
var errNoLua = errors.New("the server cannot run Lua: load its Lua module, or use a server with Lua built in")

// plainly returns err, and what to do if the server lacks Lua or its library struct.
func plainly(err error) error {
	switch said := err.Error(); {
	case strings.Contains(said, "nonexistent global variable 'struct'"):
		return fmt.Errorf("%w (%w)", errNoStruct, err)
	case strings.Contains(said, "scripting engine"):
		return fmt.Errorf("%w (%w)", errNoLua, err)
	}
	return err
}
