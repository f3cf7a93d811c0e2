package route_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/route"
)

func TestAPatternThatNoRequestMatchesIsRefusedWithTheReason(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "has no path",
		"GET":                             "has no path",
		"search":                          "has no path",
		"GET search":                      "has no path",
		"a.example":                       "has no path",
		"/a?b=c":                          "has a space, ? or # in its path",
		"/a#b":                            "has a space, ? or # in its path",
		"/a b":                            "has a space, ? or # in its path",
		"/{id}?b=c":                       "has a space, ? or # in its path",
		"/a/*/b":                          "goes on behind a parameter for all that follows",
		"/{a...}/b":                       "goes on behind a parameter for all that follows",
		"/{$}/b":                          "goes on behind a parameter for all that follows",
		"/*/*":                            "goes on behind a parameter for all that follows",
		"/a/*.js":                         "has a * that stands for a part of a segment",
		"/a/**":                           "has a * that stands for a part of a segment",
		"/a*/b":                           "has a * that stands for a part of a segment",
		"/a*b":                            "has a * that stands for a part of a segment",
		"get /a":                          "does not begin with a method in capitals",
		"Get: /a":                         "does not begin with a method in capitals",
		"GET,POST /a":                     "has several methods",
		"get|post a.example/":             "has several methods",
		"ANY /a":                          "begins with ANY, which is no method: a pattern without one is for all",
		"* /a":                            "begins with *, which is no method: a pattern without one is for all",
		"GET/a":                           "has no space behind its method",
		"get/a/{id}":                      "has no space behind its method",
		"POST/":                           "has no space behind its method",
		"GET ^/api/.*$":                   "looks like a regular expression",
		"^/api/(.*)$":                     "looks like a regular expression",
		"/users/[^/]+/posts":              "looks like a regular expression",
		`/users/\d+`:                      "looks like a regular expression",
		"/(a|b)":                          "looks like a regular expression",
		"/a$":                             "looks like a regular expression",
		"https://a.example/a":             "has a scheme",
		"GET https://a.example:8443/a?b":  "has a scheme",
		"http://a.example":                "has a scheme",
		"a.example:8080/a":                "has a port, which no host is compared with",
		"[::1]:8080/a":                    "has a host that is not one",
		"api/x":                           `begins with "api", which reads as a host: write "/api" for a path, and "api." for a host`,
		"GET users/{id}":                  `begins with "users", which reads as a host: write "/users" for a path`,
		"v1.0/users":                      "has a host that is not one",
		"256.1.1.1/users":                 "has a host that is not one",
		":id/x":                           "has a port, which no host is compared with",
		"{tenant}.a.example/x":            "has a host that is not one",
		"*a.example/x":                    "has a host that is not one",
		"a.*.example/x":                   "has a host that is not one",
		"*/x":                             "has a host that is not one",
		"*.0.0.1/x":                       "has a host that is not one",
		"*.192.0.2.1/x":                   "has a host that is not one",
		"*.[::1]/x":                       "has a host that is not one",
		"a..example/x":                    "has a host that is not one",
		strings.Repeat("a", 64) + ".org/": "has a host that is not one",
		"münchen.example/x":               "has a host outside ASCII",
		"GET *.münchen.example/x":         "has a host outside ASCII",
		"/a//b":                           "has // in its path",
		"//a":                             "has // in its path",
		"//*":                             "has // in its path",
		"/a/../b":                         "has .. in its path, which no client asks for",
		"/./a":                            "has . in its path, which no client asks for",
		"/users/{id":                      "has a brace without its other one",
		"/users/id}":                      "has a brace without its other one",
		"/}{":                             "has a brace without its other one",
		"/{":                              "has a brace without its other one",
		`POST /login"`:                    "has a quotation mark or an angle bracket",
		`"/login"`:                        "has a quotation mark or an angle bracket",
		"GET /docs/<id>":                  "has a quotation mark or an angle bracket",
		"GET /docs/<id":                   "has a quotation mark or an angle bracket",
		"GET `/docs`":                     "has a quotation mark or an angle bracket",
		"/{a/b":                           "has a brace without its other one",
	} {
		_, err := route.ParseRule(text)
		assert.ErrorContains(t, err, want, "%q", text)
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
