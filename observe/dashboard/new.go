package dashboard

import "sync/atomic"

// A newcomers estimates how many requests are of keys that a rule has not seen for minutes, or
// never. It follows one key in 2^level, and remembers those, so that of each the first request
// is known for one: it stands for 2^level. What the others ask costs a hash.
//
// Its level rises as more come than it can remember for minutes.
type newcomers struct {
	level atomic.Uint32
	came  atomic.Uint32 // that were followed since the level was looked at
	keys  [newcomerSets][newcomerWays]atomic.Uint32
	count counter
	sure  int64 // the second from which on they are new, and not only unknown as yet
	since int64 // the second from which on came counts
}

const (
	newcomerSets = 128
	newcomerWays = 4
	newcomerMost = newcomerSets * newcomerWays / 2 // in memoryLasts
	lowestLevel  = 3
	highestLevel = 24
	memoryLasts  = 120 // seconds
)

func (n *newcomers) init(now int64) {
	n.level.Store(lowestLevel)
	n.since, n.sure = now, now+memoryLasts
}

// add is for each request. It allocates nothing.
func (n *newcomers) add(hash uint64) {
	level := n.level.Load()
	if hash>>(64-level) != 0 {
		return
	}
	set, key := &n.keys[hash%newcomerSets], uint32(hash>>7)|1
	for i := range set {
		if set[i].Load() == key {
			return
		}
	}
	came := n.came.Add(1)
	set[came%newcomerWays].Store(key)
	n.count.total.Add(1 << level)
	if came > newcomerMost && level < highestLevel && n.level.CompareAndSwap(level, level+1) {
		n.came.Store(newcomerMost / 2) // which would not have been followed
	}
}

// fold is called as a second ends, with those before.
func (n *newcomers) fold(last, now int64) {
	n.count.fold(last, now)
	if now < n.since+memoryLasts {
		return
	}
	// Where few come it follows more, of which those that it did not are unknown.
	level := n.level.Load()
	for came := max(1, n.came.Swap(0)); came < newcomerMost/4 && level > lowestLevel; came *= 2 {
		level--
		n.sure = now + memoryLasts
	}
	n.level.Store(level)
	n.since = now
}

// share is how much of what a rule was asked was of newcomers, if that can be told: in the
// last seconds, or if few of them were followed in the last minute. The counts are folded to
// now.
func (n *newcomers) share(asked *counter, now int64) (float64, bool) {
	const enough = 16 // that were followed, for an estimate
	if n.count.sum(now, judged) == 0 {
		return 0, false
	}
	for _, seconds := range []int{judged, 6 * judged} {
		if now-int64(seconds) < n.sure {
			return 0, false
		}
		if came := n.count.sum(now, seconds); came >= enough<<n.level.Load() {
			return min(1, float64(came)/float64(max(1, asked.sum(now, seconds)))), true
		}
	}
	return 0, false
}
