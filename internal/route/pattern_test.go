package route_test

import (
	"cmp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/route"
)

func TestParseTakesARouteApart(t *testing.T) {
	for text, want := range map[string]route.Pattern{
		"":                      {},
		"/":                     {Path: "/"},
		"GET /a":                {Method: "GET", Path: "/a"},
		"GET a.example/a/{id}":  {Method: "GET", Host: "a.example", Path: "/a/{id}"},
		"a.example/":            {Host: "a.example", Path: "/"},
		"a.example":             {Host: "a.example"},
		"/a b":                  {Path: "/a b"},
		"/a/*":                  {Path: "/a/*"},
		"/files/{path...}":      {Path: "/files/{path...}"},
		"  POST   b.example/x ": {Method: "POST", Host: "b.example", Path: "/x"},
	} {
		assert.Equal(t, want, route.Parse(text), "%q", text)
	}
}

func TestParseRuleSaysWhyNothingCanMatch(t *testing.T) {
	for text, why := range map[string]string{
		"":            "has no path",
		"GET":         "has no path",
		"a.example":   "has no path",
		"/a?b=c":      "has a space, ? or # in its path",
		"/a#b":        "has a space, ? or # in its path",
		"/a b":        "has a space, ? or # in its path",
		"get /a":      "does not begin with a method in capitals",
		"GET,POST /a": "does not begin with a method in capitals",
	} {
		_, err := route.ParseRule(text)
		require.ErrorContains(t, err, why, "%q", text)
	}
	p, err := route.ParseRule("GET /a/*")
	require.NoError(t, err)
	assert.Equal(t, route.Pattern{Method: "GET", Path: "/a", Below: true}, p)
}

// What a pattern covers, it is for; and a route that only the other is for shows that it
// does not cover it.
func TestAPatternCoversAnotherIfItIsForAllOfItsRequests(t *testing.T) {
	requests := []string{"GET", "HEAD", "POST", "DELETE"}
	rapid.Check(t, func(t *rapid.T) {
		first, p := drawRule(t, "first")
		second, q := drawRule(t, "second")
		pattern := drawText(t, "route")
		routed := route.Parse(pattern)
		covers := p.Covers(&q)
		for _, method := range requests {
			if covers && q.Matches(method, &routed) && !p.Matches(method, &routed) {
				t.Fatalf("%q covers %q, and is not for %s routed by %q", first, second, method, pattern)
			}
		}
		if covers {
			return
		}
		// Its own path and, if it is for those below, one of them; its host, or one that
		// no pattern names.
		for _, below := range []string{"", "/below"} {
			own := route.Pattern{Host: cmp.Or(q.Host, "c.example"), Path: q.Path + below}
			for _, method := range requests {
				if q.Matches(method, &own) && !p.Matches(method, &own) {
					return
				}
			}
		}
		t.Fatalf("%q does not cover %q, and is for all of its requests", first, second)
	})
}

func FuzzARuleIsForTheRouteOfItsName(f *testing.F) {
	for _, text := range []string{"/", "GET /a/{id}", "a.example/*", "/{$}", "//", "/*/*", "POST /x/{rest...}", "get /", "\x00/", "/{"} {
		f.Add(text, "GET", "/a")
	}
	f.Fuzz(func(t *testing.T, text, method, other string) {
		p, err := route.ParseRule(text)
		if err != nil {
			return
		}
		var tree route.Tree[bool]
		_, added := tree.Add(p, true)
		require.True(t, added)
		_, added = tree.Add(p, true)
		require.False(t, added)
		require.True(t, p.Covers(&p))

		routed := route.Parse(text)
		require.True(t, p.Matches(p.Method, &routed))
		found, ok := tree.Find(p.Method, text)
		require.True(t, found && ok)

		routed = route.Parse(other)
		_, ok = tree.Find(method, other)
		require.Equal(t, p.Matches(method, &routed), ok, "%q, for %s routed by %q", text, method, other)
	})
}
