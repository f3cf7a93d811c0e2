package keyfunc_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
)

// at is a request for target, as a server reads it, that was routed by pattern.
func at(pattern, target string) *http.Request {
	r := httptest.NewRequest("GET", target, nil)
	r.Pattern = pattern
	return r
}

func TestPathValueIsTheParameterOfTheRoute(t *testing.T) {
	for _, row := range table(t, "paths.txt") {
		pattern, target, name, want := row[0], row[1], row[2], row[3]
		assert.Equal(t, "path:"+name+":"+want, keyOf(t, keyfunc.PathValue(name), at(pattern, target)), "%q of %q", pattern, target)
	}
	long := strings.Repeat("x", 100_000)
	assert.Equal(t, "path:id:"+long, keyOf(t, keyfunc.PathValue("id"), at("/users/{id}", "/users/"+long)))
}

func TestWithoutTheParameterThereIsNoKey(t *testing.T) {
	id := keyfunc.PathValue("id")
	assertNoKey(t, id, at("", "/users/42"))
	assertNoKey(t, id, at("/users/{name}", "/users/42"))
	assertNoKey(t, id, at("/users/42", "/users/42"))
	assertNoKey(t, id, at("/users/{$}", "/users/"))
}

// Whatever is between the router and the limiter, it does not turn the rule off.
func TestAPathThatItsRouteDoesNotFitIsAnError(t *testing.T) {
	id := keyfunc.PathValue("id")
	for _, test := range [][2]string{
		{"/users/{id}", "/posts/42"}, {"/users/{id}", "/users/42/posts"}, {"/users/:id/posts", "/users/42"},
		{"/{id}/{$}", "/42/x"}, {"/users/{id}.json", "/users/42.xml"}, {"/a/{id}", "/%2F/1"}, {"/users/{id}", "*"},
	} {
		assertFails(t, id, at(test[0], test[1]))
	}
}

func TestARouterThatHasRunHasTheLastWord(t *testing.T) {
	id := keyfunc.PathValue("id")
	r := at("/users/{id}", "/users/42.json")
	r.SetPathValue("id", "42") // as behind chi's URLFormat
	assert.Equal(t, "path:id:42", keyOf(t, id, r))

	mux := http.NewServeMux()
	mux.Handle("/v1/{id}/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.StripPrefix("/v1/42", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			assert.Equal(t, "path:id:42", keyOf(t, id, r))
		})).ServeHTTP(w, r)
	}))
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/v1/42/x", nil))
}

func TestPathValueDoesNotTakeWhatIsNoName(t *testing.T) {
	for _, name := range []string{"", "{id}", ":id", "id...", "a/b", "a b", "$"} {
		assert.PanicsWithValue(t, fmt.Sprintf("keyfunc: PathValue(%q): it is not the name of a parameter", name), func() { keyfunc.PathValue(name) })
	}
	_, err := keyfunc.Parse("path:", nil)
	assert.ErrorContains(t, err, "the key is of kind path and has no name")
	f, err := keyfunc.Parse("path:id|ip", nil)
	require.NoError(t, err)
	assert.Equal(t, "path:id:42", keyOf(t, f, at("/users/{id}", "/users/42")))
	assert.Equal(t, "192.0.2.1", keyOf(t, f, at("/users", "/users")))
}

func TestAParameterThatNoRouteHasIsWarnedOfOnce(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })

	id := keyfunc.PathValue("idd")
	assertNoKey(t, id, at("/search", "/search"))
	assertNoKey(t, id, at("", "/nowhere"))
	assert.Empty(t, log.String(), "routes without parameters say nothing about a name")
	for range 3 {
		assertNoKey(t, id, at("/users/{id}", "/users/secret"))
	}
	assert.Equal(t, 1, strings.Count(log.String(), "code=weir-no-such-parameter"))
	assert.Contains(t, log.String(), `parameter=idd route=/users/{id} parameters=[id]`)
	assert.NotContains(t, log.String(), "secret", "paths are not logged")

	log.Reset()
	id = keyfunc.PathValue("id")
	keyOf(t, id, at("/users/{id}", "/users/42"))
	assertNoKey(t, id, at("/posts/{post}", "/posts/42"))
	assert.Empty(t, log.String(), "some routes have it")
}

