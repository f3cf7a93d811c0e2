package keyfunc_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/keyfunc"
)

var secret = []byte("0123456789abcdef")

// is a Func that always says key.
func is(key string) keyfunc.Func {
	return func(*http.Request) (string, error) { return key, nil }
}

// fails is a Func that always says err.
func fails(err error) keyfunc.Func {
	return func(*http.Request) (string, error) { return "not to be used", err }
}

var errBroken = errors.New("broken")

func TestFirstTakesTheFirstKeyThereIs(t *testing.T) {
	none := fails(keyfunc.ErrNoKey)
	r := from("192.0.2.1:1")
	assert.Equal(t, "a", keyOf(t, keyfunc.First(is("a"), is("b")), r))
	assert.Equal(t, "b", keyOf(t, keyfunc.First(none, is("b"), fails(errBroken)), r))
	assert.Equal(t, "b", keyOf(t, keyfunc.First(fails(fmt.Errorf("no tenant: %w", keyfunc.ErrNoKey)), is("b")), r))
	assert.Equal(t, "b", keyOf(t, keyfunc.First(is(""), is("b")), r), "an empty key is none")
	assertNoKey(t, keyfunc.First(none, none), r)
	assertNoKey(t, keyfunc.First(is("")), r)

	key, err := keyfunc.First(fails(errBroken), is("b"))(r)
	assert.ErrorIs(t, err, errBroken, "a failure is not passed over")
	assert.Empty(t, key)
}

func TestJoinNeedsEveryPart(t *testing.T) {
	r := from("192.0.2.1:1")
	assert.Equal(t, "join:1:a2:bc", keyOf(t, keyfunc.Join(is("a"), is("bc")), r))
	assertNoKey(t, keyfunc.Join(is("a"), fails(keyfunc.ErrNoKey)), r)
	assertNoKey(t, keyfunc.Join(is("a"), is("")), r)

	_, err := keyfunc.Join(is("a"), fails(errBroken))(r)
	assert.ErrorIs(t, err, errBroken)
	assert.EqualError(t, err, "keyfunc: part 2 of Join: broken")
}

func TestJoinPresentLeavesMissingPartsBlank(t *testing.T) {
	r := from("192.0.2.1:1")
	none := fails(keyfunc.ErrNoKey)
	assert.Equal(t, "join:1:a2:bc", keyOf(t, keyfunc.JoinPresent(is("a"), is("bc")), r))
	assert.Equal(t, "join:0:2:bc", keyOf(t, keyfunc.JoinPresent(none, is("bc")), r))
	assert.Equal(t, "join:1:a0:", keyOf(t, keyfunc.JoinPresent(is("a"), is("")), r))
	assertNoKey(t, keyfunc.JoinPresent(none, none), r)

	_, err := keyfunc.JoinPresent(is("a"), fails(errBroken))(r)
	assert.EqualError(t, err, "keyfunc: part 2 of Join: broken", "unreadable is not missing")
}

func TestJoinOfDifferentPartsIsDifferent(t *testing.T) {
	// Digits and colons are what the lengths are made of.
	part := rapid.StringOfN(rapid.RuneFrom([]rune("0123:ab")), 1, 12, -1)
	list := rapid.SliceOfN(part, 1, 6)
	join := func(parts []string) string {
		var fs []keyfunc.Func
		for _, part := range parts {
			fs = append(fs, is(part))
		}
		key, _ := keyfunc.Join(fs...)(nil)
		return key
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := list.Draw(t, "a"), list.Draw(t, "b")
		if rapid.Bool().Draw(t, "same text") {
			// The same text cut elsewhere is where joining goes wrong.
			b = recut(t, a)
		}
		if (join(a) == join(b)) != slices.Equal(a, b) {
			t.Fatalf("%q and %q are joined to %q and %q", a, b, join(a), join(b))
		}
	})
}

// recut is the text of parts cut into parts elsewhere.
func recut(t *rapid.T, parts []string) []string {
	var text string
	for _, part := range parts {
		text += part
	}
	var cut []string
	for text != "" {
		n := rapid.IntRange(1, len(text)).Draw(t, "cut")
		cut, text = append(cut, text[:n]), text[n:]
	}
	return cut
}

