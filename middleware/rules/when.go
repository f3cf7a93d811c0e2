package rules

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// values are what header fields or parameters have to be, by name; see newGlob.
type values map[string]string

func (v values) String() string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(v)) {
		texts = append(texts, name+": "+v[name])
	}
	return strings.Join(texts, ", ")
}

// matcher returns a function that reports whether a request has all of the values. given returns the values
// of a name, and false if programs may find others. One equal value is enough, and so is the doubt.
func (v values) matcher() func(given func(name string) ([]string, bool)) bool {
	wanted := make(map[string]glob, len(v))
	for name, text := range v {
		wanted[name] = newGlob(text)
	}
	return func(given func(name string) ([]string, bool)) bool {
		for name, want := range wanted {
			if has, clear := given(name); clear && !slices.ContainsFunc(has, want.matches) {
				return false
			}
		}
		return true
	}
}

// A glob has the texts around the * of a pattern, or a single text, which is compared as it is.
type glob []string

// newGlob reads a value in which * stands for any text and \* for a star. With a *, case does not matter.
func newGlob(text string) glob {
	texts := strings.Split(strings.ReplaceAll(text, `\*`, "\x00"), "*")
	for i := range texts {
		if texts[i] = strings.ReplaceAll(texts[i], "\x00", "*"); len(texts) > 1 {
			texts[i] = strings.ToLower(texts[i])
		}
	}
	return texts
}

func (g glob) matches(text string) bool {
	if len(g) == 1 {
		return text == g[0]
	}
	text, ok := strings.CutPrefix(strings.ToLower(text), g[0])
	for _, part := range g[1 : len(g)-1] {
		if ok {
			_, text, ok = strings.Cut(text, part)
		}
	}
	return ok && strings.HasSuffix(text, g[len(g)-1])
}

// isConditional reports whether a rule is not for all requests of its scope.
func (r *rule) isConditional() bool {
	return r.When != nil && (len(r.When.Header)+len(r.When.Query) > 0 || r.When.Tool != "")
}

// countsEach reports whether a rule counts, or denies, each request of its scope.
func (r *rule) countsEach() bool { return !r.isConditional() && r.Distinct == "" && r.MCP == "" }

// match makes Rule.Match of a rule's when, or nil for all requests.
func (c *checker) match(path []string, r *rule) middleware.Match {
	if !r.isConditional() {
		return nil
	}
	path = sub(path, "when")
	header, query := values{}, r.When.Query
	for _, name := range slices.Sorted(maps.Keys(r.When.Header)) {
		at, value, canonical := sub(path, "header", name), r.When.Header[name], http.CanonicalHeaderKey(name)
		switch _, err := keyfunc.Parse("header:"+name, nil); {
		case slices.Contains([]string{"Host", "Transfer-Encoding", "Trailer"}, canonical):
			c.atKey(at, "is not a header field in net/http: to match a host, write it before the endpoint, as in example.org/*")
		case err != nil:
			c.atKey(at, "is not the name of a header field")
		case header[canonical] != "":
			c.atKey(at, "is the same header field as another entry")
		case value != strings.TrimSpace(value):
			c.at(at, "begins or ends with a space, so no header field can match it")
		}
		header[canonical] = value
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if _, err := keyfunc.Parse("query:"+name, nil); err != nil {
			c.atKey(sub(path, "query", name), "is not the name of a parameter")
		}
	}
	tool := values{}
	if r.When.Tool != "" {
		tool[""] = r.When.Tool
	}
	inHeader, inQuery, inTool := header.matcher(), query.matcher(), tool.matcher()
	return middleware.MatchFunc(func(r *http.Request) bool {
		return inTool(func(string) ([]string, bool) { return toolOf(r) }) &&
			inHeader(func(name string) ([]string, bool) { return r.Header[name], true }) &&
			inQuery(func(name string) ([]string, bool) { return route.Query(nil, r.URL.RawQuery, name) })
	})
}

// toolOf returns the tool that a request calls, and false if programs may find different ones.
func toolOf(r *http.Request) ([]string, bool) {
	key, err := keyfunc.Tool(r)
	if err != nil {
		return nil, !errors.Is(err, keyfunc.ErrAmbiguous)
	}
	text, _ := keyfunc.Classify(key)
	_, _, tool := keyfunc.KindOf(text)
	return []string{tool}, true
}
