package route_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/route"
)

func TestAPatternThatNoRequestMatchesIsRefusedWithWhatWasMeant(t *testing.T) {
	const unknown = `something like "GET /search" or "/assets/*"`
	for text, want := range map[string][2]string{
		"":                                {"has no path", unknown},
		"GET":                             {"has no path", unknown},
		"search":                          {"has no path", `"/search"`},
		"GET search":                      {"has no path", `"GET /search"`},
		"a.example":                       {"has no path", `"a.example/*"`},
		"/a?b=c":                          {"has a space, ? or # in its path", `"/a"`},
		"/a#b":                            {"has a space, ? or # in its path", `"/a"`},
		"/a b":                            {"has a space, ? or # in its path", `"/a"`},
		"/{id}?b=c":                       {"has a space, ? or # in its path", unknown},
		"/a/*/b":                          {"goes on behind a parameter for all that follows", `"/a/{id}/b"`},
		"/{a...}/b":                       {"goes on behind a parameter for all that follows", `"/{a}/b"`},
		"/{$}/b":                          {"goes on behind a parameter for all that follows", `"/b"`},
		"/*/*":                            {"goes on behind a parameter for all that follows", `"/{id}/*"`},
		"/a/*.js":                         {"has a * that stands for a part of a segment", `"/a/*"`},
		"/a/**":                           {"has a * that stands for a part of a segment", `"/a/*"`},
		"/a*/b":                           {"has a * that stands for a part of a segment", unknown},
		"/a*b":                            {"has a * that stands for a part of a segment", unknown},
		"get /a":                          {"does not begin with a method in capitals", `"GET /a"`},
		"Get: /a":                         {"does not begin with a method in capitals", `"GET /a"`},
		"GET,POST /a":                     {"has several methods, of which a pattern has one or none", `"GET /a" and "POST /a"`},
		"get|post a.example/":             {"has several methods, of which a pattern has one or none", `"GET a.example/" and "POST a.example/"`},
		"ANY /a":                          {"begins with ANY, which is no method: a pattern without one is for all", `"/a"`},
		"* /a":                            {"begins with *, which is no method: a pattern without one is for all", `"/a"`},
		"GET/a":                           {"has no space behind its method", `"GET /a"`},
		"get/a/{id}":                      {"has no space behind its method", `"GET /a/{id}"`},
		"POST/":                           {"has no space behind its method", `"POST /"`},
		"GET ^/api/.*$":                   {"looks like a regular expression", `"GET /api/*"`},
		"^/api/(.*)$":                     {"looks like a regular expression", `"/api/*"`},
		"/users/[^/]+/posts":              {"looks like a regular expression", `"/users/{id}/posts"`},
		`/users/\d+`:                      {"looks like a regular expression", `"/users/{id}"`},
		"/(a|b)":                          {"looks like a regular expression", unknown},
		"/a$":                             {"looks like a regular expression", `"/a"`},
		"https://a.example/a":             {"has a scheme", `"a.example/a"`},
		"GET https://a.example:8443/a?b":  {"has a scheme", `"GET a.example/a"`},
		"http://a.example":                {"has a scheme", `"a.example/*"`},
		"a.example:8080/a":                {"has a port, which no host is compared with", `"a.example/a"`},
		"[::1]:8080/a":                    {"has a host that is not one", `"[::1]/a"`},
		"api/x":                           {`begins with "api", which reads as a host (write "api." if it is one)`, `"/api/x"`},
		"GET users/{id}":                  {`begins with "users", which reads as a host (write "users." if it is one)`, `"GET /users/{id}"`},
		"v1.0/users":                      {"has a host that is not one", `"/v1.0/users"`},
		"256.1.1.1/users":                 {"has a host that is not one", `"/256.1.1.1/users"`},
		":id/x":                           {"has a port, which no host is compared with", `"/:id/x"`},
		"{tenant}.a.example/x":            {"has a host that is not one", `"*.a.example/x"`},
		"*a.example/x":                    {"has a host that is not one", `"*.example/x"`},
		"a.*.example/x":                   {"has a host that is not one", unknown},
		"*/x":                             {"has a host that is not one", `"/x"`},
		"*.0.0.1/x":                       {"has a host that is not one", unknown},
		"*.[::1]/x":                       {"has a host that is not one", unknown},
		"a..example/x":                    {"has a host that is not one", `"/a..example/x"`},
		strings.Repeat("a", 64) + ".org/": {"has a host that is not one", `"/` + strings.Repeat("a", 64) + `.org/"`},
		"münchen.example/x":               {"has a host outside ASCII", `something like "xn--mnchen-3ya.example/search"`},
		"GET *.münchen.example/x":         {"has a host outside ASCII", `something like "xn--mnchen-3ya.example/search"`},
		"/a//b":                           {"has // in its path", `"/a/b"`},
		"//a":                             {"has // in its path", `"/a"`},
		"//*":                             {"has // in its path", `"/*"`},
		"/a/../b":                         {"has .. in its path, which no client asks for", `"/a/b"`},
		"/./a":                            {"has . in its path, which no client asks for", `"/a"`},
		"/users/{id":                      {"has a brace without its other one", `"/users/{id}"`},
		"/users/id}":                      {"has a brace without its other one", `"/users/{id}"`},
		"/}{":                             {"has a brace without its other one", unknown},
		"/{":                              {"has a brace without its other one", `"/{}"`},
		`POST /login"`:                    {"has a quotation mark or an angle bracket", `"POST /login"`},
		`"/login"`:                        {"has a quotation mark or an angle bracket", `"/login"`},
		"GET /docs/<id>":                  {"has a quotation mark or an angle bracket", `"GET /docs/{id}"`},
		"GET /docs/<id":                   {"has a quotation mark or an angle bracket", `"GET /docs/{id}"`},
		"GET `/docs`":                     {"has a quotation mark or an angle bracket", `"GET /docs"`},
		"/{a/b":                           {"has a brace without its other one", `"/{a}/b"`},
	} {
		_, err := route.ParseRule(text)
		require.ErrorContains(t, err, want[0], "%q", text)
		assert.True(t, strings.HasSuffix(err.Error(), ": want "+want[1]), "%q: %s", text, err)
	}
}

