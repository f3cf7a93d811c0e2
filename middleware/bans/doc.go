// Package bans keeps lists of banned keys. An operator bans a key by hand, or a rule bans a key whose
// requests it refuses again and again. Each further ban lasts longer.
//
//	list, err := bans.New(bans.Options{})
//	...
//	if ban, ok := list.Find(key); ok {
//		// 403, or 429 with Retry-After until ban.Until
//	}
//
// [Memory] is the list inside the process. Package redisbans has a list that processes share.
package bans
