// Package bans keeps which clients are locked out, and until when: by hand, or because a client went
// on after it was refused, each time for longer.
//
//	list, err := bans.NewMemory(bans.MemoryConfig{})
//	...
//	if ban, ok := list.Find(key); ok {
//		// 403, or 429 with Retry-After until ban.Until
//	}
//
// [Memory] is the list inside the process. The one that processes share is in package
// redisstore.
package bans
