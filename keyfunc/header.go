package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// APIKey is the value of a header that holds an API key: "apikey:s3cret".
//
// It is safe after your authentication has checked the key. A limiter in front of that also counts
// forged keys, each with a new counter: put a rule on [IP] beside it. To keep the key out of the
// store, wrap the function in [Hash].
//
// A header with two different values is [ErrAmbiguous], not [ErrNoKey]: a client must not escape its
// limit, or its ban, by sending a second value. For a token in Authorization use [Bearer], which
// treats "Bearer" and "bearer" alike. So is a key with a byte that is not visible ASCII: programs disagree about the
// spaces that they remove, so that a client could spell one key in many ways. Blanks and tabs around it do not matter. In
// Authorization, a blank may stand after the scheme.
//
// APIKey panics if header is not the name of a header.
func APIKey(header string) Func {
	return must(newAPIKey(header))
}

// Header is the value of a header: "header:X-Tenant:acme". "x-tenant" and "X-Tenant" are the same
// name.
//
// It is safe if the value was checked, or if a proxy sets the header and drops what clients send. A
// client can leave a header out, and can make a proxy drop it ("Connection: X-Tenant"). Such a request
// has no key, so name another one, as in First(Header(...), IP()). A header with two different values, or with a byte
// that is not ASCII or a control character, is [ErrAmbiguous], as with [APIKey]. Several blanks and tabs are one blank.
//
// Do not use it for addresses: Header("X-Real-IP") believes every client, and counts each spelling of
// an address apart. Use [TrustHeader].
//
// Header panics if name is not the name of a header.
func Header(name string) Func {
	return must(newHeader(name))
}

func newAPIKey(header string) (Func, error) {
	return headerFunc("APIKey", header, func(name string) (string, bool) { return apiKeyTag, name == "Authorization" })
}

func newHeader(name string) (Func, error) {
	return headerFunc("Header", name, func(name string) (string, bool) { return headerTag + name + ":", true })
}

// Bearer is the token of an Authorization header with the Bearer scheme (RFC 6750):
// "bearer:mF_9.B5f-4.1JqM". The scheme's case does not matter. With another scheme, or none, there is
// no key.
//
// Use it only behind a handler that has checked the token; see [APIKey]. If a user can have several
// tokens, count the user ([User]): each new token would have a new limit. Two different Authorization
// headers, or a token with a space or any other byte in it that is not visible ASCII, are [ErrAmbiguous]. A JWT may
// have several spellings of its last character, which count as several tokens.
func Bearer(r *http.Request) (string, error) {
	value, err := only(r.Header["Authorization"], errTwoCredentials)
	if err != nil {
		return "", err
	}
	if hasInvisible(value) && strings.Contains(strings.ToLower(value), "bearer") {
		return "", errTokenByte
	}
	scheme, token := value, ""
	if i := strings.IndexAny(value, ows); i >= 0 {
		scheme, token = value[:i], strings.Trim(value[i:], ows)
	}
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", ErrNoKey
	}
	// A reader that tolerates more would take the first word, and the rest could be anything.
	if strings.ContainsAny(token, ows) {
		return "", errTokenSpace
	}
	return bearerTag + token, nil
}

var (
	errTwoCredentials error = ambiguous("two different Authorization headers")
	errTokenSpace     error = ambiguous("a bearer token with a space in it")
	errTokenByte      error = ambiguous("a bearer token with a byte that is not visible ASCII")
)

// ambiguous is an ErrAmbiguous that names what a request has twice, without the values.
type ambiguous string

func (has ambiguous) Error() string { return "keyfunc: the request has " + string(has) }

func (has ambiguous) Is(target error) bool { return target == ErrAmbiguous }

// ows is the optional whitespace around header values; HTTP/2 does not trim it.
const ows = " \t"

// hasInvisible reports whether text has a byte that is neither visible ASCII nor a blank or tab.
func hasInvisible(text string) bool {
	return strings.ContainsFunc(text, func(c rune) bool { return isInvisible(c) && c != ' ' && c != '\t' })
}

func isInvisible(c rune) bool { return c <= ' ' || c > '~' }

// headerFunc returns the key function of a header. Kind returns what its keys begin with, and whether blanks may be in
// a value.
func headerFunc(caller, header string, kind func(name string) (tag string, blanks bool)) (Func, error) {
	name, err := canonicalHeader(header)
	if err != nil {
		return nil, fmt.Errorf("keyfunc: %s(%q): %w", caller, header, err)
	}
	prefix, blanks := kind(name)
	var errTwo error = ambiguous("two different " + name + " headers")
	var errUnclear error = ambiguous("a byte in " + name + " that programs read differently")
	return func(r *http.Request) (string, error) {
		value, err := only(r.Header[name], errTwo)
		if err != nil {
			return "", err
		}
		if strings.ContainsFunc(value, isInvisible) {
			if hasInvisible(value) || !blanks {
				return "", errUnclear
			}
			value = strings.Join(strings.Fields(value), " ")
		}
		return prefix + value, nil
	}, nil
}

// only returns the one value that all of values are, or errTwo if they differ.
func only(values []string, errTwo error) (string, error) {
	if len(values) == 0 {
		return "", ErrNoKey
	}
	value := strings.Trim(values[0], ows)
	for _, other := range values[1:] {
		if strings.Trim(other, ows) != value {
			return "", errTwo
		}
	}
	if value == "" {
		return "", ErrNoKey
	}
	return value, nil
}

// canonicalHeader returns name as [http.Header] has it.
func canonicalHeader(name string) (string, error) {
	if !isToken(name) {
		return "", errors.New("it is not the name of a header")
	}
	canonical := http.CanonicalHeaderKey(name)
	switch canonical {
	case "Host":
		return "", errors.New("net/http takes it out of the headers; use Host")
	case "Transfer-Encoding", "Trailer":
		return "", errors.New("net/http takes it out of the headers")
	}
	return canonical, nil
}

// isToken reports whether s is a token of RFC 9110 §5.6.2: the name of a header, a
// cookie or a parameter.
func isToken(s string) bool {
	for i := range len(s) {
		if !isTokenChar(s[i]) {
			return false
		}
	}
	return s != ""
}

func isTokenChar(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' ||
		strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
