// Package shared holds what packages limiter and store both use, and what limiter does not show its users.
package shared

import "errors"

// ErrClaimed is store.ErrClaimed.
var ErrClaimed = errors.New("limiter: another limiter counts under this name in this store")

// Package limiter sets these functions, for package store. Their types are limiter's, so they have none here.
var (
	CheckCharges     any // func([]limiter.Charge) error
	CheckSettlements any // func([]limiter.Settlement) error
	CheckQuota       any // func(limiter.Store, *limiter.Quota) error
)

// mostWrappers ends the search if a store wraps itself.
const mostWrappers = 16

// As is store.As. S is limiter.Store.
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
