package keyfunc_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/keyfunc"
)

func TestHeadersAreKeys(t *testing.T) {
	for _, tt := range []struct {
		name  string
		f     keyfunc.Func
		lines []string // of X-Key
		want  string   // "" for no key
	}{
		{"APIKey", keyfunc.APIKey("X-Key"), []string{"s3cret"}, "apikey:s3cret"},
		{"APIKey, spelled otherwise", keyfunc.APIKey("x-kEY"), []string{"s3cret"}, "apikey:s3cret"},
		{"Header", keyfunc.Header("X-Key"), []string{"acme"}, "header:X-Key:acme"},
		{"Header, spelled otherwise", keyfunc.Header("x-kEY"), []string{"acme"}, "header:X-Key:acme"},
		{"case of the value counts", keyfunc.Header("X-Key"), []string{"ACME"}, "header:X-Key:ACME"},
		{"whitespace around it does not", keyfunc.Header("X-Key"), []string{"\t acme "}, "header:X-Key:acme"},
		{"colons", keyfunc.Header("X-Key"), []string{"a:b"}, "header:X-Key:a:b"},
		{"one value twice", keyfunc.Header("X-Key"), []string{"acme", "acme "}, "header:X-Key:acme"},
		{"no header", keyfunc.Header("X-Key"), nil, ""},
		{"empty", keyfunc.Header("X-Key"), []string{""}, ""},
		{"blank", keyfunc.APIKey("X-Key"), []string{" \t"}, ""},
		{"empty twice", keyfunc.APIKey("X-Key"), []string{"", ""}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := from("192.0.2.1:1", lines("X-Key", tt.lines)...)
			if tt.want == "" {
				assertNoKey(t, tt.f, r)
				return
			}
			assert.Equal(t, tt.want, keyOf(t, tt.f, r))
		})
	}
}

func TestBearerIsTheToken(t *testing.T) {
	for _, tt := range []struct {
		lines []string
		want  string // "" for no key
	}{
		{[]string{"Bearer mF_9.B5f-4.1JqM"}, "bearer:mF_9.B5f-4.1JqM"},
		{[]string{"bearer mF_9.B5f-4.1JqM"}, "bearer:mF_9.B5f-4.1JqM"},
		{[]string{"BEARER mF_9.B5f-4.1JqM"}, "bearer:mF_9.B5f-4.1JqM"},
		{[]string{" Bearer \t mF_9.B5f-4.1JqM "}, "bearer:mF_9.B5f-4.1JqM"},
		{[]string{"Bearer 1|laravel"}, "bearer:1|laravel"},
		{[]string{"Bearer a", "Bearer a"}, "bearer:a"},
		{nil, ""},
		{[]string{""}, ""},
		{[]string{"Bearer"}, ""},
		{[]string{"Bearer "}, ""},
		{[]string{"BearermF_9"}, ""},
		{[]string{"Basic dXNlcjpwYXNz"}, ""},
		{[]string{"mF_9.B5f-4.1JqM"}, ""},
	} {
		r := from("192.0.2.1:1", lines("Authorization", tt.lines)...)
		if tt.want == "" {
			assertNoKey(t, keyfunc.Bearer, r)
			continue
		}
		assert.Equal(t, tt.want, keyOf(t, keyfunc.Bearer, r))
	}
}

// A second value must neither be a new key nor, by way of ErrNoKey, no limit at all.
func TestTwoDifferentValuesCannotBeRead(t *testing.T) {
	r := from("192.0.2.1:1", "X-Key", "mine", "X-Key", "made up",
		"Authorization", "Bearer mine", "Authorization", "Bearer made-up",
		"Cookie", "session=mine; session=made-up")
	for name, f := range map[string]keyfunc.Func{
		"APIKey": keyfunc.APIKey("X-Key"),
		"Header": keyfunc.Header("X-Key"),
		"Bearer": keyfunc.Bearer,
		"Cookie": keyfunc.Cookie("session"),
	} {
		t.Run(name, func(t *testing.T) {
			assertAmbiguous(t, f, r)
			assertAmbiguous(t, keyfunc.First(f, keyfunc.IP()), r)
		})
	}

	assertAmbiguous(t, keyfunc.Header("X-Key"), from("192.0.2.1:1", "X-Key", "", "X-Key", "mine"))
	assertAmbiguous(t, keyfunc.Bearer, from("192.0.2.1:1", "Authorization", "Bearer mine made-up"))
	assertAmbiguous(t, keyfunc.Bearer, from("192.0.2.1:1", "Authorization", "Bearer mine, Bearer made-up"))
}

func TestErrorsDoNotRepeatWhatTheClientSent(t *testing.T) {
	r := from("192.0.2.1:1", "X-Key", "s3cret", "X-Key", "s3cret2", "Authorization", "Bearer s3cret s3cret2")
	for _, f := range []keyfunc.Func{keyfunc.APIKey("X-Key"), keyfunc.Bearer} {
		_, err := f(r)
		assert.ErrorContains(t, err, "keyfunc: the request has ")
		assert.NotContains(t, err.Error(), "s3cret")
	}
}

