package promlimit

import (
	"context"
	"sync"
	"time"

	"github.com/weirgo/weir/middleware/bans"
)

// sharedBans is a list that processes share, as that of package redisbans is.
type sharedBans interface{ Stale() time.Duration }

// bansEvery is how often bans are counted at most.
const bansEvery = time.Second

// bansPatience is how long a list in Redis may take before what is known here is counted.
const bansPatience = 250 * time.Millisecond

// A banCount is how many bans are in force.
type banCount struct {
	mu   sync.Mutex
	at   time.Time
	last int
}

// of counts the bans of a list, if that is not just done: it reads them all.
func (c *banCount) of(list bans.List) int {
	if list.Empty() {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) < bansEvery {
		return c.last
	}
	ctx, cancel := context.WithTimeout(context.Background(), bansPatience)
	defer cancel()
	all, err := list.All(ctx)
	if err == nil || len(all) > 0 { // with an error, those known in this process
		c.last = len(all)
	}
	c.at = time.Now()
	return c.last
}
