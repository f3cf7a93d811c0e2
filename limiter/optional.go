package limiter

import (
	"errors"
	"fmt"
)

// What a [Store] may implement besides. [As] finds these methods through wrappers. Package failover
// says what it asks of stores.

// A Wrapper is a store around another one. What the inner store says of itself, in the
// methods below, is then true of the wrapper too, where the wrapper does not say otherwise.
type Wrapper interface {
	// Unwrap returns the inner store, or nil.
	Unwrap() Store
}

// A Claimer knows which rules are counted in it.
type Claimer interface {
	// Claim notes that a limiter counts under rule. A second one of this process under the
	// same name gets an error that wraps [ErrClaimed], which [New] and the middleware's New
	// warn about. Any other error says that the store cannot be used.
	Claim(rule string) error
}

// ErrClaimed is what Claim returns for a name that is taken.
var ErrClaimed = errors.New("limiter: another limiter counts under this name in this store")

// A Checker cannot count for every quota, or can count slots. Stores that are no Checker count for
// every quota but those of slots ([Quota.InFlight]).
type Checker interface {
	// Check returns why the store cannot count for q, or nil. [New] and the middleware's New
	// fail with that error. For slots nil is a promise: the slots of a process that has died
	// are released.
	Check(q *Quota) error
}

// CheckStore returns why s cannot count for q, or nil.
func CheckStore(s Store, q *Quota) error {
	if store, ok := As[Checker](s); ok {
		return store.Check(q)
	}
	if q.InFlight() {
		return fmt.Errorf("limiter: a %T cannot count slots, as %q needs: the slots of a process that dies would stay taken", s, q.rule)
	}
	return nil
}

// mostWrappers ends the search where a store unwraps to itself.
const mostWrappers = 16

// As finds the first store that is a T: s, or the store that it wraps ([Wrapper]), and so on.
//
//	if c, ok := limiter.As[limiter.Claimer](store); ok {
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
