package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/weirgo/weir/internal/route"
)

// Query is the value of a parameter in the request's query: "query:tenant:acme" for
// Query("tenant") and "/search?tenant=acme". The value is that of r.URL.Query(), with
// percent-encoding undone. [FormField] reads forms in the body.
//
// All clients share the counter of a value. A client that sends another value each time has a new key
// each time, so put a rule on [IP] beside it. Two parameters of that name with different values are
// [ErrAmbiguous], as with [APIKey]. So is a query in which another program may find another value: a # or a
// NUL in it, a ; or a wrong escape in the parameter, or its name spelled as tenant[]. An empty
// value is no key.
//
// Query panics if name is empty, or has one of : & = # + % ; or a space in it.
func Query(name string) Func { return must(newQuery(name)) }

var errNoQueryName = errors.New("it is not the name of a parameter")

func newQuery(name string) (Func, error) {
	isOdd := func(c rune) bool { return c <= ' ' || c == 0x7f || strings.ContainsRune(":&=#+%;", c) }
	if name == "" || strings.ContainsFunc(name, isOdd) {
		return nil, fmt.Errorf("keyfunc: Query(%q): %w", name, errNoQueryName)
	}
	prefix := queryTag + name + ":"
	var errTwo error = ambiguous("two different parameters " + name + " in the query")
	var errUnclear error = ambiguous("a query in which programs find different parameters " + name)
	return func(r *http.Request) (string, error) {
		if r.URL == nil {
			return "", ErrNoKey
		}
		var space [2]string
		values, clear := route.Query(space[:0], r.URL.RawQuery, name)
		if !clear {
			return "", errUnclear
		}
		value := ""
		for i, given := range values {
			if i > 0 && given != value {
				return "", errTwo
			}
			value = given
		}
		if value == "" {
			return "", ErrNoKey
		}
		return prefix + value, nil
	}, nil
}
