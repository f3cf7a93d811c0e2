package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
)

// Cookie is the value of a cookie: "cookie:session:8f3a".
//
// It is safe after the value was checked: a client that drops or forges its cookie is a new client.
// Two cookies of that name with different values are [ErrAmbiguous], as with [APIKey].
//
// Cookie panics if name is not the name of a cookie.
func Cookie(name string) Func { return must(newCookie(name)) }

var errNoCookieName = errors.New("it is not the name of a cookie")

func newCookie(name string) (Func, error) {
	if !isToken(name) {
		return nil, fmt.Errorf("keyfunc: Cookie(%q): %w", name, errNoCookieName)
	}
	prefix := cookieTag + name + ":"
	var errTwo error = ambiguous("two different " + name + " cookies")
	return func(r *http.Request) (string, error) {
		cookies := r.CookiesNamed(name)
		values := make([]string, len(cookies))
		for i, cookie := range cookies {
			values[i] = cookie.Value
		}
		value, err := only(values, errTwo)
		if err != nil {
			return "", err
		}
		return prefix + value, nil
	}, nil
}
