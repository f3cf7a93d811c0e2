package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// A Func reads the key a request is counted under. It returns a key or an error,
// and never "" without one. [ErrNoKey] says that the request carries no such key;
// any other error says that the key could not be read.
//
// The keys of this package can't be mistaken for one another: an address is plain
// ("192.0.2.1", "2001:db8::/64"), everything else begins with what it is ("user:42").
// A Func of your own does well to begin its keys with a word and a colon too: a key that is
// the client's text from its first byte can pose as any other.
//
// Keys that are not one client's alone have that written before them, in a way that no client
// can; [Classify] takes it off. The middleware and the lists of bans do so by themselves. What
// passes a key to anything else, such as a limiter.Limiter, must take its text, as that mark
// differs from process to process. So must a Func that builds on another's key; [Class.Mark] puts
// the mark back.
//
// A Func does not change the request, but for reading its body with [Body], and may be called from
// many goroutines.
type Func func(*http.Request) (string, error)

// ErrNoKey says that a request carries no such key: no user, no such header.
// [First] then asks the next function.
var ErrNoKey = errors.New("keyfunc: the request carries no such key")

// ErrAmbiguous is what an error wraps that says of a request that it carries several keys
// where one is meant, such as two different API keys. Which of them is believed behind the
// limiter is unknown, so such a request goes no further: the middleware answers 400.
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
	joinTag        = "join:"
	hashTag        = "hash:"
	fingerprintTag = "fp:"

	globalKey = "global"
)

// key calls f and holds it to its word, as f may be the application's.
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

// must is for what is written in code.
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
