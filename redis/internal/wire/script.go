package wire

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A Script is one that Redis knows by the hash of its source, once it was told that.
type Script struct {
	Source string

	once sync.Once
	hash string
}

// NewScript returns a script. Nothing is hashed before the script is sent.
func NewScript(source string) *Script { return &Script{Source: source} }

// Put makes args[0] and args[1] what has Redis run the script: by its hash, or by its source
// where Redis has to be told that.
func (s *Script) Put(args []any, withSource bool) {
	if hash := s.Hash(); hash != "" && !withSource {
		args[0], args[1] = "evalsha", hash
		return
	}
	args[0], args[1] = "eval", s.Source
}

// Run has Redis run the script, by its hash if Redis knows that.
func (s *Script) Run(ctx context.Context, client redis.UniversalClient, names []string, args ...any) *redis.Cmd {
	if hash := s.Hash(); hash != "" {
		cmd := client.EvalSha(ctx, hash, names, args...)
		if err := cmd.Err(); err == nil || !IsUnknown(err) {
			return cmd
		}
	}
	return client.Eval(ctx, s.Source, names, args...)
}

// Hash is the name that Redis knows the script by, or "" in a process that is not allowed
// SHA-1: its scripts travel with their source.
func (s *Script) Hash() string {
	s.once.Do(func() { s.hash = hashOf(s.Source) })
	return s.hash
}

// hashOf is "" under GODEBUG=fips140=only, where crypto/sha1 panics.
func hashOf(source string) (hash string) {
	defer func() {
		if recover() != nil {
			hash = ""
		}
	}()
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}
