package store

import (
	"embed"
	"strings"
)

//go:embed *.lua
var luaFiles embed.FS

// Lua returns the source of all algorithms, for a store that decides inside a server which runs Lua, as
// Redis does. The chunk sets the local function algorithmOf(kind, settles), whose kind is the number of a
// [limiter.Algorithm]. Set settles for a quota with [limiter.Quota.Settles]. It returns nil for a number
// that no quota has, or a table of functions over a quota q and a state s, whose fields last, level and
// prev mean the same as in [limiter.State]. They decide as the algorithms in Go do:
//
//	compile(a, b, c)     makes a quota from its [limiter.Quota.Numbers]; the fields algorithm and
//	                     bytes are the store's
//	check(q, t)          fails with "WEIROUTOFDATE t" if time t is outside q's window; call it
//	                     before you count if q.calendar is true
//	isAhead(q, s, t)     whether the clock has stepped back so far that s no longer counts
//	advance(q, s, t)     brings s to time t, which must not be before s.last
//	take(q, s, cost)     the new level if an event fits, and the new entries if it has some;
//	                     else nil; cost is from 1 to the capacity
//	owe(q, s, n)         takes n units without asking for room, at most twice the capacity
//	refund(q, s, n, at)  returns up to n units that were taken at that time (0: unknown), at most
//	                     the capacity
//	remaining(q, s)      how many units are free; below 0, how many are owed
//	resetAfter(q, s)     in how many microseconds all units are free
//
// If q.hasEntries is true, a state has the string s.log: the entries of a SlidingLog, or what a TokenBucket
// that settles records. The table of SlidingLog has isLog set; slidinglog.lua says what it needs of the
// store.
func Lua() string {
	source := readLua("integer.lua") + readLua("algorithms.lua")
	for {
		before, rest, found := strings.Cut(source, "--[[")
		if !found {
			return source
		}
		name, after, _ := strings.Cut(rest, "]]")
		source = before + readLua(name) + after
	}
}

func readLua(name string) string {
	source, err := luaFiles.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return string(source)
}
