// Package redisbans keeps bans in Redis, so that all processes of a service refuse a
// client together:
//
//	list, err := redisbans.New(ctx, rdb, redisbans.Options{})
//	...
//	limits, err := middleware.New(middleware.Config{Bans: middleware.Bans{List: list}, ...})
//
// Each process has a copy of the list, so that a request never waits for Redis to learn
// whether it is banned; see [List] for what happens while Redis is away.
package redisbans
