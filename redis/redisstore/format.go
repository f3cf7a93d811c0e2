package redisstore

// formats are the versions of what is in Redis. They are parts of names, so that processes
// of two versions of Weir on one Redis never read, or reset, what the other has written:
// beside each other they count apart. Whoever changes what is written changes the version.
type formats struct {
	counters string // decide.lua, one.lua and lease.lua: a quota and a state
	holders  string // lease.lua: who holds how much of a counter
	sums     string // leasesync.lua: what processes counted
}

var current = formats{counters: "1", holders: "1", sums: "1"}

// No counter is named as the list of its holders or a sum is: a tier's name is not empty,
// and has no colon.
func (f formats) holdersOf(counter string) string { return counter + "::lease:" + f.holders }
func (f formats) sumOf(counter string) string     { return counter + "::sync:" + f.sums }
