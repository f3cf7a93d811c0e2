package keyfunc_test

import (
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
)

func TestAQueryParameterIsTheOneThatHandlersSee(t *testing.T) {
	key := keyfunc.Query("tenant")
	for query, want := range map[string]string{
		"tenant=acme": "query:tenant:acme", "a=b&tenant=ac%6De&c": "query:tenant:acme", "t%65nant=a+b": "query:tenant:a b",
		"tenant=acme&tenant=acme": "query:tenant:acme", "tenant=%zz&tenant=b": "query:tenant:b", "tenant=a;b&tenant=c": "query:tenant:c",
		"tenant=a=b": "query:tenant:a=b", "": "", "tenant": "", "tenant=": "", "Tenant=a": "", "tenants=a": "",
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
	for _, query := range []string{"tenant=a&tenant=b", "tenant=a&tenant="} {
		_, err := key(httptest.NewRequest("GET", "/?"+query, nil))
		assert.ErrorIs(t, err, keyfunc.ErrAmbiguous, query)
	}
	for _, name := range []string{"", "a b", "a:b", "a=b", "a&b", "a%b", "a\n"} {
		assert.Panics(t, func() { keyfunc.Query(name) }, name)
	}
	kind, source, value := keyfunc.KindOf("query:tenant:acme:7")
	assert.Equal(t, []string{"query", "query:tenant", "acme:7"}, []string{kind, source, value})
}

// Whatever is in a query, the key is of what r.URL.Query() has, or it is ambiguous.
func FuzzQuery(f *testing.F) {
	f.Add("tenant=a&tenant=b")
	f.Add("tenant=%zz;&t%65nant=c")
	key := keyfunc.Query("tenant")
	f.Fuzz(func(t *testing.T, query string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.URL = &url.URL{Path: "/", RawQuery: query}
		got, err := key(r)
		if err == nil {
			require.Equal(t, "query:tenant:"+r.URL.Query().Get("tenant"), got)
		}
	})
}
