package redisstore

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/internal/wire"
)

var (
	//go:embed decide.lua
	decideLua string

	//go:embed one.lua
	oneLua string

	//go:embed log.lua
	logLua string

	//go:embed struct.lua
	structLua string
)

// A set of algorithms, a bit for each number.
type algorithms uint8

func (s algorithms) with(a limiter.Algorithm) algorithms { return s | 1<<a }

// every is all that there are.
const every algorithms = 1<<(limiter.SlidingLog+1) - 1

// scripts are the script once for each set of algorithms that is asked for. A function
// costs Redis time whenever a script that defines it begins, and most batches need a
// single algorithm.
type scripts struct {
	before      string // everything else
	decide, one string // what comes after the algorithms

	batches, singles [every + 1]struct {
		sync.Once
		*wire.Script
	}

	// plain are the same scripts for a server whose Lua lacks struct, and lacking is set once
	// the server has said so. They are nil for the plain ones.
	plain   *scripts
	lacking atomic.Bool
}

// newScripts puts together scripts of decide.lua and one.lua, which differ in tests.
func newScripts(decide, one string) *scripts {
	return &scripts{decide: decide, one: one, plain: &scripts{before: structLua, decide: decide, one: one}}
}

// known are the scripts that the server can run, as far as is known.
func (s *scripts) known() *scripts {
	if s.lacking.Load() {
		return s.plain
	}
	return s
}

// single is the script for one charge under the algorithm in set.
func (s *scripts) single(set algorithms) *wire.Script {
	made := &s.singles[set]
	made.Do(func() { made.Script = wire.NewScript(s.before + source(set) + s.one) })
	return made.Script
}

// of is the script for batches under the algorithms in set.
func (s *scripts) of(set algorithms) *wire.Script {
	made := &s.batches[set]
	made.Do(func() {
		log := ""
		if set&algorithms(0).with(limiter.SlidingLog) != 0 {
			log = logLua
		}
		made.Script = wire.NewScript(fmt.Sprintf("%slocal event, cut, saveLog\n%slocal complete = %t\n%s%s",
			s.before, source(set), set == every, log, s.decide))
	})
	return made.Script
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

// isIncomplete reports that there is something in a key that the script leaves to another.
func isIncomplete(err error) bool {
	text := err.Error()
	return strings.Contains(text, "WEIRINCOMPLETE") || strings.Contains(text, "WRONGTYPE")
}
