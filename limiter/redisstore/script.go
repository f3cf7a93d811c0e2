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

var (
	//go:embed decide.lua
	decideLua string

	//go:embed one.lua
	oneLua string

	//go:embed log.lua
	logLua string
)

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
	decide, one string // what comes after the algorithms

	batches, singles [every + 1]struct {
		sync.Once
		script
	}
}

// newScripts puts together scripts of decide.lua and one.lua, which differ in tests.
func newScripts(decide, one string) *scripts { return &scripts{decide: decide, one: one} }

// single is the script for one charge under the algorithm in set.
func (s *scripts) single(set algorithms) *script {
	made := &s.singles[set]
	made.Do(func() { made.script = newScript(source(set) + s.one) })
	return &made.script
}

// of is the script for batches under the algorithms in set.
func (s *scripts) of(set algorithms) *script {
	made := &s.batches[set]
	made.Do(func() {
		log := ""
		if set&algorithms(0).with(limiter.SlidingLog) != 0 {
			log = logLua
		}
		made.script = newScript(fmt.Sprintf("local event, saveLog\n%slocal complete = %t\n%s%s",
			source(set), set == every, log, s.decide))
	})
	return &made.script
}

func newScript(source string) script {
	hash := sha1.Sum([]byte(source))
	return script{source, hex.EncodeToString(hash[:])}
}

// source is that of the algorithms in set.
func source(set algorithms) string {
	var of []limiter.Algorithm
	for a := range limiter.SlidingLog + 1 {
		if set&(1<<a) != 0 {
			of = append(of, a)
		}
	}
	return limiter.Lua(of...)
}

// isIncomplete tells that there is something in a key that the script leaves to another.
func isIncomplete(err error) bool { return strings.Contains(err.Error(), "WEIRINCOMPLETE") }

// isTryAgain tells that the keys' slot is being moved, and they are not all on one node.
func isTryAgain(err error) bool { return strings.HasPrefix(err.Error(), "TRYAGAIN") }

// isUnknown tells that the server has not seen the script, or not since it was restarted.
func isUnknown(err error) bool { return strings.HasPrefix(err.Error(), "NOSCRIPT") }
