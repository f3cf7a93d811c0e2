package routertest

import (
	"io"
	"net/http"
	"strings"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// keyFromBody has a limit of the router and a limit of the route read the body before the handler does. The body
// has a declared length or comes in chunks.
func keyFromBody(s *suite) {
	echo := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // first: HTTP/1.1 does not go on with it once an answer has begun
		if err != nil {
			s.Errorf("the handler cannot read the body: %v", err)
		}
		_, _ = w.Write(body)
	}
	by := func(field string, events int64) Limit {
		return rules(middleware.Rule{
			Name: field, Key: keyfunc.JSONField(field, 256), Limit: perHour(events), NoKey: middleware.NoKeySkip,
		})
	}
	server := s.serve(app([]Limit{by("account", 2)},
		Route{Method: http.MethodPost, Path: "/login", Handler: echo, Limits: []Limit{by("device", 100)}}))
	for _, test := range []struct {
		body   string
		status int
		why    string
	}{
		{`{"account":"jane","device":"a"}`, 200, "the first of jane's"},
		{` {"device":"b","ACCOUNT":"jane"}`, 200, "the second, however it is spelled"},
		{`{"account":"jane"}`, 429, "the third"},
		{`{"account":"joe"}`, 200, "each account has a counter of its own"},
		{"no JSON " + strings.Repeat("x", 1000), 200, "no key, and the handler reads all of it"},
		{"", 200, "no body"},
		{`{"account":"joe","account":"jane"}`, 400, "two keys"},
	} {
		r := server.request(s.Context(), "POST /login")
		r.Body = io.NopCloser(strings.NewReader(test.body)) // in chunks
		if test.status == 200 {
			r.ContentLength = int64(len(test.body))
		}
		a, err := server.try(r)
		must(s, err, test.why)
		equal(s, test.status, a.StatusCode, test.why)
		if test.status == 200 {
			equal(s, test.body, a.body, test.why)
		}
	}
}
