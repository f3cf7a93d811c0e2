package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// A Func reads the key that a request is counted under. It returns either a key, which is not empty, or
// an error: [ErrNoKey] if the request has no such key, and another error if the key cannot be read.
//
// The keys of this package differ by kind: an address is plain ("192.0.2.1", "2001:db8::/64"), and any
// other key begins with its kind ("user:42"). Your own Func should begin its keys with a word and a
// colon too: a key that is the client's text from the first byte can look like any other.
//
// A key that does not belong to one client has a mark in front that no client can write; see [Class].
// The middleware and lists of bans remove it. If you pass a key to anything else, such as a
// limiter.Limiter, remove it with [Classify], because each process has a different mark. A Func that
// builds on another Func's key removes it too, and puts it back with [Class.Mark].
//
// A Func does not change the request, except that [Body] may read its body. It may be called from many
// goroutines.
type Func func(*http.Request) (string, error)

// ErrNoKey says that a request carries no such key: no user, no such header.
// [First] then asks the next function.
var ErrNoKey = errors.New("keyfunc: the request carries no such key")

// ErrAmbiguous is wrapped by errors about requests with several keys in place of one, such as two
// different API keys. The middleware answers such a request 400, because nobody knows which key the
// code behind it believes.
var ErrAmbiguous = errors.New("keyfunc: the request has several keys where one is meant")

// What keys begin with. No tag is only hexadecimal digits, as an IPv6 address might be.
const (
	userTag        = "user:"
	apiKeyTag      = "apikey:"
	bearerTag      = "bearer:"
	headerTag      = "header:"
	cookieTag      = "cookie:"
	routeTag       = "route:"
	methodTag      = "method:"
	hostTag        = "host:"
	pathTag        = "path:"
	queryTag       = "query:"
	bodyTag        = "body:"
	formTag        = "form:"
	joinTag        = "join:"
	hashTag        = "hash:"
	fingerprintTag = "fp:"
	toolTag        = "tool:"
	paramTag       = "param:"

	globalKey = "global"
)

// key calls f. An empty key is ErrNoKey, because f may be the application's.
func (f Func) key(r *http.Request) (string, error) {
	key, err := f(r)
	if err == nil && key == "" {
		err = ErrNoKey
	}
	if err != nil {
		return "", err
	}
	return key, nil
}

// must panics on the error of a constructor whose arguments stand in code.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err.Error())
	}
	return v
}

// mustFuncs returns a copy of fs that the caller can no longer change.
func mustFuncs(caller string, fs []Func) []Func {
	if len(fs) == 0 {
		panic("keyfunc: " + caller + " needs at least one function")
	}
	for i, f := range fs {
		if f == nil {
			panic(fmt.Sprintf("keyfunc: %s: function %d is nil", caller, i+1))
		}
	}
	return slices.Clone(fs)
}
