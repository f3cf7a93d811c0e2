// Package redisfleet is where the processes of a service tell each other of themselves, in
// Redis, so that the page of one shows them all:
//
//	board, err := redisfleet.New(rdb, redisfleet.Options{})
//	...
//	page, err := dashboard.New(dashboard.Options{Fleet: board, ...})
//
// It costs Redis one small command of each process every five seconds, and one of each
// process while its page is open.
package redisfleet
