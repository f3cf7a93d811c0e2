package middleware_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware"
)

func TestRoute(t *testing.T) {
	tests := []struct {
		route   string
		method  string
		pattern string // as a router sets it
		want    bool
	}{
		{"GET /search", "GET", "GET /search", true},
		{"GET /search", "GET", "/search", true},
		{"GET /search", "HEAD", "/search", true},
		{"HEAD /search", "GET", "/search", false},
		{"GET /search", "POST", "/search", false},
		{"GET /search", "get", "/search", true},
		{"/search", "POST", "/search", true},
		{"/search", "POST", "POST /search", true},
		{"/search", "GET", "/search/", false},
		{"/search", "GET", "/search2", false},
		{"/search", "GET", "/", false},
		{"/", "GET", "/", true},
		{"/", "GET", "/x", false},
		{"GET  /search", "GET", "/search", true},
		{"/users/{id}", "GET", "/users/:id", true},
		{"/users/:id", "GET", "GET /users/{user}", true},
		{"/users/{id}", "GET", "/users/{id:[0-9]+}", true},
		{"/users/{id}", "GET", "/users/me", false},
		{"/users/me", "GET", "/users/{id}", false},
		{"/users/{id}/posts", "GET", "/users/:id/posts", true},
		{"/users/{id}", "GET", "/users/:id/posts", false},
		{"/files/{path...}", "GET", "/files/*", true},
		{"/files/{path...}", "GET", "/files/*filepath", true},
		{"/files/{path...}", "GET", "/files/{one}", false},
		{"/beta/*", "GET", "/beta/x", true},
		{"/beta/*", "GET", "/beta/x/{y}", true},
		{"/beta/*", "GET", "/beta/*", true},
		{"/beta/*", "GET", "/beta/", true},
		{"/beta/*", "GET", "/beta", true},
		{"/beta/*", "GET", "/", false},
		{"/beta/*", "GET", "/alpha/beta", false},
		{"/v1/{x}/*", "GET", "/v1/:y/z", true},
		{"/v1/{x}/*", "GET", "/v1", false},
		{"/beta/*", "GET", "/betatest", false},
		{"/*", "GET", "/anything/at/all", true},
		{"POST /*", "GET", "/anything", false},
		{"example.com/a", "GET", "example.com/a", true}, // the request's host
		{"example.com/a", "GET", "/a", true},
		{"EXAMPLE.com./a", "GET", "/a", true},
		{"example.org/a", "GET", "/a", false},
		{"*.com/a", "GET", "/a", true},
		{"*.example.com/a", "GET", "/a", false},
		{"/a", "GET", "example.com/a", true},
		{"GET example.com/a/{$}", "GET", "GET example.com/a/{$}", true},
		{"/a/{$}", "GET", "/a/{id}", false},
		{"/a", "GET", "", false},
		{"/a/*", "GET", "", false},
		{"/*", "GET", "", true},
		{"POST /*", "GET", "", false},
	}
	for _, test := range tests {
		r := request()
		r.Method, r.Pattern = test.method, test.pattern
		assert.Equal(t, test.want, middleware.Route(test.route).Matches(r), "Route(%q) on %s with pattern %q", test.route, test.method, test.pattern)
	}
}

func TestRouteTakesSeveralPatterns(t *testing.T) {
	match := middleware.Route("POST /login", "POST /signup")
	r := request()
	r.Method, r.Pattern = "POST", "/signup"
	require.True(t, match.Matches(r))
	r.Pattern = "/logout"
	require.False(t, match.Matches(r))
}

func TestARouteThatCannotMatchPanicsWhereNewDidNotSeeIt(t *testing.T) {
	match := middleware.Route("POST login") // in a MatchFunc of the application's
	assert.PanicsWithValue(t, `middleware: Route: pattern "POST login" has no path: want something like /search, or example.com/*`, func() { match.Matches(request()) })
}

func TestRouteDoesNotAllocate(t *testing.T) {
	match := middleware.Route("GET /users/{id}", "/assets/*")
	r := request()
	r.Pattern = "GET /users/:user"
	assert.Zero(t, testing.AllocsPerRun(100, func() { match.Matches(r) }))
	match = middleware.Route("GET a.example/users/{id}", "*.example.com/assets/*")
	r.Host = "b.example.com:8080"
	assert.Zero(t, testing.AllocsPerRun(100, func() { match.Matches(r) }))
}