func TestHashHidesTheKey(t *testing.T) {
	r := from("192.0.2.1:1", "X-Key", "s3cret")
	key := keyOf(t, keyfunc.Hash(secret, keyfunc.APIKey("X-Key")), r)
	// printf 'apikey:s3cret' | openssl dgst -sha256 -hmac 0123456789abcdef -binary | basenc --base64url
	assert.Equal(t, "hash:hzR_271uLI3YHJ72L2Y3c4d-m1PJNRprU1KJSoEj6W4", key)
	assert.Len(t, key, 48)

	assert.Equal(t, key, keyOf(t, keyfunc.Hash(secret, keyfunc.APIKey("X-Key")), r), "replicas agree")
	assert.NotEqual(t, key, keyOf(t, keyfunc.Hash(secret, keyfunc.Header("X-Key")), r))
	assert.NotEqual(t, key, keyOf(t, keyfunc.Hash([]byte("fedcba9876543210"), keyfunc.APIKey("X-Key")), r))
}

func TestHashKeepsItsOwnSecret(t *testing.T) {
	mine := slices.Clone(secret)
	f := keyfunc.Hash(mine, keyfunc.IP())
	clear(mine)
	r := from("192.0.2.1:1")
	assert.Equal(t, keyOf(t, keyfunc.Hash(secret, keyfunc.IP()), r), keyOf(t, f, r))
}

func TestHashPassesErrorsOn(t *testing.T) {
	assertNoKey(t, keyfunc.Hash(secret, keyfunc.User), from("192.0.2.1:1"))
	assertNoKey(t, keyfunc.Hash(secret, is("")), from("192.0.2.1:1"))
	_, err := keyfunc.Hash(secret, fails(errBroken))(from("192.0.2.1:1"))
	assert.ErrorIs(t, err, errBroken)
}

func TestCompositionsOfNothingPanic(t *testing.T) {
	for want, compose := range map[string]func(){
		"keyfunc: First needs at least one function":                                  func() { keyfunc.First() },
		"keyfunc: First: function 2 is nil":                                           func() { keyfunc.First(is("a"), nil) },
		"keyfunc: Join needs at least one function":                                   func() { keyfunc.Join() },
		"keyfunc: Join: function 1 is nil":                                            func() { keyfunc.Join(nil) },
		"keyfunc: Hash: function 1 is nil":                                            func() { keyfunc.Hash(secret, nil) },
		"keyfunc: Hash: the secret has 15 bytes; it needs at least 16 of random data": func() { keyfunc.Hash(secret[1:], is("a")) },
		"keyfunc: Hash: the secret has 0 bytes; it needs at least 16 of random data":  func() { keyfunc.Hash(nil, is("a")) },
	} {
		assert.PanicsWithValue(t, want, compose)
	}
}

func TestCompositionsKeepTheirOwnFunctions(t *testing.T) {
	fs := []keyfunc.Func{is("a")}
	first, join := keyfunc.First(fs...), keyfunc.Join(fs...)
	fs[0] = nil
	assert.Equal(t, "a", keyOf(t, first, from("192.0.2.1:1")))
	assert.Equal(t, "join:1:a", keyOf(t, join, from("192.0.2.1:1")))
}

// What one function reads must never be the key of another, whatever a client sends.
func TestKeysOfDifferentFunctionsDiffer(t *testing.T) {
	r := from("192.0.2.1:1", "X-Key", "user:42", "Authorization", "Bearer user:42", "Cookie", "session=user:42")
	r.Host, r.Pattern = "user:42.", "user:42"
	r = r.WithContext(keyfunc.WithUser(r.Context(), "42"))
	seen := map[string]string{}
	for name, f := range map[string]keyfunc.Func{
		"IP":          keyfunc.IP(),
		"APIKey":      keyfunc.APIKey("X-Key"),
		"Bearer":      keyfunc.Bearer,
		"Header":      keyfunc.Header("X-Key"),
		"Cookie":      keyfunc.Cookie("session"),
		"User":        keyfunc.User,
		"Route":       keyfunc.Route,
		"Method":      keyfunc.Method,
		"Host":        keyfunc.Host,
		"Global":      keyfunc.Global,
		"Join":        keyfunc.Join(keyfunc.User),
		"Hash":        keyfunc.Hash(secret, keyfunc.User),
		"Fingerprint": keyfunc.Fingerprint(),
	} {
		key := keyOf(t, f, r)
		assert.Empty(t, seen[key], "%s and %s are both %q", name, seen[key], key)
		assert.Equal(t, name == "IP", isAddressKey(key, 64), "%s says %q", name, key)
		seen[key] = name
	}
}
