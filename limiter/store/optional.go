package store

import (
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/internal/shared"
)

// A Wrapper is a store around another store. If it does not implement an optional interface itself,
// such as [Claimer] or [Checker], the inner store's methods are used.
type Wrapper interface {
	// Unwrap returns the inner store, or nil.
	Unwrap() limiter.Store
}

// A Claimer is a store that knows the names of the rules that count in it, so that two limiters do not
// share counters by mistake.
type Claimer interface {
	// Claim registers a limiter that counts under rule. If this process has a limiter of that
	// name already, Claim returns an error that wraps [ErrClaimed], and [limiter.New] and the
	// middleware's New log a warning. Any other error means that the store cannot be used.
	Claim(rule string) error
}

// ErrClaimed is what Claim returns for a name that is in use.
var ErrClaimed = shared.ErrClaimed

// A Checker says which quotas it can count. A store that is no Checker counts every quota
// except slots ([limiter.Quota.InFlight]).
type Checker interface {
	// Check returns why the store cannot count q, or nil. [limiter.New] and the middleware's New fail
	// with that error. For a quota of slots, nil is a promise: the store releases the slots of
	// a process that died.
	Check(q *limiter.Quota) error
}

// CheckQuota returns why s cannot count q, or nil: the error of the [Checker] that s is or wraps.
func CheckQuota(s limiter.Store, q *limiter.Quota) error { return shared.CheckQuota(s, q) }

// As returns the first store that is a T: s itself, the store that s wraps ([Wrapper]), and so
// on.
//
//	if c, ok := store.As[store.Claimer](s); ok {
//		err := c.Claim("mail")
//	}
func As[T any](s limiter.Store) (found T, ok bool) { return shared.As[T](s) }
