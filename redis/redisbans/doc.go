// Package redisbans keeps bans in Redis. All processes of a service then refuse a banned client:
//
//	list, err := redisbans.New(ctx, rdb, redisbans.Options{})
//	...
//	limits, err := middleware.New(middleware.Config{Bans: middleware.Bans{List: list}, ...})
//
// Each process keeps a copy of the list, so a request never waits for Redis. [List] says what
// happens while Redis is down.
package redisbans