func TestAPatternThatRoutersHaveIsGood(t *testing.T) {
	for text, want := range map[string]route.Pattern{
		"GET /a/*":                     {Method: "GET", Path: "/a", Below: true},
		"/":                            {Path: "/"},
		"/*":                           {Below: true},
		"/static/":                     {Path: "/static/"},
		"/static*":                     {Path: "/static*"}, // chi and echo have it
		"/a/*path":                     {Path: "/a/*path"},
		"/a/{id:[a-z?#^$|\\\\ .*]+}/b": {Path: "/a/{id:[a-z?#^$|\\\\ .*]+}/b"},
		"/{url:https?://.*}":           {Path: "/{url:https?://.*}"},
		"/{a}.{b}/{c...}":              {Path: "/{a}.{b}/{c...}"},
		"/items:batch":                 {Path: "/items:batch"},
		"/odata/$metadata":             {Path: "/odata/$metadata"},
		"/c++/~a,b;c=d@e!(f)'&%20g":    {Path: "/c++/~a,b;c=d@e!(f)'&%20g"},
		"/.well-known/x":               {Path: "/.well-known/x"},
		"M-SEARCH /x":                  {Method: "M-SEARCH", Path: "/x"},
		"A.Example./x":                 {Host: "a.example", Path: "/x"},
		"*.A.Example/x":                {Host: "*.a.example", Path: "/x"},
		"*.localhost/x":                {Host: "*.localhost", Path: "/x"},
		"localhost/x":                  {Host: "localhost", Path: "/x"},
		"api./x":                       {Host: "api", Path: "/x"},
		"get./x":                       {Host: "get", Path: "/x"},
		"my_host.example/x":            {Host: "my_host.example", Path: "/x"},
		"xn--mnchen-3ya.example/x":     {Host: "xn--mnchen-3ya.example", Path: "/x"},
		"192.0.2.1/x":                  {Host: "192.0.2.1", Path: "/x"},
		"[2001:DB8:0::1]/x":            {Host: "2001:db8::1", Path: "/x"},
		"::1/x":                        {Host: "::1", Path: "/x"}, // as http.ServeMux has it
	} {
		p, err := route.ParseRule(text)
		require.NoError(t, err)
		assert.Equal(t, want, p, "%q", text)
	}
}

// What is said to be meant is a pattern, whatever was written.
func FuzzWhatIsMeantIsAPattern(f *testing.F) {
	for _, text := range []string{"GET/a", "GET ^/api/.*$", "https://a.b/c", "api/x", "{a}.b/{c", "//", "GET,POST /a/*/b", "[::1]:80/*a", "?", "ANY", "\xff/"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, err := route.ParseRule(text)
		if err == nil {
			return
		}
		_, want, ok := strings.Cut(err.Error(), ": want ")
		require.True(t, ok)
		require.NotEmpty(t, want)
		for _, meant := range route.Likely(text) {
			_, err := route.ParseRule(meant)
			require.NoError(t, err)
		}
	})
}
