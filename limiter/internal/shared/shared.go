// Package shared holds what packages limiter and store both use, and what limiter does not show its users. In its
// functions S is limiter.Store and Q is *limiter.Quota.
package shared

import (
	"errors"
	"fmt"
)

// ErrClaimed is store.ErrClaimed.
var ErrClaimed = errors.New("limiter: another limiter counts under this name in this store")

// CheckQuota is store.CheckQuota.
func CheckQuota[S any, Q interface {
	InFlight() bool
	Rule() string
}](s S, q Q) error {
	if checker, ok := As[interface{ Check(q Q) error }](s); ok {
		return checker.Check(q)
	}
	if q.InFlight() {
		return fmt.Errorf("limiter: a %T cannot count slots, as %q needs: "+
			"it would never release the slots of a process that died", s, q.Rule())
	}
	return nil
}

// mostWrappers ends the search if a store wraps itself.
const mostWrappers = 16

// As is store.As.
func As[T, S any](s S) (found T, ok bool) {
	for range mostWrappers {
		if found, ok = any(s).(T); ok {
			return found, true
		}
		w, isWrapper := any(s).(interface{ Unwrap() S })
		if !isWrapper {
			break
		}
		s = w.Unwrap()
	}
	return found, false
}
