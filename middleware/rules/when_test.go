package rules_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules"
)

const whenFile = `version: 1
proxies: {trusted: [127.0.0.1]}
endpoints:
  "GET /search":
    - 100/h sliding_log
    - {name: beta, limit: 2/h sliding_log, when: {header: {x-plan: beta, X-App: "*"}}}
    - {name: debug, limit: 3/h sliding_log, counts: 200, when: {charge: after, query: {debug: "1", q: "*"}}}
    - {name: old, mode: deny, when: {header: {X-Old: "*"}}}
`

func TestAWhenSaysWhichRequestsARuleIsFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := parse(t, whenFile, rules.Options{})
		require.Empty(t, r.Warnings())
		s := open(t, r)
		send := func(query string, headers ...string) int {
			request := call{route: "GET /search"}.request()
			request.URL.RawQuery = query
			for i := 0; i < len(headers); i += 2 {
				request.Header.Add(headers[i], headers[i+1])
			}
			w := httptest.NewRecorder()
			s.limits.Handler(okay).ServeHTTP(w, request)
			return w.Code
		}
		beta := []string{"X-Plan", "alpha", "X-Plan", "beta", "X-App", "7"}
		assert.Equal(t, []int{200, 200, 429}, []int{send("", beta...), send("debug=1", beta...), send("", beta...)}, "one of several lines is enough")
		for _, other := range [][]string{{}, {"X-Plan", "beta"}, {"X-Plan", "Beta", "X-App", "7"}, {"X-App", "7"}} {
			assert.Equal(t, 200, send("", other...), other)
		}
		for range 3 {
			assert.Equal(t, 200, send("q=&debug=0&debug=%31"))
		}
		assert.Equal(t, 429, send("q=x&debug=1"))
		for _, query := range []string{"debug=1", "q=x", "q=x&debug=2", "q=x&Debug=1"} {
			assert.Equal(t, 200, send(query), query)
		}
		assert.Equal(t, http.StatusForbidden, send("", "X-Old", ""))
	})
}

func TestAWhenIsExplainedAndNeeded(t *testing.T) {
	r := parse(t, whenFile, rules.Options{})
	says := func(q rules.Request) (all []string) {
		q.Path = "/search"
		e, err := r.Explain(q)
		require.NoError(t, err)
		for _, step := range e.Steps[2:] {
			all = append(all, step.Rule+": "+step.Says)
		}
		return all
	}
	plain := `GET /search: 100/1h sliding-log for "192.0.2.1"`
	assert.Equal(t, []string{plain}, says(rules.Request{Query: "debug=1"}))
	assert.Equal(t, []string{plain, `beta: 2/1h sliding-log for "192.0.2.1"; when.header: X-App: *, x-plan: beta`},
		says(rules.Request{Header: http.Header{"X-Plan": {"beta"}, "X-App": {"1"}}}))
	assert.Equal(t, []string{plain, `debug: 3/1h sliding-log for "192.0.2.1"; counts: 200; when.charge: after; when.query: debug: 1, q: *`},
		says(rules.Request{Query: "debug=1&q="}))
	assert.Equal(t, []string{"old: every request is denied: answered 403"}, says(rules.Request{Header: http.Header{"X-Old": {"1"}}}))
	assert.Equal(t, []rules.Need{{"beta", "header:X-App"}, {"old", "header:X-Old"}, {"beta", "header:X-Plan"}, {"debug", "query:debug"}, {"debug", "query:q"}, {"debug", "status"}}, r.Needs())
}
