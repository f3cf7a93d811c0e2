package keyfunc_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/keyfunc"
)

func TestHeadersAreKeys(t *testing.T) {
	key, tenant, session := keyfunc.APIKey("x-kEY"), keyfunc.Header("x-kEY"), keyfunc.Cookie("session")
	for _, tt := range []struct {
		f      keyfunc.Func
		header string
		lines  []string
		want   string // "" for no key
	}{
		{keyfunc.APIKey("X-Key"), "X-Key", []string{"s3cret"}, "apikey:s3cret"},
		{key, "X-Key", []string{"s3cret"}, "apikey:s3cret"},
		{keyfunc.Header("X-Key"), "X-Key", []string{"acme"}, "header:X-Key:acme"},
		{tenant, "X-Key", []string{"acme"}, "header:X-Key:acme"},
		{tenant, "X-Key", []string{"ACME"}, "header:X-Key:ACME"}, // the case of the value counts
		{tenant, "X-Key", []string{"\t acme "}, "header:X-Key:acme"},
		{tenant, "X-Key", []string{"a:b"}, "header:X-Key:a:b"},
		{tenant, "X-Key", []string{"acme", "acme "}, "header:X-Key:acme"},
		{tenant, "X-Key", []string{"Acme \t Corp"}, "header:X-Key:Acme Corp"},
		{keyfunc.APIKey("authorization"), "Authorization", []string{"Key  s3cret"}, "apikey:Key s3cret"},
		{tenant, "X-Key", nil, ""},
		{tenant, "X-Key", []string{""}, ""},
		{key, "X-Key", []string{" \t"}, ""},
		{key, "X-Key", []string{"", ""}, ""},

		{keyfunc.Bearer, "Authorization", []string{"Bearer mF_9.B5f-4.1JqM"}, "bearer:mF_9.B5f-4.1JqM"},
		{keyfunc.Bearer, "Authorization", []string{"bearer mF_9.B5f-4.1JqM"}, "bearer:mF_9.B5f-4.1JqM"},
		{keyfunc.Bearer, "Authorization", []string{" BEARER \t mF_9.B5f-4.1JqM "}, "bearer:mF_9.B5f-4.1JqM"},
		{keyfunc.Bearer, "Authorization", []string{"Bearer 1|laravel"}, "bearer:1|laravel"},
		{keyfunc.Bearer, "Authorization", []string{"Bearer a", "Bearer a"}, "bearer:a"},
		{keyfunc.Bearer, "Authorization", nil, ""},
		{keyfunc.Bearer, "Authorization", []string{""}, ""},
		{keyfunc.Bearer, "Authorization", []string{"Bearer"}, ""},
		{keyfunc.Bearer, "Authorization", []string{"Bearer "}, ""},
		{keyfunc.Bearer, "Authorization", []string{"BearermF_9"}, ""},
		{keyfunc.Bearer, "Authorization", []string{"Basic dXNlcjpwYXNz"}, ""},
		{keyfunc.Bearer, "Authorization", []string{"mF_9.B5f-4.1JqM"}, ""},

		{session, "Cookie", []string{"session=8f3a"}, "cookie:session:8f3a"},
		{session, "Cookie", []string{"a=b; session=8f3a; c=d"}, "cookie:session:8f3a"},
		{session, "Cookie", []string{"a=b", "session=8f3a"}, "cookie:session:8f3a"},
		{session, "Cookie", []string{`session="8f3a"`}, "cookie:session:8f3a"},
		{session, "Cookie", []string{"session=8f3a; session=8f3a"}, "cookie:session:8f3a"},
		{session, "Cookie", []string{"session=%38f3a; session=8f3a"}, "cookie:session:8f3a"},
		{session, "Cookie", []string{`session="s%3A8f3a.a%2Bb+c=="`}, "cookie:session:s:8f3a.a+b+c=="},
		{session, "Cookie", []string{"sessions=a; Session=b; _session=c; session.x=d; session=8f3a"}, "cookie:session:8f3a"},
		{session, "Cookie", []string{"=session; ;a; session=8f3a;"}, "cookie:session:8f3a"},
		{session, "Cookie", []string{strings.Repeat("a=b; ", 4000) + "session=8f3a"}, "cookie:session:8f3a"},
		{session, "Cookie", nil, ""},
		{session, "Cookie", []string{"Session=8f3a"}, ""}, // cookies are case-sensitive
		{session, "Cookie", []string{"session="}, ""},
		{session, "Cookie", []string{"session"}, ""},
	} {
		r := from("192.0.2.1:1", lines(tt.header, tt.lines)...)
		if tt.want == "" {
			assertNoKey(t, tt.f, r)
			continue
		}
		assert.Equal(t, tt.want, keyOf(t, tt.f, r), tt.lines)
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

// strings.TrimSpace and its kin in other languages remove what Weir does not: one valid credential would have any number
// of counters, and a ban would meet one of them.
func TestACredentialHasOneSpelling(t *testing.T) {
	key, header, token, cookie := keyfunc.APIKey("X-Key"), keyfunc.Header("X-Key"), keyfunc.Func(keyfunc.Bearer), keyfunc.Cookie("session")
	for _, odd := range []string{"\u00a0", "\u2003", "\u0085", "\u3000", "\ufeff", "\u200b", "\xa0", "\x85", "\x00", "\v", "\f", "\r", "\x1f", "\x7f", "é"} {
		for _, spelled := range []string{odd + "k", "k" + odd, "k" + odd + "k", odd, " \t" + odd + "k ", odd + odd + "k"} {
			for _, f := range []keyfunc.Func{key, header, keyfunc.First(key, keyfunc.IP())} {
				assertAmbiguous(t, f, from("192.0.2.1:1", "X-Key", spelled))
				assertAmbiguous(t, f, from("192.0.2.1:1", "X-Key", "k", "X-Key", spelled))
			}
			assertAmbiguous(t, token, from("192.0.2.1:1", "Authorization", "Bearer "+spelled))
			assertAmbiguous(t, cookie, from("192.0.2.1:1", "Cookie", "session="+spelled))
			assertAmbiguous(t, cookie, from("192.0.2.1:1", "Cookie", "session=k; session="+spelled))
		}
		for _, spelled := range []string{"Bearer" + odd + "k", odd + "bearer k", "BEARER" + odd + " k", "Bearer " + odd} {
			assertAmbiguous(t, token, from("192.0.2.1:1", "Authorization", spelled))
		}
		assertAmbiguous(t, cookie, from("192.0.2.1:1", "Cookie", odd+"session=k"))
		assertAmbiguous(t, cookie, from("192.0.2.1:1", "Cookie", "session"+odd+"=k"))
	}
	assertAmbiguous(t, key, from("192.0.2.1:1", "X-Key", "k made-up"))
	assertAmbiguous(t, key, from("192.0.2.1:1", "X-Key", "k\tmade-up"))
	assertNoKey(t, token, from("192.0.2.1:1", "Authorization", "Digest username=\"J\xfcrgen\""))
}

// What Go's parser drops, another parser of cookies reads.
func TestACookieThatParsersReadDifferentlyIsAmbiguous(t *testing.T) {
	for _, line := range []string{
		`session=mine; session="made\up"`, `session=mine; session=made"up`, `session=mine; session="made-up`, `session=mine; session=ma de`,
		"session=mine; session=made\xffup", "session=mine; session=%6dine%", "session=mine; session", "session=; session=mine",
		`session="mi\156e"`, `session=mi\ne`, `session="`, `session=""mine""`, `session=mi"ne`,
		"session=mine%", "session=mi%ne", "session=mine%zz", "session=%256dine", "session=mine%20", "session=mine%C2%A0", "session=mine%00", "session=%0Amine",
		"session=mine; sess%69on=made-up", "session=mine; session[]=made-up", "session=mine; session[a=made-up", "session=mine; +session=made-up",
		strings.Repeat("a=b; ", 4000) + "session=mine; session=made-up",
	} {
		assertAmbiguous(t, keyfunc.Cookie("session"), from("192.0.2.1:1", "Cookie", line))
	}
	assertAmbiguous(t, keyfunc.Cookie("my_session"), from("192.0.2.1:1", "Cookie", "my_session=mine; my.session=made-up"))
	assertAmbiguous(t, keyfunc.Cookie("session"), from("192.0.2.1:1", "Cookie", "session=mine", "Cookie", `session="made\up"`))
}

func TestErrorsDoNotRepeatWhatTheClientSent(t *testing.T) {
	r := from("192.0.2.1:1", "X-Key", "s3cret", "X-Key", "s3cret2", "Authorization", "Bearer s3cret s3cret2")
	for _, f := range []keyfunc.Func{keyfunc.APIKey("X-Key"), keyfunc.Bearer} {
		_, err := f(r)
		assert.ErrorContains(t, err, "keyfunc: the request has ")
		assert.NotContains(t, err.Error(), "s3cret")
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
