package route_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/route"
)

// Few parts, so that what is drawn of them often meets.
var (
	methods  = rapid.SampledFrom([]string{"", "", "GET", "HEAD", "POST"})
	hosts    = rapid.SampledFrom([]string{"", "", "a.example", "b.example", "*.example", "c.a.example", "*.a.example", "d.c.a.example"})
	segments = rapid.SliceOfN(rapid.SampledFrom([]string{
		"a", "a", "b", "", "{$}", "{id}", ":id", "{id:[0-9]+}", "*", "*rest", "{rest...}",
	}), 1, 4)
)

func drawText(t *rapid.T, label string) string {
	return strings.TrimSpace(methods.Draw(t, label+" method") + " " +
		hosts.Draw(t, label+" host") + "/" + strings.Join(segments.Draw(t, label+" path"), "/"))
}

func drawRule(t *rapid.T, label string) (string, route.Pattern) {
	return drawFrom(t, rapid.Custom(func(t *rapid.T) string { return drawText(t, label) }))
}

// drawFrom draws one of texts that can be a rule's.
func drawFrom(t *rapid.T, texts *rapid.Generator[string]) (string, route.Pattern) {
	text := texts.Filter(func(text string) bool {
		_, err := route.ParseRule(text)
		return err == nil
	}).Draw(t, "rule")
	p, err := route.ParseRule(text)
	require.NoError(t, err)
	return text, p
}

// drawOther draws a rule that often has much in common with another.
func drawOther(t *rapid.T, rule string) (string, route.Pattern) {
	_, path, _ := strings.Cut(rule, "/")
	return drawFrom(t, rapid.SampledFrom([]string{drawText(t, "other"), rule, rule + "/*", rule + "/a", "/" + path, "/" + path + "/*"}))
}

// says is how much a pattern says: its host, then its path, then its method.
func says(p route.Pattern, method string) (n int) {
	switch {
	case strings.HasPrefix(p.Host, "*"):
		n = len(p.Host) * 10_000
	case p.Host != "":
		n = 1_000_000
	}
	n += strings.Count(p.Path, "/") * 100
	if !p.Below {
		n += 50
	}
	switch p.Method {
	case "":
	case method:
		n += 2
	default:
		n++
	}
	return n
}

// A tree finds what a look at every pattern finds.
func TestATreeFindsThePatternThatSaysMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tree route.Tree[string]
		var rules []route.Pattern
		var texts []string
		for i := range rapid.IntRange(0, 40).Draw(t, "rules") {
			text, p := drawRule(t, fmt.Sprint("rule ", i))
			if _, ok := tree.Add(p, text); ok {
				rules, texts = append(rules, p), append(texts, text)
			}
		}
		for i := range 10 {
			method := rapid.SampledFrom([]string{"GET", "HEAD", "POST", "DELETE"}).Draw(t, fmt.Sprint("method ", i))
			pattern, host := drawText(t, fmt.Sprint("route ", i)), hosts.Draw(t, fmt.Sprint("host ", i))
			routed := route.Parse(pattern)
			most, want := -1, ""
			for j, p := range rules {
				if p.Matches(method, route.Host(host), &routed) && says(p, method) > most {
					most, want = says(p, method), texts[j]
				}
			}
			found, ok := tree.Find(method, host, pattern)
			if found != want || ok != (most >= 0) {
				t.Fatalf("%s of %q routed by %q: found %q, %v, want %q of %q", method, host, pattern, found, ok, want, texts)
			}
		}
	})
}

// Two patterns are the same to a tree if each is for all that the other is for.
func TestATreeRefusesTheSameRouteTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tree route.Tree[string]
		first, p := drawRule(t, "first")
		second, q := drawOther(t, first)
		tree.Add(p, first)
		other, added := tree.Add(q, second)
		if same := p.Covers(&q) && q.Covers(&p); added == same {
			t.Fatalf("%q after %q: added is %v", second, first, added)
		}
		if !added && other != first {
			t.Fatalf("%q is said to be the same as %q, not %q", second, other, first)
		}
	})
}

// thousand is a tree of a thousand routes, as an API has them, and a pattern of each.
func thousand(t testing.TB) (*route.Tree[int], []string) {
	tree, patterns := &route.Tree[int]{}, make([]string, 1000)
	for i := range patterns {
		patterns[i] = fmt.Sprintf("%s /api/v%d/resource%d/{id}/part%d", []string{"GET", "POST"}[i%2], i%3, i/4, i)
		p, err := route.ParseRule(patterns[i])
		require.NoError(t, err)
		_, ok := tree.Add(p, i)
		require.True(t, ok)
	}
	return tree, patterns
}

func TestAThousandRoutesAreFoundWithoutAllocation(t *testing.T) {
	tree, patterns := thousand(t)
	allocs := testing.AllocsPerRun(10, func() {
		for want, pattern := range patterns {
			method := pattern[:strings.IndexByte(pattern, ' ')]
			if found, ok := tree.Find(method, "a.example", pattern); !ok || found != want {
				t.Errorf("%q is number %d, not %d", pattern, want, found)
			}
		}
		tree.Find("GET", "a.example", "/unknown")
	})
	assert.Zero(t, allocs)

	tree = withHosts(t) // a rule for one host makes every request's host be looked at
	for _, host := range []string{"a.example", "a.example:8080", "b.c.wild.example", "unknown.example", "", "192.0.2.1:80", "[2001:db8::1]:80", "a.b.c.d.e.f.g.h.i.j.k"} {
		assert.Zero(t, testing.AllocsPerRun(100, func() { tree.Find("GET", host, "GET /api/v1/resource1/{id}/part4") }), "%q", host)
	}
}

// withHosts is a tree of a thousand routes, and of others for hosts.
func withHosts(t testing.TB) *route.Tree[int] {
	tree, _ := thousand(t)
	for i, text := range []string{"a.example/api/*", "*.wild.example/*", "[2001:db8::1]/b", "localhost/"} {
		p, err := route.ParseRule(text)
		require.NoError(t, err)
		tree.Add(p, i)
	}
	return tree
}

func BenchmarkByRouteAndHost(b *testing.B) {
	tree := withHosts(b)
	_, patterns := thousand(b)
	for _, host := range []string{"unknown.example.org:8080", "a.example", "b.wild.example", "B.Wild.Example", strings.Repeat("a.", 120) + "example"} {
		b.Run(host[:min(len(host), 30)], func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				tree.Find("GET", host, patterns[i%len(patterns)])
			}
		})
	}
}
