package keyfunc_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
)

func TestMain(m *testing.M) {
	// Most tests send forwarding headers to somebody who trusts nobody.
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// table is the rows of a file in testdata: words, and texts in quotes as in Go, up to a # at the
// begin of a word.
func table(t *testing.T, name string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var row []string
		for rest := strings.TrimSpace(line); rest != "" && rest[0] != '#'; rest = strings.TrimSpace(rest) {
			cell, err := strconv.QuotedPrefix(rest)
			if err != nil {
				cell, _, _ = strings.Cut(rest, " ")
				row = append(row, cell)
			} else {
				text, _ := strconv.Unquote(cell)
				row = append(row, text)
			}
			rest = rest[len(cell):]
		}
		if row != nil {
			rows = append(rows, row)
		}
	}
	require.Greater(t, len(rows), 30)
	return rows
}

// from is a request of peer, with headers given as name, value, name, value.
func from(peer string, headers ...string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = peer
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// lines are the lines of one header, for from.
func lines(name string, values []string) []string {
	var headers []string
	for _, value := range values {
		headers = append(headers, name, value)
	}
	return headers
}

// keyOf is what r is counted under by f, which must have a key for it.
func keyOf(t testing.TB, f keyfunc.Func, r *http.Request) string {
	t.Helper()
	text, _ := classified(t, f, r)
	return text
}

// classOf is the class of r's key under f.
func classOf(t testing.TB, f keyfunc.Func, r *http.Request) keyfunc.Class {
	t.Helper()
	_, class := classified(t, f, r)
	return class
}

func classified(t testing.TB, f keyfunc.Func, r *http.Request) (string, keyfunc.Class) {
	t.Helper()
	key, err := f(r)
	require.NoError(t, err)
	text, class := keyfunc.Classify(key)
	require.NotEmpty(t, text, "a Func never returns an empty key without an error")
	return text, class
}

// assertNoKey asserts that r has no key under f.
func assertNoKey(t *testing.T, f keyfunc.Func, r *http.Request) {
	t.Helper()
	key, err := f(r)
	assert.ErrorIs(t, err, keyfunc.ErrNoKey)
	assert.Empty(t, key)
}

// assertAmbiguous asserts that r has several keys under f, where one is meant.
func assertAmbiguous(t *testing.T, f keyfunc.Func, r *http.Request) {
	t.Helper()
	assertFails(t, f, r)
	_, err := f(r)
	assert.ErrorIs(t, err, keyfunc.ErrAmbiguous)
}

// assertFails asserts that the key of r can't be read, which is not the same as having none.
func assertFails(t *testing.T, f keyfunc.Func, r *http.Request) {
	t.Helper()
	key, err := f(r)
	require.Error(t, err)
	assert.NotErrorIs(t, err, keyfunc.ErrNoKey)
	assert.Empty(t, key)
}

// isAddressKey reports whether key is what IP may say: the one spelling of an IPv4
// address, or of an IPv6 prefix of bits bits.
func isAddressKey(key string, bits int) bool {
	if key == "no-ip" {
		return true
	}
	if ip, err := netip.ParseAddr(key); err == nil {
		return ip.Is4() && ip.String() == key
	}
	prefix, err := netip.ParsePrefix(key)
	return err == nil && prefix.Addr().Is6() && !prefix.Addr().Is4In6() &&
		prefix.Bits() == bits && prefix.Masked().String() == key
}
