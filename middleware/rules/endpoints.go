package rules

import (
	"slices"
	"strings"

	"github.com/weirgo/weir/internal/nearest"
	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/internal/yamlfile"
)

// endpoints checks the patterns of all endpoints.
func (c *checker) endpoints() {
	var tree route.Tree[string]
	for _, at := range c.scopes {
		if at.section != "endpoints" {
			continue
		}
		pattern, ok := c.pattern(at.path, at.of)
		if !ok {
			continue
		}
		if other, ok := tree.Add(pattern, at.of); !ok {
			c.atKey(at.path, "is the same route as %q in line %d: keep one", other, c.doc.Key("endpoints", other).Line)
			continue
		}
		at.pattern = &pattern
		if len(c.file.Default) > 0 && pattern.Covers(&everything) && !at.isOff() {
			c.at([]string{"default"}, "is never used, because the endpoint %q matches every request: keep one", at.of)
		}
	}
}

// patterns returns the endpoints in force.
func (c *checker) patterns() []*scope {
	return slices.DeleteFunc(slices.Clone(c.scopes), func(at *scope) bool { return at.pattern == nil || at.isOff() })
}

// everything is the pattern of every request.
var everything = route.Pattern{Below: true}

// pattern parses a route. It reports why the route is invalid, and warns of a valid one that is probably not intended.
func (c *checker) pattern(at []string, text string) (route.Pattern, bool) {
	pattern, err := route.ParseRule(text)
	if err != nil {
		c.atKey(at, "%s", err)
		return pattern, false
	}
	bare, slash := strings.CutSuffix(text, "/")
	switch {
	case pattern.Below:
	case slash && pattern.Path != "/":
		c.warnings.atKey(at, "matches all paths below it on http.ServeMux, and one path on chi, gin and echo: write %q to match all paths below on each of them", bare+"/*")
	case strings.HasSuffix(pattern.Path, "*") && !strings.HasSuffix(pattern.Path, "/*"):
		c.warnings.atKey(at, "matches only a route that is registered with this *: write %q to match all paths below", strings.TrimRight(text, "*")+"/*")
	}
	if near := nearest.Of(pattern.Method, methods); near != "" && near != pattern.Method {
		c.warnings.atKey(at, "has the unknown method %q: did you mean %q?", pattern.Method, near)
	}
	return pattern, true
}

// parameters checks that an endpoint has the parameters that its rules count by. Routes below a pattern
// with a * may have more.
func (c *checker) parameters(p *scopedRule) {
	if p.pattern == nil || p.pattern.Below {
		return
	}
	there := route.Parameters(p.pattern.Path)
	for i, part := range p.parts {
		for _, choice := range choices(part) {
			name, ok := strings.CutPrefix(choice, "path:")
			if name = strings.TrimSpace(name); !ok || slices.Contains(there, name) {
				continue
			}
			meant := "it has none"
			if len(there) > 0 {
				meant = yamlfile.Suggest(name, there)
			}
			c.at(c.doc.Element(sub(p.path, "key"), i), "names the parameter %q, which the endpoint does not have: %s", name, meant)
		}
	}
}

// methods are the methods of HTTP and WebDAV. No request has a method such as GTE, so its endpoint would have no limit.
var methods = []string{
	"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE", "QUERY",
	"COPY", "LOCK", "MKCOL", "MOVE", "PROPFIND", "PROPPATCH", "REPORT", "SEARCH", "UNLOCK",
}
