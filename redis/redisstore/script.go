package redisstore

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"

	"github.com/weirgo/weir/limiter"
	stores "github.com/weirgo/weir/limiter/store"
	"github.com/weirgo/weir/redis/internal/counters"
	"github.com/weirgo/weir/redis/internal/wire"
)

var (
	//go:embed convert.lua
	convertLua string

	//go:embed decide.lua
	decideLua string

	//go:embed log.lua
	logLua string

	//go:embed slots.lua
	slotsLua string

	//go:embed struct.lua
	structLua string
)

// algorithms is a set of algorithms, with a bit for each number, and of the other parts of a script.
type algorithms uint8

// withSlots is in place of SlidingWindow, which no quota has.
const withSlots algorithms = 1 << limiter.SlidingWindow

const (
	longLogs algorithms = 1 << (limiter.SlidingCounter + 1 + iota)
	lows

	// every is all that there are.
	every = lows | (lows - 1<<limiter.TokenBucket)
)

// withQuota is s with what q needs.
func (s algorithms) withQuota(q *limiter.Quota) algorithms {
	if q.InFlight() {
		return s | withSlots
	}
	s |= 1 << q.Algorithm()
	if isLong(q) {
		s |= longLogs
	}
	if hasLows(q) {
		s |= lows
	}
	return s
}

// scripts has a script for each set of algorithms in use. Every function that a script defines
// costs Redis time whenever the script runs, and most batches need one algorithm.
type scripts struct {
	before, decide string // what comes before the algorithms, and after them

	made [int(every|withSlots) + 1]struct {
		sync.Once
		*wire.Script
	}
}

// newScripts returns the scripts that begin with before and end with decide, which differ in tests.
func newScripts(before, decide string) *scripts { return &scripts{before: before, decide: decide} }

// of returns the script for batches that need set.
func (s *scripts) of(set algorithms) *wire.Script {
	made := &s.made[set]
	made.Do(func() {
		log := ""
		if set&longLogs != 0 {
			log = logLua
		}
		if set&withSlots != 0 {
			log += slotsLua
		}
		made.Script = wire.NewScript(fmt.Sprintf("%s%s%s%s%slocal complete = %t\n%s%s",
			s.before, partNames, source(set), counters.QuotasLua, convertLua, set&^withSlots == every, log, s.decide))
	})
	return made.Script
}

// partNames are what log.lua and slots.lua define, where they are.
const partNames = "local stored, readValue, forget, saveLog, slots\n"

// source is that of the algorithms in set.
func source(set algorithms) string {
	var of []limiter.Algorithm
	for a := limiter.TokenBucket; a <= limiter.SlidingCounter; a++ {
		if set&(1<<a) != 0 {
			of = append(of, a)
		}
	}
	return stores.Lua(set&lows != 0, of...)
}

// isIncomplete reports whether a script met a value that needs more algorithms than it has.
func isIncomplete(err error) bool {
	return strings.Contains(err.Error(), "WEIRINCOMPLETE")
}
