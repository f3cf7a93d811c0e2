package dashboard

import (
	"math"
	"sync/atomic"
)

// newKeys estimates how many requests are of keys that a rule has not seen for minutes, or
// ever. It follows one key in 2^level and remembers it, so that its first request is known for
// one: it stands for 2^level. A request of another key costs a hash.
//
// The level rises when more new keys come than it can remember for minutes.
type newKeys struct {
	level atomic.Uint32
	came  atomic.Uint32 // keys that were followed since the level was looked at
	keys  [newKeySets][newKeyWays]atomic.Uint32
	count counter
	sure  int64 // the second from which on unknown keys are new
	since int64 // the second from which on came counts
}

const (
	newKeySets   = 256
	newKeyWays   = 4
	newKeyMost   = newKeySets * newKeyWays / 2 // in memoryLasts
	lowestLevel  = 0
	highestLevel = 24
	memoryLasts  = 120 // seconds
)

func (n *newKeys) init(now int64) {
	n.level.Store(lowestLevel)
	n.since, n.sure = now, now+memoryLasts
}

// add is for each request. It allocates nothing.
func (n *newKeys) add(hash uint64) {
	level := n.level.Load()
	if hash>>(64-level) != 0 {
		return
	}
	set, key := &n.keys[hash%newKeySets], uint32(hash>>8)|1
	for i := range set {
		if set[i].Load() == key {
			return
		}
	}
	came := n.came.Add(1)
	set[came%newKeyWays].Store(key)
	n.count.total.Add(1 << level)
	if came > newKeyMost && level < highestLevel && n.level.CompareAndSwap(level, level+1) {
		n.came.Store(newKeyMost / 2) // which would not have been followed
	}
}

// fold is called as a second ends, with those before.
func (n *newKeys) fold(last, now int64) {
	n.count.fold(last, now)
	if now < n.since+memoryLasts {
		return
	}
	// Where few come it follows more, and those that it did not follow are unknown.
	level := n.level.Load()
	for came := max(1, n.came.Swap(0)); came < newKeyMost/4 && level > lowestLevel; came *= 2 {
		level--
		n.sure = now + memoryLasts
	}
	n.level.Store(level)
	n.since = now
}

// share is the part of a rule's requests that was of new keys, if it surely is most of them: in
// the last ten seconds or, where these do not tell, in the last minute. Of n that were followed
// the standard error is √n, unless all are followed. The counts are folded to now.
func (n *newKeys) share(asked *counter, now int64) (share float64, most bool) {
	if n.count.sum(now, judged) == 0 {
		return 0, false
	}
	each := float64(int(1) << n.level.Load())
	for _, seconds := range []int{judged, 6 * judged} {
		if now-int64(seconds) < n.sure {
			break
		}
		came, all := float64(n.count.sum(now, seconds)), float64(asked.sum(now, seconds))
		doubt := 2 * math.Sqrt(came/each*(1-1/each)) * each
		if 2*(came-doubt) >= all {
			return min(1, came/all), true
		}
	}
	return 0, false
}
