package store

import (
	"embed"
	"strings"
)

//go:embed *.lua
var luaFiles embed.FS

// Lua returns the source of all algorithms, for a store that decides inside a server which runs Lua, as
// Redis does. The chunk sets local functions and needs the library struct. They decide as the algorithms in Go do.
//
// compile(kind, settles, a, b, c) makes a quota: kind is the number of a [limiter.Algorithm], settles is
// true for a quota with [limiter.Quota.Settles], and the rest are its [limiter.Quota.Numbers]. It returns nil
// for a kind that no quota has. The fields capacity and settles of a quota may be read, and the field bytes is
// the store's. If a quota has a field second, it is of a calendar and knows the window from q.first to q.second:
// count at no other time.
//
// isAhead(q, s, t) returns whether the clock has stepped back so far that the state s no longer counts. The
// fields last, level and prev of a state mean the same as in [limiter.State].
//
// take(q, s, cost) returns the level and the entries of s after an event for which there is room; cost is from 1
// to the capacity.
//
// The field algorithm of a quota q has functions over q and a state s:
//
//	advance(q, s, t)     brings s to time t, which must not be before s.last
//	used(q, s)           returns how many units are used or owed
//	owe(q, s, n)         takes n units without asking for room, at most twice the capacity
//	refund(q, s, n, at)  returns up to n units that were taken at that time (0: unknown), at most
//	                     the capacity
//	wait(q, s, room)     returns in how many microseconds at most room units are used, which may be 0 or
//	                     less if they are already
//
// An event fits if used(q, s)+cost is at most q.capacity; and in a LeakyBucket (q.queue) that does not wait for
// longer than w, if s.level is at most w*q.refill. If q.hasEntries is true, a state has the string s.log: the
// entries of a SlidingLog (q.logs), or the lows of a TokenBucket that settles. slidinglog.lua says what
// it needs of the store.
func Lua() string {
	var source strings.Builder
	for _, name := range []string{"integer", "tokenbucket", "window", "slidinglog", "algorithms"} {
		text, _ := luaFiles.ReadFile(name + ".lua") // embedded
		source.Write(text)
	}
	return source.String()
}
