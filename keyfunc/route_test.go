package keyfunc_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/keyfunc"
)

func TestRouteIsThePatternAndNotThePath(t *testing.T) {
	var keys []string
	mux := http.NewServeMux()
	handle := func(_ http.ResponseWriter, r *http.Request) { keys = append(keys, keyOf(t, keyfunc.Route, r)) }
	mux.HandleFunc("GET /users/{id}", handle)
	mux.HandleFunc("/static/", handle)
	for _, path := range []string{"/users/1", "/users/2?x=y", "/users/%33", "/static/a", "/static/b"} {
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
	}
	assert.Equal(t, []string{
		"route:GET /users/{id}", "route:GET /users/{id}", "route:GET /users/{id}",
		"route:/static/", "route:/static/",
	}, keys)

	assertNoKey(t, keyfunc.Route, httptest.NewRequest("GET", "/users/1", nil))
}

func TestMethodsThatAClientInventsShareAKey(t *testing.T) {
	for _, method := range []string{
		"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE",
	} {
		assert.Equal(t, "method:"+method, keyOf(t, keyfunc.Method, &http.Request{Method: method}))
	}
	for _, method := range []string{"", "get", "Get", "PROPFIND", "X1", "X2"} {
		assert.Equal(t, "method:other", keyOf(t, keyfunc.Method, &http.Request{Method: method}))
	}
}

// Package route has the spellings.
func TestHostHasOneSpelling(t *testing.T) {
	for _, tt := range []struct{ host, want string }{
		{"example.com", "host:example.com"},
		{"Example.com.:8080", "host:example.com"},
		{"[2001:DB8::1]:8080", "host:2001:db8::1"},
		{"münchen.example", "host:other"},
		{"[2001:db8::1", "host:other"},
		{strings.Repeat("a", 254), "host:other"},
	} {
		assert.Equal(t, tt.want, keyOf(t, keyfunc.Host, &http.Request{Host: tt.host}), tt.host)
		assert.Equal(t, tt.want, keyOf(t, keyfunc.Host, &http.Request{URL: &url.URL{Host: tt.host}}), "after a redirect: %s", tt.host)
	}
	for _, host := range []string{"", ".", ":8080", "[]:8080"} {
		assertNoKey(t, keyfunc.Host, &http.Request{Host: host})
		assertNoKey(t, keyfunc.Host, &http.Request{URL: &url.URL{Host: host}})
	}
}