func TestCookieIsItsValue(t *testing.T) {
	for _, tt := range []struct {
		lines []string
		want  string // "" for no key
	}{
		{[]string{"session=8f3a"}, "cookie:session:8f3a"},
		{[]string{"a=b; session=8f3a; c=d"}, "cookie:session:8f3a"},
		{[]string{"a=b", "session=8f3a"}, "cookie:session:8f3a"},
		{[]string{`session="8f3a"`}, "cookie:session:8f3a"},
		{[]string{"session=8f3a; session=8f3a"}, "cookie:session:8f3a"},
		{nil, ""},
		{[]string{"Session=8f3a"}, ""}, // cookies are case-sensitive
		{[]string{"session="}, ""},
		{[]string{"session"}, ""},
	} {
		r := from("192.0.2.1:1", lines("Cookie", tt.lines)...)
		if tt.want == "" {
			assertNoKey(t, keyfunc.Cookie("session"), r)
			continue
		}
		assert.Equal(t, tt.want, keyOf(t, keyfunc.Cookie("session"), r))
	}
}

func TestNamesThatCannotBeMeantPanic(t *testing.T) {
	for _, name := range []string{"", "X Key", "X-Key:", "X-Key\n", "X-Schlüssel", `"X"`} {
		assert.Panics(t, func() { keyfunc.APIKey(name) }, name)
		assert.Panics(t, func() { keyfunc.Header(name) }, name)
		assert.Panics(t, func() { keyfunc.Cookie(name) }, name)
	}
	assert.PanicsWithValue(t, `keyfunc: APIKey("X Key"): it is not the name of a header`,
		func() { keyfunc.APIKey("X Key") })
	assert.PanicsWithValue(t, `keyfunc: Header("host"): net/http takes it out of the headers; use Host`,
		func() { keyfunc.Header("host") })
	assert.PanicsWithValue(t, `keyfunc: Cookie("a;b"): it is not the name of a cookie`,
		func() { keyfunc.Cookie("a;b") })
}

func TestALongValueIsAKey(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	r := from("192.0.2.1:1", "X-Key", long, "Authorization", "Bearer "+long, "Cookie", "session="+long,
		"User-Agent", long)
	for name, f := range map[string]keyfunc.Func{
		"APIKey": keyfunc.APIKey("X-Key"),
		"Header": keyfunc.Header("X-Key"),
		"Bearer": keyfunc.Bearer,
		"Cookie": keyfunc.Cookie("session"),
		"Join":   keyfunc.Join(keyfunc.Bearer, keyfunc.APIKey("X-Key")),
	} {
		assert.Contains(t, keyOf(t, f, r), long, "%s: a long key is not cut", name)
	}
	assert.Len(t, keyOf(t, keyfunc.Hash(secret, keyfunc.APIKey("X-Key")), r), 48)
	assert.Len(t, keyOf(t, keyfunc.Fingerprint(), r), 46)
}

// Handlers are called with requests that no server made.
func TestAnEmptyRequestIsNoPanic(t *testing.T) {
	for name, f := range map[string]keyfunc.Func{
		"IP":             keyfunc.IP(),
		"TrustProxies":   keyfunc.IP(keyfunc.TrustProxies("10.0.0.0/8"), keyfunc.TrustUnixSocket()),
		"TrustForwarded": keyfunc.IP(keyfunc.TrustForwarded("10.0.0.0/8"), keyfunc.TrustUnixSocket()),
		"TrustHops":      keyfunc.IP(keyfunc.TrustHops(1), keyfunc.TrustUnixSocket()),
		"TrustHeader":    keyfunc.IP(keyfunc.TrustHeader("X-Real-IP"), keyfunc.TrustUnixSocket()),
		"Fingerprint":    keyfunc.Fingerprint(),
		"Method":         keyfunc.Method,
		"Global":         keyfunc.Global,
	} {
		t.Run(name, func(t *testing.T) { keyOf(t, f, new(http.Request)) })
	}
	for name, f := range map[string]keyfunc.Func{
		"APIKey": keyfunc.APIKey("X-Key"),
		"Header": keyfunc.Header("X-Key"),
		"Bearer": keyfunc.Bearer,
		"Cookie": keyfunc.Cookie("session"),
		"User":   keyfunc.User,
		"Route":  keyfunc.Route,
		"Host":   keyfunc.Host,
		"First":  keyfunc.First(keyfunc.User, keyfunc.Route),
		"Join":   keyfunc.Join(keyfunc.IP(), keyfunc.User),
		"Hash":   keyfunc.Hash(secret, keyfunc.User),
	} {
		t.Run(name, func(t *testing.T) { assertNoKey(t, f, new(http.Request)) })
	}
}
