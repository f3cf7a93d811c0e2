package keyfunc

import (
	"errors"
	"net/http"
)

// First is the key of the first of fs that has one:
//
//	keyfunc.First(keyfunc.User, keyfunc.IP())   // the user, or the address of a guest
//
// It moves on only when a function answers [ErrNoKey]. Any other error is
// returned: a client that makes a key unreadable must not be counted as another.
//
// A client that can leave a key out chooses which of fs counts it, so every one of
// them must be a key you would accept alone. End with one that always answers, such
// as [IP]; else a request may have no key at all.
//
// First panics if it is given no function or a nil one.
func First(fs ...Func) Func {
	fs = mustFuncs("First", fs)
	return func(r *http.Request) (string, error) {
		for _, f := range fs {
			key, err := f.key(r)
			if err == nil {
				return key, nil
			}
			if !errors.Is(err, ErrNoKey) {
				return "", err
			}
		}
		return "", ErrNoKey
	}
}
