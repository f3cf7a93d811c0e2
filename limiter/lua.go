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

// Lua is the source of these algorithms for a store that decides inside a server which
// runs Lua, as Redis does: a chunk that sets the local table algorithms, by number. Each
// entry has functions over a quota q, which the first of them makes, and a state s. Its
// fields last, level and prev are those of [State]:
//
//	compile(a, b, c)   the quota of these [Quota.Numbers], with its capacity, and with room
//	                   for the store's own algorithm and bytes, as a table is cheap to make
//	                   with all its fields at once
//	check(q, t)        to be called where q.calendar is true, before anything is counted: the error
//	                   "WEIROUTOFDATE t" where time t is not in the window that q is of
//	isAhead(q, s, t)   whether the clock has stepped back so far from s that it counts no more
//	advance(q, s, t)   brings s to time t, no earlier than s.last
//	take(q, s, cost)   the level after an event that fits, and where there are entries those,
//	                   or nil; cost from 1 to capacity
//	owe(q, s, n)       takes n units without asking for room; n up to twice the capacity
//	refund(q, s, n, at)  takes up to n units back out of s, of those taken at that time, or 0;
//	                   n up to the capacity
//	remaining(q, s)    how many units are free; below 0: owed
//	resetAfter(q, s)   after how many microseconds all are
//
// SlidingLog's state has entries, so its table has isLog set; slidinglog.lua says what it
// needs of the store. Decisions are those of the functions of the same names in Go.
//
// If settles is true, there may be quotas that settle ([Quota.Settles]). q.settles then says
// whether a quota does, and a bucket's state has the string s.log.
func Lua(settles bool, of ...Algorithm) string {
	var source strings.Builder
	source.Write(readLua("integer.lua"))
	source.WriteString("local algorithms = {}\n")
	for _, a := range of {
		if known, ok := a.lookup(); ok {
			fmt.Fprintf(&source, "algorithms[%d] = (function(isQueue)\n%send)(%t)\n", a, readLua(known.lua), known.delay != nil)
		}
	}
	if settles {
		source.Write(readLua("settles.lua"))
	}
	return source.String()
}

// Numbers returns the numbers from which [Lua] compiles q, all below 2^53. For a calendar limit
// they describe the window of that time, in microseconds since 1970: when it begins, and how
// many seconds it and the next window have. Near the end of a window, the server's own time
// decides.
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
