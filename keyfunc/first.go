package keyfunc

import (
	"errors"
	"net/http"
)

// First is the key of the first of fs that has one:
//
//	keyfunc.First(keyfunc.User, keyfunc.IP())   // the user, or the address of a guest
//
// It tries the next function only after [ErrNoKey], and returns any other error: a client that makes
// a key unreadable must not be counted under another.
//
// A client that can leave a key out chooses which of fs counts it, so each of them must be safe alone.
// End with a function that always has a key, such as [IP], or a request may have none.
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
