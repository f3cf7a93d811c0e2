package keyfunc_test

import (
	"errors"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
)

func TestAQueryParameterIsTheOneThatHandlersSee(t *testing.T) {
	key := keyfunc.Query("tenant")
	for query, want := range map[string]string{
		"tenant=acme": "query:tenant:acme", "a=b&tenant=ac%6De&c": "query:tenant:acme", "t%65nant=a+b": "query:tenant:a b",
		"tenant=acme&tenant=acme": "query:tenant:acme", "x=%zz&tenant=b&y=c;d": "query:tenant:b", "tenant=a%23": "query:tenant:a#", "tenant=a%3Bb": "query:tenant:a;b",
		"tenant=a=b": "query:tenant:a=b", "": "", "tenant": "", "tenant=": "", "Tenant=a": "", "tenants=a": "", "ten%61nts=%zz": "", "x[tenant]=a": "",
	} {
		r := httptest.NewRequest("GET", "/?"+query, nil)
		got, err := key(r)
		if want == "" {
			assert.ErrorIs(t, err, keyfunc.ErrNoKey, query)
			continue
		}
		require.NoError(t, err, query)
		assert.Equal(t, want, got, query)
		assert.Equal(t, "query:tenant:"+r.URL.Query().Get("tenant"), got)
	}
	for _, query := range []string{
		"tenant=a&tenant=b", "tenant=a&tenant=", "tenant=a#1", "tenant=a&x#", "#tenant=a", "tenant=a;", "tenant=a;b&tenant=c", "x;tenant=a", "tenant=%zz", "tenant=%zz&tenant=b", "tenant=a%00b",
		"tenant[]=a", "tenant[0]=a", "tenant%5B%5D=a", "tenant%00x=a", "+tenant=a", "%20tenant=a", "tenant%00%zz=a", "x=1;tenant[]=a",
	} {
		_, err := key(httptest.NewRequest("GET", "/?"+query, nil))
		assert.ErrorIs(t, err, keyfunc.ErrAmbiguous, query)
	}
	for _, name := range []string{"", "a b", "a:b", "a=b", "a&b", "a%b", "a\n"} {
		assert.Panics(t, func() { keyfunc.Query(name) }, name)
	}
	kind, source, value := keyfunc.KindOf("query:tenant:acme:7")
	assert.Equal(t, []string{"query", "query:tenant", "acme:7"}, []string{kind, source, value})
}

// parsers find a parameter in a query as programs in other languages do.
var parsers = map[string]func(query string) string{
	"Go": func(query string) string {
		values, _ := url.ParseQuery(query)
		return values.Get("tenant")
	},
	"Python until 3.9, Rack until 2": func(query string) string { return first(strings.ReplaceAll(query, ";", "&")) },
	"a proxy that cuts a fragment":   func(query string) string { before, _, _ := strings.Cut(query, "#"); return first(before) },
	"PHP": func(query string) string {
		query = regexp.MustCompile(`(^|&)(\+|%20)*tenant(\[[^=&]*|%00[^=&]*)`).ReplaceAllString(query, "${1}tenant")
		return first(query)
	},
	"C": func(query string) string { value, _, _ := strings.Cut(first(query), "\x00"); return value },
}

// first returns the value of the first tenant in a query, with wrong escapes as they are.
func first(query string) string {
	for pair := range strings.SplitSeq(query, "&") {
		if left, right, _ := strings.Cut(pair, "="); left == "tenant" {
			if value, err := url.QueryUnescape(right); err == nil {
				return value
			}
			return right
		}
	}
	return ""
}

// Whatever program finds a value in a query, it is the key, or the query is ambiguous.
func FuzzQuery(f *testing.F) {
	for _, query := range []string{
		"tenant=a&tenant=b", "tenant=%zz;&t%65nant=c", "tenant=a#1", "x;tenant=a", "Tenant=a", "tenant[]=a", "tenant%00x=a", "tenant=a%00", "+tenant=a", "tenant=A", "a#&tenant=b", "tenant=%e2%84%aa",
	} {
		f.Add(query)
	}
	key := keyfunc.Query("tenant")
	f.Fuzz(func(t *testing.T, query string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.URL = &url.URL{Path: "/", RawQuery: query}
		got, err := key(r)
		if errors.Is(err, keyfunc.ErrAmbiguous) {
			return
		}
		for name, find := range parsers {
			if value := find(query); value != "" {
				require.NoError(t, err, "%s: %q", name, query)
				require.Equal(t, "query:tenant:"+value, got, "%s: %q", name, query)
			}
		}
	})
}

func BenchmarkQuery(b *testing.B) {
	key, r := keyfunc.Query("tenant"), httptest.NewRequest("GET", "/?page=2&sort=-name&tenant=acme&q=a+b", nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := key(r); err != nil {
			b.Fatal(err)
		}
	}
}
