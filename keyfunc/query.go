package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Query is the value of a parameter in the request's query: "query:tenant:acme" for
// Query("tenant") and "/search?tenant=acme". The value is that of r.URL.Query(), with
// percent-encoding undone. Forms in the body are not read.
//
// All clients share the counter of a value. A client that sends another value each time has a new key
// each time, so put a rule on [IP] beside it. Two parameters of that name with different values are
// [ErrAmbiguous], as with [APIKey]. An empty value is no key.
//
// Query panics if name is empty, or has one of : & = # + % ; or a space in it.
func Query(name string) Func { return must(newQuery(name)) }

var errNoQueryName = errors.New("it is not the name of a parameter")

func newQuery(name string) (Func, error) {
	if name == "" || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c == 0x7f || strings.ContainsRune(":&=#+%;", c) }) {
		return nil, fmt.Errorf("keyfunc: Query(%q): %w", name, errNoQueryName)
	}
	prefix := queryTag + name + ":"
	var errTwo error = ambiguous("two different parameters " + name + " in the query")
	return func(r *http.Request) (string, error) {
		if r.URL == nil {
			return "", ErrNoKey
		}
		found, value := false, ""
		for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
			left, right, _ := strings.Cut(pair, "=")
			if strings.Contains(pair, ";") { // url.ParseQuery passes over those, and over what it can't read
				continue
			}
			if given, err := url.QueryUnescape(left); err != nil || given != name {
				continue
			}
			given, err := url.QueryUnescape(right)
			switch {
			case err != nil:
			case found && given != value:
				return "", errTwo
			default:
				found, value = true, given
			}
		}
		if value == "" {
			return "", ErrNoKey
		}
		return prefix + value, nil
	}, nil
}
