// Package envoy has the limits that a rules file has for Envoy. Only `weir serve --rls` reads them.
package envoy

import "github.com/weirgo/weir/limiter"

// A Descriptor is a limit for descriptors that Envoy, or another client of its rate limit service, sends.
type Descriptor struct {
	Domain  string
	Entries []Entry

	Name     string // of the rule
	Limit    limiter.Allowance
	OnOutage limiter.Outage
	Shadow   bool

	After       bool // requests are charged when they have ended; when they arrive, the service only looks
	FromRequest bool // a limit in the request replaces Limit
}

// An Entry is a part of a descriptor. An Entry without a value matches any value, and each value has its own
// counter.
type Entry struct {
	Key   string
	Value string // empty: any
}
