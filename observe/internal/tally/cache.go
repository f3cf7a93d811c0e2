// Package tally is what observers share: a cache of what they keep for each rule, and what a store
// reports.
package tally

import (
	"sync"

	"github.com/weirgo/weir/middleware"
)

// A Cache finds the T of a rule by the rule's address, without a lock and without memory except for
// the first time. Changed rules have new addresses, so a full Cache is cleared.
type Cache[T any] struct {
	known sync.Map // *middleware.RuleInfo to *T

	mu   sync.Mutex
	size int
}

// Of returns the T of a rule. If it is not known, find returns it, under a lock. The Cache keeps up to most rules.
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

// Forget clears the Cache. Only find may call it.
func (c *Cache[T]) Forget() {
	c.size = 0
	c.known.Clear()
}
