package limiter

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed *.lua
var luaFiles embed.FS

func readLua(name string) []byte {
	source, err := luaFiles.ReadFile(name)
	if err != nil {
		panic(err) // an algorithm names a file that is not here
	}
	return source
}

// Lua returns the source of these algorithms, for a store that decides inside a server which runs Lua,
// as Redis does. The chunk sets the local table algorithms, indexed by the number of the [Algorithm].
// Each entry has functions over a quota q and a state s, whose fields last, level and prev are those of
// [State]. They decide as the functions of the same names in Go:
//
//	compile(a, b, c)     makes a quota from its [Quota.Numbers]; the fields algorithm and bytes are
//	                     the store's
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
// If settles is true, the functions support quotas with [Quota.Settles]. Set q.settles for such a
// quota. A bucket's state then has the string s.log.
func Lua(settles bool, of ...Algorithm) string {
	var source strings.Builder
	source.Write(readLua("integer.lua"))
	source.WriteString("local algorithms = {}\n")
	for _, a := range of {
		if known, ok := a.lookup(); ok {
			fmt.Fprintf(&source, "algorithms[%d] = (function(isQueue)\n%send)(%t)\n", a, readLua(known.lua), known.queue)
		}
	}
	if settles {
		source.Write(readLua("settles.lua"))
	}
	return source.String()
}

// Numbers returns the numbers from which [Lua] compiles q, all below 2^53. For a calendar limit they
// are the start of the window that contains at, and the lengths of that window and of the next. At is
// in microseconds since 1970. Near the end of the window, the server's clock decides which of the two
// windows counts.
func (q *Quota) Numbers(at int64) [3]int64 {
	if q.calendar != nil {
		const second, longest = 1_000_000, 1 << 25 // more than a year has
		w := q.calendar.at(at)
		return [3]int64{q.capacity, w.start, (w.end-w.start)/second*longest + (w.followedTo-w.end)/second}
	}
	if q.algorithm.bursts {
		return [3]int64{q.capacity, q.unit, q.refill}
	}
	return [3]int64{q.capacity, q.window, q.step}
}
