package redisstore

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"

	"github.com/weirgo/weir/limiter"
)

//go:embed decide.lua
var decideLua string

// A script is one that Redis knows by the hash of its source.
type script struct {
	source, hash string
}

// A set of algorithms, a bit for each number.
type algorithms uint8

func (s algorithms) with(a limiter.Algorithm) algorithms { return s | 1<<a }

// every is all that there are.
const every algorithms = 1<<(limiter.SlidingLog+1) - 1

// scripts are the script once for each set of algorithms that is asked for. A function
// costs Redis time whenever a script that defines it begins, and most batches need a
// single algorithm.
type scripts struct {
	// decide is what comes after the algorithms; it differs in tests.
	decide string

	once [every + 1]sync.Once
	made [every + 1]script
}

func (s *scripts) of(set algorithms) *script {
	s.once[set].Do(func() {
		var of []limiter.Algorithm
		for a := range limiter.SlidingLog + 1 {
			if set&(1<<a) != 0 {
				of = append(of, a)
			}
		}
		complete := "false"
		if set == every {
			complete = "true"
		}
		source := fmt.Sprintf("local event\n%slocal complete, SLIDING_LOG = %s, %d\n%s",
			limiter.Lua(of...), complete, limiter.SlidingLog, s.decide)
		hash := sha1.Sum([]byte(source))
		s.made[set] = script{source, hex.EncodeToString(hash[:])}
	})
	return &s.made[set]
}

// isIncomplete tells that a key was written under an algorithm which the script lacks.
func isIncomplete(err error) bool { return strings.Contains(err.Error(), "WEIRINCOMPLETE") }

// isUnknown tells that the server has not seen the script, or not since it was restarted.
func isUnknown(err error) bool { return strings.HasPrefix(err.Error(), "NOSCRIPT") }
