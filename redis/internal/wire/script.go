package wire

import (
	"crypto/sha1"
	"encoding/hex"
	"sync"
)

// A Script is one that Redis knows by the hash of its source, once it was told the source.
type Script struct {
	Source string

	once sync.Once
	hash string
}

// NewScript returns a script. Nothing is hashed before the script is sent.
func NewScript(source string) *Script { return &Script{Source: source} }

// put makes args[0] and args[1] what has Redis run the script: by its hash, or by its source
// where Redis has to be told that.
func (s *Script) put(args []any, withSource bool) {
	if hash := s.name(); hash != "" && !withSource {
		args[0], args[1] = "evalsha", hash
		return
	}
	args[0], args[1] = "eval", s.Source
}

// name is what Redis knows the script by, or "" in a process that is not allowed
// SHA-1: its scripts travel with their source.
func (s *Script) name() string {
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
