package tally

import (
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir/middleware"
)

// A Cache finds the T of a rule by its address: without a lock and without memory, but for the
// first time. Rules that were changed have new addresses, so it begins anew when it is full.
type Cache[T any] struct {
	places [256]atomic.Pointer[cached[T]] // of those that share a place, all but the last are in known only
	known  sync.Map                       // *middleware.RuleInfo to its *cached

	mu   sync.Mutex
	size int
}

type cached[T any] struct {
	rule *middleware.RuleInfo
	of   *T
}

// Of is the T of a rule, which find is asked for under a lock. At most so many rules are kept.
func (c *Cache[T]) Of(rule *middleware.RuleInfo, most int, find func(*middleware.RuleInfo) *T) *T {
	if e := c.places[hash(rule)].Load(); e != nil && e.rule == rule {
		return e.of
	}
	if e, ok := c.known.Load(rule); ok {
		return e.(*cached[T]).of
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.known.Load(rule); ok {
		return e.(*cached[T]).of
	}
	e := &cached[T]{rule, find(rule)}
	if c.size >= most {
		c.Forget()
	}
	c.size++
	c.known.Store(rule, e)
	c.places[hash(rule)].Store(e) // in the place of one that may be out of force
	return e.of
}

// Forget lets go of all rules. Those in force are found again. It is for find alone to call.
func (c *Cache[T]) Forget() {
	c.size = 0
	c.known.Clear()
	for i := range c.places {
		c.places[i].Store(nil)
	}
}