var wildcard = regexp.MustCompile(`\{(\w+)(?:\.\.\.)?\}`)

// In front of the mux, by the pattern that it says it will choose, and behind it.
func FuzzPathValueIsWhatServeMuxFinds(f *testing.F) {
	for _, pattern := range []string{
		"/{id}", "GET /users/{id}", "a.example/{id}/x", "/{id}/{rest...}", "/files/{id...}", "/{a}/{id}/{$}", "/{id}/", "/x%2Fy/{id}", "/:a/{id}", "/*/{id}", "CONNECT /{id}",
	} {
		for _, target := range []string{
			"/42", "/users/42", "/a/b/c", "/a%2Fb/c", "/%34%32", "/a/%2e%2e/b", "/a/../b", "//a", "/a/", "/a//b", "/%zz", "/x%2fy/1", "/é/ü", "/%25", "/a;b/c", "/:a/1", "/*/1", "*", "/+",
		} {
			f.Add(pattern, "GET", target)
		}
		f.Add(pattern, "CONNECT", "/a/../b")
	}
	f.Fuzz(func(t *testing.T, pattern, method, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || len(target) > 1000 {
			t.Skip("no server lets it pass")
		}
		mux := http.NewServeMux()
		if !registers(mux, pattern) {
			t.Skip("no pattern")
		}
		ran := false
		compare := func(r *http.Request, values *http.Request) {
			for _, found := range wildcard.FindAllStringSubmatch(pattern, -1) {
				name := found[1]
				key, err := keyfunc.PathValue(name)(r)
				require.NoError(t, err, "%q of %q by %q", name, target, pattern)
				require.Equal(t, "path:"+name+":"+values.PathValue(name), key, "%q of %q by %q", name, target, pattern)
			}
		}
		r := &http.Request{Method: method, URL: u, Host: "a.example", Header: http.Header{}, RemoteAddr: "192.0.2.1:1"}
		before := *r
		_, before.Pattern = mux.Handler(r)
		handler = func(_ http.ResponseWriter, r *http.Request) {
			ran = true
			compare(r, r)
			compare(&before, r)
		}
		mux.ServeHTTP(httptest.NewRecorder(), r)
		if !ran && before.Pattern == pattern {
			// It is redirected; whatever its key is, it has one.
			for _, found := range wildcard.FindAllStringSubmatch(pattern, -1) {
				_, err := keyfunc.PathValue(found[1])(&before)
				require.NoError(t, err, "%q by %q", target, pattern)
			}
		}
	})
}

// handler is what the fuzzed mux's handler does.
var handler http.HandlerFunc

// registers reports whether a pattern is one.
func registers(mux *http.ServeMux, pattern string) (ok bool) {
	defer func() { ok = recover() == nil }()
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { handler(w, r) })
	return true
}

func TestAConnectThatServeMuxHasNoValuesForPanicsNot(t *testing.T) {
	key, ran := keyfunc.PathValue("id"), false
	mux := http.NewServeMux()
	mux.HandleFunc("/users/{id}/", func(_ http.ResponseWriter, r *http.Request) {
		ran = true
		_, err := key(r)
		assert.NoError(t, err)
	})
	for _, path := range []string{"/users//", "/users//x", "/users/7/"} {
		r := httptest.NewRequest(http.MethodConnect, "/", nil)
		r.URL.Path = path
		assert.NotPanics(t, func() { mux.ServeHTTP(httptest.NewRecorder(), r) }, path)
	}
	assert.True(t, ran)
}
