package tally

import (
	"sync"

	"github.com/weirgo/weir/middleware"
)

// A Cache finds the T of a rule by its address: without a lock and without memory, but for the
// first time. Rules that were changed have new addresses, so it begins anew when it is full.
type Cache[T any] struct {
	known sync.Map // *middleware.RuleInfo to *T

	mu   sync.Mutex
	size int
}

// Of is the T of a rule, which find is asked for under a lock. At most so many rules are kept.
func (c *Cache[T]) Of(rule *middleware.RuleInfo, most int, find func(*middleware.RuleInfo) *T) *T {
	if of, ok := c.known.Load(rule); ok {
		return of.(*T)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if of, ok := c.known.Load(rule); ok {
		return of.(*T)
	}
	of := find(rule)
	if c.size >= most {
		c.Forget()
	}
	c.size++
	c.known.Store(rule, of)
	return of
}

// Forget lets go of all rules. Those in force are found again. It is for find alone to call.
func (c *Cache[T]) Forget() {
	c.size = 0
	c.known.Clear()
}
