// Package bans keeps which keys are locked out, and until when: by hand, or because a client
// went on after it was refused, each time for longer.
//
//	list, err := bans.New(bans.Options{})
//	...
//	if ban, ok := list.Find(key); ok {
//		// 403, or 429 with Retry-After until ban.Until
//	}
//
// [Memory] is the list inside the process. The list that processes share is in package
// redisbans.
package bans
