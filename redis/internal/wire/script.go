package wire

import (
	"crypto/sha1"
	"encoding/hex"
	"sync"
)

// A Script is a Lua script. Redis knows it by the hash of its source, after it has run the source once.
type Script struct {
	Source string

	once sync.Once
	hash string
}

// NewScript returns a script. It does not compute the hash: the first request does.
func NewScript(source string) *Script { return &Script{Source: source} }

// put sets args[0] and args[1] to the command that runs the script, by its hash or its source.
func (s *Script) put(args []any, withSource bool) {
	s.once.Do(func() { s.hash = hashOf(s.Source) })
	if s.hash == "" || withSource {
		args[0], args[1] = "eval", s.Source
		return
	}
	args[0], args[1] = "evalsha", s.hash
}

// hashOf is "" under GODEBUG=fips140=only, where crypto/sha1 panics. The source is then sent each time.
func hashOf(source string) (hash string) {
	defer func() {
		if recover() != nil {
			hash = ""
		}
	}()
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}
