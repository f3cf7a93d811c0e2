package route

import (
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawPath draws a path of few segments, so that patterns and paths often meet.
func drawPath(t *rapid.T, name string, segments ...string) string {
	return "/" + strings.Join(rapid.SliceOfN(rapid.SampledFrom(segments), 1, 4).Draw(t, name), "/")
}

// parsers are servers that read a path each in its own way. They get it as a client sends it.
var parsers = map[string]func(target string) string{
	"Node": func(target string) string { return target },
	"Go":   func(target string) string { return strings.ReplaceAll(target, "%2F", "\x00") },
	"PHP":  func(target string) string { return strings.ReplaceAll(target, "%2F", "/") },
	"Java": func(target string) string { return parameters.ReplaceAllString(target, "") },
	"nginx": func(target string) string {
		return empties.ReplaceAllString(strings.ReplaceAll(target, "%2F", "/"), "/")
	},
	"merge": func(target string) string { return empties.ReplaceAllString(target, "/") },
	"Tomcat": func(target string) string {
		return empties.ReplaceAllString(parameters.ReplaceAllString(target, ""), "/")
	},
	"IIS": func(target string) string { return empties.ReplaceAllString(strings.ReplaceAll(target, `\`, "/"), "/") },
	"WHATWG": func(target string) string {
		return authority.ReplaceAllString(strings.ReplaceAll(target, `\`, "/"), "/")
	},
	"all": func(target string) string {
		return empties.ReplaceAllString(parameters.ReplaceAllString(strings.NewReplacer(`\`, "/", "%2F", "/").Replace(target), ""), "/")
	},
}

var parameters, empties, authority = regexp.MustCompile(`;[^/]*`), regexp.MustCompile(`//+`), regexp.MustCompile(`^//+[^/]+(/|$)`)

// Whichever server reads a path, and however the path is spelled: a gateway limits the request by the rule that a
// router with the same routes would find there, or refuses it.
func TestAGatewayRoutesAsEachServerDoes(t *testing.T) {
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
		spelled := path
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			at := rapid.SampledFrom(slashes(spelled)).Draw(t, "at")
			with := rapid.SampledFrom([]string{"/", "/;y=1", `/\`, "/a%2F", "/a%2F%2F"}).Draw(t, "with")
			if at > 0 && rapid.Bool().Draw(t, "instead") {
				spelled = spelled[:at] + rapid.SampledFrom([]string{`\`, "%2F", ";/"}).Draw(t, "slash") + spelled[at+1:]
			} else {
				spelled = spelled[:at] + with + spelled[at:]
			}
		}
		spelled += rapid.SampledFrom([]string{"", ";z=1"}).Draw(t, "parameter")
		r := httptest.NewRequest(method, "/", nil)
		var err error
		r.URL, err = url.ParseRequestURI(spelled)
		require.NoError(t, err)
		router := NewRouter(texts)
		check := func(fold bool) {
			if NewRoutes(patterns, nil, fold).Set(r) != "" {
				require.NotEqual(t, path, spelled, "a plain path is no doubt")
				return
			}
			got, _ := tree.Find(method, "", r.Pattern)
			for name, read := range parsers {
				if want, found := tree.Find(method, "", router.Route(method, read(spelled))); found {
					require.Equal(t, want, got, "%s by %s, which %s reads as %s", spelled, r.Pattern, name, read(spelled))
				}
			}
		}
		check(false)
		require.Equal(t, strings.Contains(spelled, "//") || strings.ContainsAny(spelled, `\%`) || strings.Contains(spelled, "/;"), IsAmbiguous(r.URL), spelled)
		r.URL.Path, r.URL.RawPath = strings.ToUpper(r.URL.Path), strings.ToUpper(r.URL.RawPath)
		check(true)
	})
}

// Python's, Ruby's, Java's and JavaScript's programs that ignore case compare by one of these.
func TestCaseIsFoldedAsProgramsDo(t *testing.T) {
	for c := rune(0); c <= unicode.MaxRune; c++ {
		if !utf8.ValidRune(c) || unicode.SimpleFold(c) == c && unicode.ToUpper(c) == c && unicode.ToLower(c) == c {
			continue
		}
		text, want := string(c), Fold(string(c))
		for _, same := range []string{string(unicode.SimpleFold(c)), strings.ToUpper(text), strings.ToLower(text), strings.ToTitle(text), want} {
			require.Equal(t, want, Fold(same), "%U and %q", c, same)
		}
	}
	for want, spellings := range map[string][]string{"search": {"ſearch", "SEARCH"}, "kiss": {"\u212aiſs", "Kıss", "Kİß"}, "office": {"oﬃce", "OﬀICE"}, "straße": {"STRASSE"}} {
		for _, spelled := range spellings {
			require.Equal(t, Fold(want), Fold(spelled), spelled)
		}
	}
}

// An exemption is for a path as the pattern spells it: a server that reads another spelling literally may serve
// anything there.
func TestNoSpellingTakesAnExemption(t *testing.T) {
	parse := func(texts ...string) (patterns []Pattern) {
		for _, text := range texts {
			p, err := ParseRule(text)
			require.NoError(t, err)
			patterns = append(patterns, p)
		}
		return patterns
	}
	routes := NewRoutes(parse("/health/*", "/status"), parse("/healthz", "GET /health/live", "/assets/*", "GET /status"), true)
	for target, want := range map[string]string{
		"/healthz": "/healthz", "/HEALTHZ": "/healthz", "/%68ealthz": "/healthz", "/health/live": "/health/live", "/assets/a": "/assets/*", "/assets/": "/assets/*", "/assets//a;b": "/assets/*", "/status": "/status",
		"/healthz/": Unrouted, "/healthz;a": Unrouted, "//healthz": Unrouted, "/healthz%2F": Unrouted, "/\\healthz": Unrouted, "/assetſ;/x": Unrouted, "/assets%2Fx": Unrouted, "/status;x": Unrouted,
		"/health/live/": "/health/*", "/health//live": "/health/*", "/health/live;x": "/health/*",
	} {
		r := httptest.NewRequest("GET", "/", nil)
		u, err := url.ParseRequestURI(target)
		require.NoError(t, err, target)
		r.URL = u
		require.Empty(t, routes.Set(r), target)
		require.Equal(t, want, r.Pattern, target)
	}
}

func TestASimplePathHasOneReading(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := &url.URL{Path: rapid.StringMatching(`/?([aA0_.\-/]|[;\\%~é@\x00 ]){0,8}`).Draw(t, "path")}
		if !isSimple(u) {
			return
		}
		for i, change := range spellings[1:] {
			require.Equal(t, u.Path, change(u.Path), "change %d", i+1)
		}
		require.False(t, hasDots(u.Path) || IsAmbiguous(u) || !IsPlain(u), u.Path)
	})
	require.True(t, isSimple(&url.URL{Path: "/shop.Cart/Add_2-b/"}))
	require.False(t, isSimple(&url.URL{Path: "/a/b", RawPath: "/a%2Fb"}))
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
		if NewRoutes(patterns, nil, false).Set(r) != "" {
			require.Regexp(t, "^//", r.URL.Path, "which may begin with a host")
			return
		}
		require.True(t, known[r.Pattern], "%s by %s", r.URL.Path, r.Pattern)
	})
}
