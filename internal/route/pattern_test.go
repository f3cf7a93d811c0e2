package route_test

import (
	"cmp"
	"strings"
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
		"GET\t/a":               {Method: "GET", Path: "/a"},
		"GET \t a.example/a":    {Method: "GET", Host: "a.example", Path: "/a"},
	} {
		assert.Equal(t, want, route.Parse(text), "%q", text)
	}
}

func TestAnExpressionMayHaveSlashes(t *testing.T) {
	for rule, others := range map[string][]string{
		"/users/{id}":        {"/users/{id:[^/]+}", "/users/{id:a/{2}}", "/users/:id"},
		"/users/{id}/posts":  {"/users/{id:[^/]+}/posts"},
		"/users/{id:[^/]+}":  {"/users/{id}"},
		"/users/{id:[^/]+}/": {"/users/{id}/"},
		"/f/{n}.json":        {"/f/{n}.json"},
	} {
		p, err := route.ParseRule("GET " + rule)
		require.NoError(t, err)
		for _, other := range others {
			routed := route.Parse(other)
			assert.True(t, p.Matches("GET", "", &routed), "%q, routed by %q", rule, other)
			var tree route.Tree[bool]
			tree.Add(p, true)
			found, _ := tree.Find("GET", "", other)
			assert.True(t, found, "%q, routed by %q", rule, other)
		}
		for _, other := range []string{"/users/me", "/users/{id:[^/]+}/comments", "/f/{n}.xml", "/f/{n}"} {
			routed := route.Parse(other)
			assert.False(t, p.Matches("GET", "", &routed), "%q, routed by %q", rule, other)
		}
	}
}

// A pattern covers another if it is for the other's own route, for one below it if the other
// is for those, to the other's host, or one that no rule names, whatever the method.
func TestAPatternCoversAnotherIfItIsForAllOfItsRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first, p := drawRule(t, "first")
		second, q := drawOther(t, first)
		if rapid.Bool().Draw(t, "swapped") {
			first, p, second, q = second, q, first, p
		}
		all := true
		for _, below := range []string{"", "/below"} {
			routed := route.Pattern{Path: q.Path + below}
			host := strings.Replace(cmp.Or(q.Host, "another.invalid"), "*", "other", 1)
			for _, method := range []string{"GET", "HEAD", "POST", "DELETE"} {
				all = all && (!q.Matches(method, host, &routed) || p.Matches(method, host, &routed))
			}
		}
		if p.Covers(&q) != all {
			t.Fatalf("%q covers %q is %v", first, second, !all)
		}
	})
}

func TestFitIsTheRouteThatAPathWouldHave(t *testing.T) {
	for _, test := range []struct {
		rule, path, want string // empty: it does not fit
	}{
		{"/", "/", "/"},
		{"/", "/a", ""},
		{"/a/b", "/a/b", "/a/b"},
		{"/a/b", "/a", ""},
		{"/a/b", "/a/b/c", ""},
		{"/a/b", "/a/c", ""},
		{"/a/", "/a/", "/a/"},
		{"/a/", "/a", ""},
		{"/a/{$}", "/a/", "/a/{$}"},
		{"/a/{$}", "/a/b", ""},
		{"/users/{id}", "/users/42", "/users/{id}"},
		{"/users/:id", "/users/42", "/users/:id"},
		{"/users/{id}", "/users/", ""},
		{"/users/{id}", "/users/42/posts", ""},
		{"/users/{id}/posts", "/users/42/posts", "/users/{id}/posts"},
		{"/files/{path...}", "/files/a/b", "/files/{path...}"},
		{"/files/{path...}", "/files/", "/files/{path...}"},
		{"/*", "/", "/"},
		{"/*", "/a/b", "/a/b"},
		{"/v1/{x}/*", "/v1/y/z/w", "/v1/{x}/z/w"},
		{"/v1/{x}/*", "/v1/y", "/v1/{x}"},
		{"/v1/{x}/*", "/v1", ""},
	} {
		p, err := route.ParseRule(test.rule)
		require.NoError(t, err)
		fit, ok := p.Fit(test.path)
		require.Equal(t, test.want, fit, "%q for %q", test.rule, test.path)
		require.Equal(t, test.want != "", ok)
		if ok {
			routed := route.Parse(fit)
			assert.True(t, p.Matches("GET", "", &routed), "%q for %q", test.rule, test.path)
		}
	}
}

func TestOfMuxSpellsParametersAsServeMuxDoes(t *testing.T) {
	for path, want := range map[string]string{
		"/": "/", "/a/": "/a/", "/{$}": "/{$}", "/a/{id}/b": "/a/{id}/b", "/a/:id": "/a/{id}", "/{id:[^/]+}/b": "/{id}/b",
		"/a/*": "/a/{rest...}", "/a/*path": "/a/{path...}", "/{path...}": "/{path...}", "/a:b": "/a:b",
	} {
		assert.Equal(t, want, route.OfMux(path), "%q", path)
	}
}

func FuzzARuleIsForTheRouteOfItsName(f *testing.F) {
	for _, text := range []string{
		"/", "GET /a/{id}", "a.example/*", "/{$}", "//", "/*/*", "POST /x/{rest...}", "get /", "\x00/", "/{", "*.a.example/b", "[::1]/", "A.:8/", "api./",
	} {
		f.Add(text, "GET", "a.example", "/a")
	}
	f.Fuzz(func(t *testing.T, text, method, host, other string) {
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

		own := strings.Replace(p.Host, "*", "x", 1)
		routed := route.Parse(text)
		require.True(t, p.Matches(p.Method, own, &routed))
		found, ok := tree.Find(p.Method, own, text)
		require.True(t, found && ok)

		routed = route.Parse(other)
		_, ok = tree.Find(method, host, other)
		require.Equal(t, p.Matches(method, route.Host(host), &routed), ok, "%q, for %s of %q routed by %q", text, method, host, other)
	})
}

// Flask upper-cases methods, and HTTP/2 carries any text as a method.
func TestARulesMethodIsComparedWithoutCase(t *testing.T) {
	for method, spellings := range map[string][]string{"POST": {"POST", "post", "Post", "poſt", "POſT"}, "GET": {"get", "head", "Head"}, "OPTIONS": {"optıonſ"}, "LINK": {"lin\u212a"}} {
		p := route.Pattern{Method: method, Path: "/a"}
		var tree route.Tree[string]
		tree.Add(p, "rule")
		for _, spelled := range spellings {
			assert.True(t, p.Takes(spelled), spelled)
			_, ok := tree.Find(spelled, "", "/a")
			assert.True(t, ok, spelled)
		}
		assert.False(t, p.Takes("PUT"))
	}
	var tree route.Tree[string]
	tree.Add(route.Pattern{Path: "/a"}, "any")
	tree.Add(route.Pattern{Method: "POST", Path: "/a"}, "post")
	rule, _ := tree.Find("pOST", "", "/a")
	assert.Equal(t, "post", rule)
}
