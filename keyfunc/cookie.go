package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/weirgo/weir/internal/route"
)

// Cookie is the value of a cookie: "cookie:session:8f3a".
//
// It is safe after the value was checked: a client that drops or forges its cookie is a new client.
// Two cookies of that name with different values are [ErrAmbiguous], as with [APIKey], also if a parser of cookies drops
// one of them. So is a cookie whose name some parser takes for this one.
//
// A value has one key in all its spellings: quotes around it are removed, as by Go and Python, and percent-encoding is
// undone once, as by PHP, Rails, Laravel and Express. A service that does neither refuses the other spellings, as they
// are not the value that it has given out. A value is [ErrAmbiguous] if it has any other quote or a backslash, a wrong
// escape, a % that is escaped itself, or a byte that is not visible ASCII, escaped or not.
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
	var errUnclear error = ambiguous("a " + name + " cookie that can be read in more than one way")
	return func(r *http.Request) (string, error) {
		value, found := "", false
		for _, line := range r.Header["Cookie"] { // http.Request.Cookies drops some, and all if there are thousands
			for pair := range strings.SplitSeq(line, ";") {
				left, right, _ := strings.Cut(pair, "=")
				if left = strings.Trim(left, ows); left != name {
					if left = strings.TrimFunc(left, isInvisible); left == name || route.MayName(left, name) {
						return "", errUnclear
					}
					continue
				}
				given, ok := cookieValue(strings.Trim(right, ows))
				switch {
				case !ok:
					return "", errUnclear
				case found && given != value:
					return "", errTwo
				}
				value, found = given, true
			}
		}
		if value == "" {
			return "", ErrNoKey
		}
		return prefix + value, nil
	}, nil
}

// cookieValue decodes the value of a cookie, or returns false if programs may read it differently.
func cookieValue(text string) (string, bool) {
	if len(text) > 1 && text[0] == '"' && text[len(text)-1] == '"' {
		text = text[1 : len(text)-1]
	}
	value, err := url.PathUnescape(text)
	isClear := err == nil && !strings.ContainsAny(text, `"\`) && !strings.Contains(value, "%")
	return value, isClear && !strings.ContainsFunc(text, isInvisible) && !strings.ContainsFunc(value, isInvisible)
}
