package route

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawPath draws a path of few segments, so that patterns and paths often meet.
func drawPath(t *rapid.T, name string, segments ...string) string {
	return "/" + strings.Join(rapid.SliceOfN(rapid.SampledFrom(segments), 1, 4).Draw(t, name), "/")
}

// A gateway's routes lead to the rule that a router with the same routes leads to, however the
// path is spelled.
func TestAGatewayRoutesAsARouterDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tree Tree[string]
		var texts []string
		var patterns []Pattern
		for range rapid.IntRange(1, 8).Draw(t, "patterns") {
			text := rapid.SampledFrom([]string{"", "GET ", "POST "}).Draw(t, "method") + drawPath(t, "pattern", "a", "b", "{x}") + rapid.SampledFrom([]string{"", "", "/*"}).Draw(t, "end")
			p, err := ParseRule(text)
			require.NoError(t, err)
			if _, ok := tree.Add(p, text); ok {
				texts, patterns = append(texts, text), append(patterns, p)
			}
		}
		method, path := rapid.SampledFrom([]string{"GET", "HEAD", "POST", "PUT"}).Draw(t, "asks with"), drawPath(t, "path", "a", "b", "c")
		want, wantFound := tree.Find(method, "", NewRouter(texts).Route(method, path))
		spelled := path
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			at := rapid.SampledFrom(slashes(spelled)).Draw(t, "at")
			spelled = spelled[:at] + rapid.SampledFrom([]string{"/", "/.", "/c/..", "/;y=1", "\\"}).Draw(t, "with") + spelled[at:]
		}
		spelled += rapid.SampledFrom([]string{"", ";z=1"}).Draw(t, "parameter")
		r := httptest.NewRequest(method, "/", nil)
		r.URL.Path = spelled
		NewRoutes(patterns, false).Set(r)
		got, found := tree.Find(method, "", r.Pattern)
		require.Equal(t, wantFound, found, "%s by %s", spelled, r.Pattern)
		require.Equal(t, want, got, "%s by %s", spelled, r.Pattern)
		require.Equal(t, spelled != path && spelled != path+";z=1", IsAmbiguous(r.URL), spelled)

		r.URL.Path = strings.ToUpper(spelled)
		NewRoutes(patterns, true).Set(r)
		folded, found := tree.Find(method, "", r.Pattern)
		require.Equal(t, wantFound, found, r.URL.Path)
		require.Equal(t, want, folded, r.URL.Path)
	})
}

// slashes are where a path has one.
func slashes(path string) (at []int) {
	for i := range len(path) {
		if path[i] == '/' {
			at = append(at, i)
		}
	}
	return at
}

func TestAClientsTextIsNoPartOfARoute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		known := map[string]bool{Unrouted: true}
		var patterns []Pattern
		for _, text := range []string{"/a/{x}", "/a/{$}", "/b/*", "GET /{y}/c", "example.org/d/{rest...}"} {
			p, err := ParseRule(text)
			require.NoError(t, err)
			patterns = append(patterns, p)
			known[p.Path] = true
			if p.Below {
				known[p.Path+"/*"] = true
			}
		}
		r := httptest.NewRequest("GET", "http://"+rapid.SampledFrom([]string{"example.org", "a"}).Draw(t, "host")+"/", nil)
		r.URL.Path = drawPath(t, "path", "a", "b", "c", "d", "{x}", "{$}", "{x/y}", "*", ":y", "{rest...}", "")
		NewRoutes(patterns, false).Set(r)
		require.True(t, known[r.Pattern], "%s by %s", r.URL.Path, r.Pattern)
	})
}
