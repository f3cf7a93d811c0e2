package store

import (
	"embed"
	"fmt"
	"strings"

	"github.com/weirgo/weir/limiter"
)

//go:embed *.lua
var luaFiles embed.FS

// luaOf has the file of each algorithm that a server can count.
var luaOf = map[limiter.Algorithm]string{
	limiter.TokenBucket:    "tokenbucket.lua",
	limiter.LeakyBucket:    "tokenbucket.lua",
	limiter.FixedWindow:    "fixedwindow.lua",
	limiter.SlidingLog:     "slidinglog.lua",
	limiter.SlidingCounter: "slidingcounter.lua",
}

func readLua(name string) []byte {
	source, err := luaFiles.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return source
}

// Lua returns the source of these algorithms, for a store that decides inside a server which runs Lua,
// as Redis does. The chunk sets the local table algorithms, indexed by the number of the
// [limiter.Algorithm]. Each entry has functions over a quota q and a state s, whose fields last, level and
// prev mean the same as in [limiter.State]. They decide as the algorithms in Go do:
//
//	compile(a, b, c)     makes a quota from its [limiter.Quota.Numbers]; the fields algorithm and
//	                     bytes are the store's
//	check(q, t)          fails with "WEIROUTOFDATE t" if time t is outside q's window; call it
//	                     before you count if q.calendar is true
//	isAhead(q, s, t)     whether the clock has stepped back so far that s no longer counts
//	advance(q, s, t)     brings s to time t, which must not be before s.last
//	take(q, s, cost)     the new level if an event fits, and the new entries of a log; else
//	                     nil; cost is from 1 to the capacity
//	owe(q, s, n)         takes n units without asking for room, at most twice the capacity
//	refund(q, s, n, at)  returns up to n units that were taken at that time (0: unknown), at most
//	                     the capacity
//	remaining(q, s)      how many units are free; below 0, how many are owed
//	resetAfter(q, s)     in how many microseconds all units are free
//
// The table of SlidingLog has isLog set, and its states have entries: slidinglog.lua says what it needs
// of the store.
//
// If settles is true, the functions support quotas with [limiter.Quota.Settles]. Set q.settles for such a
// quota. A bucket's state then has the string s.log.
//
// Lua panics for an algorithm that no quota has ([limiter.Quota.Algorithm]).
func Lua(settles bool, of ...limiter.Algorithm) string {
	var source strings.Builder
	source.Write(readLua("integer.lua"))
	source.WriteString("local algorithms = {}\n")
	for _, a := range of {
		file, ok := luaOf[a]
		if !ok {
			panic(fmt.Sprintf("store: there is no Lua for %v", a))
		}
		isQueue := a == limiter.LeakyBucket
		fmt.Fprintf(&source, "algorithms[%d] = (function(isQueue)\n%send)(%t)\n", a, readLua(file), isQueue)
	}
	if settles {
		source.Write(readLua("settles.lua"))
	}
	return source.String()
}
