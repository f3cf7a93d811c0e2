package limiter

import (
	"errors"
	"fmt"
)

// A Wrapper is a store around another store. If it does not implement an optional interface itself,
// such as [Claimer] or [Checker], the inner store's methods are used.
type Wrapper interface {
	// Unwrap returns the inner store, or nil.
	Unwrap() Store
}

// A Claimer is a store that knows the names of the rules that count in it, so that two limiters do not
// share counters by mistake.
type Claimer interface {
	// Claim registers a limiter that counts under rule. If this process has a limiter of that
	// name already, Claim returns an error that wraps [ErrClaimed], and [New] and the
	// middleware's New log a warning. Any other error means that the store cannot be used.
	Claim(rule string) error
}

// ErrClaimed is what Claim returns for a name that is in use.
var ErrClaimed = errors.New("limiter: another limiter counts under this name in this store")

// A Checker says which quotas it can count. A store that is no Checker counts every quota
// except slots ([Quota.InFlight]).
type Checker interface {
	// Check returns why the store cannot count q, or nil. [New] and the middleware's New fail
	// with that error. For a quota of slots, nil is a promise: the store releases the slots of
	// a process that died.
	Check(q *Quota) error
}

// CheckQuota returns why s cannot count q, or nil: the error of the [Checker] that s is or wraps.
func CheckQuota(s Store, q *Quota) error {
	if checker, ok := As[Checker](s); ok {
		return checker.Check(q)
	}
	if q.InFlight() {
		return fmt.Errorf("limiter: a %T cannot count slots, as %q needs: "+
			"it would never release the slots of a process that died", s, q.rule)
	}
	return nil
}

// mostWrappers ends the search if a store wraps itself.
const mostWrappers = 16

// As returns the first store that is a T: s itself, the store that s wraps ([Wrapper]), and so
// on.
//
//	if c, ok := As[Claimer](s); ok {
//		err := c.Claim("mail")
//	}
func As[T any](s Store) (found T, ok bool) {
	for range mostWrappers {
		if found, ok = s.(T); ok {
			return found, true
		}
		w, isWrapper := s.(Wrapper)
		if !isWrapper {
			break
		}
		s = w.Unwrap()
	}
	return found, false
}
