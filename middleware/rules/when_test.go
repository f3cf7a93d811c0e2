package rules_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules"
)

func TestAStarInAWhenStandsForAnyText(t *testing.T) {
	for value, agents := range map[string]map[string]bool{
		"*bot*":   {"Googlebot/2.1": true, "BOT": true, "bingBot": true, "curl/8": false, "": false, "bo t": false},
		"curl/*":  {"curl/8.1": true, "CURL/": true, "libcurl/8": false, "curl": false},
		"*/1.0":   {"a/1.0": true, "/1.0": true, "a/1.0.1": false},
		"a*b*b":   {"abb": true, "aXbYb": true, "ab": false, "abbc": false},
		"*a*ab*":  {"aab": true, "ab": false},
		"*":       {"": true, "x": true},
		`\\*/\\*`: {"*/*": true, "text/html": false},
		`\\**`:    {"*/*": true, "text/html": false},
		"Exact":   {"Exact": true, "exact": false},
	} {
		r := parse(t, `{version: 1, global: {limit: 9/s, key: ip}, default: {mode: deny, when: {header: {User-Agent: "`+value+`"}}}}`, rules.Options{})
		s := open(t, r)
		for agent, matches := range agents {
			want := map[bool]int{true: http.StatusForbidden, false: http.StatusOK}[matches]
			got := s.status(call{from: fmt.Sprintf("192.0.2.%d:1", len(agent)), header: map[string]string{"User-Agent": agent}})
			assert.Equal(t, want, got, "%q for %q", value, agent)
		}
		assert.Equal(t, http.StatusOK, s.status(call{from: "192.0.2.99:1"}), "%q without the field", value)
	}
}

func TestAWhenSaysWhichRequestsARuleIsFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := parse(t, readText(t, "testdata/explain/when.yaml"), rules.Options{})
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
		for _, query := range []string{"q=x&debug=1#a", "q=x&debug[]=1", "q=x;debug=1", "q[]=x&debug=1%00"} {
			assert.Equal(t, 429, send(query), "some service finds it in %s", query)
		}
		assert.Equal(t, http.StatusForbidden, send("", "X-Old", ""))
		assert.Equal(t, []rules.Need{{"beta", "header:X-App"}, {"old", "header:X-Old"}, {"beta", "header:X-Plan"}, {"debug", "query:debug"}, {"debug", "query:q"}, {"debug", "status"}}, r.Needs())
	})
}
