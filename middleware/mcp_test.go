package middleware_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// agents has the rules of an endpoint of MCP.
func agents(oldest string) middleware.Config {
	return middleware.Config{Logger: quiet, ByRoute: map[string][]middleware.Rule{"POST /mcp": {
		middleware.MCPVersion(oldest), {Name: "tool", Key: keyfunc.Tool, Limit: limiter.PerMinute(1)},
	}}}
}

func TestEarlierVersionsOfMCPAreRefused(t *testing.T) {
	long := strings.Repeat("9", 200)
	for name, c := range map[string]struct {
		versions []string
		passes   bool
	}{
		"that one":       {[]string{"2026-07-28"}, true},
		"a later one":    {[]string{"2027-01-01"}, true},
		"an earlier one": {[]string{"2025-11-25"}, false},
		"the day before": {[]string{"2026-07-27"}, false},
		"none":           {nil, false},
		"empty":          {[]string{""}, false},
		"twice":          {[]string{"2026-07-28", "2026-07-28"}, false},
		"two in one":     {[]string{"2026-07-28, 2025-11-25"}, false},
		"a draft":        {[]string{"2026-07-28-draft"}, false},
		"no date":        {[]string{"2026-07-2z"}, false},
		"nine digits":    {[]string{"99999-1-1"}, false},
		"space":          {[]string{" 2026-07-28"}, false},
		"long":           {[]string{long}, false},
		"not UTF-8":      {[]string{"\"\xff<"}, false},
	} {
		phase.Run(t, name, func(t *testing.T) {
			h := limited(t, agents("2026-07-28")).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
			r.Pattern = "POST /mcp"
			r.Header["Mcp-Protocol-Version"] = c.versions
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if c.passes {
				assert.Equal(t, http.StatusOK, w.Code)
				return
			}
			assert.Equal(t, http.StatusBadRequest, w.Code)
			assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
			var got map[string]any
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got), w.Body.String())
			requested := strings.ToValidUTF8(strings.Join(append(c.versions, "")[:1], ""), "\ufffd")
			assert.Equal(t, map[string]any{"jsonrpc": "2.0", "error": map[string]any{
				"code": -32022.0, "message": "Unsupported protocol version",
				"data": map[string]any{"supported": []any{"2026-07-28"}, "requested": requested[:min(len(requested), 64)]},
			}}, got, "there is no id")
		})
	}
}

// A client that leaves the fields out meets no rule by tool.
func TestACallWithoutFieldsDoesNotEscapeARuleByTool(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := limited(t, agents("2026-07-28"))
		h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		statuses := map[int]int{}
		for i := range 10 {
			r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
			r.Pattern = "POST /mcp"
			if i%2 == 0 {
				r.Header = http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"t"}}
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			statuses[w.Code]++
		}
		assert.Equal(t, map[int]int{200: 1, 429: 4, 400: 5}, statuses)
		r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
		r.Pattern = "POST /mcp"
		assert.Equal(t, middleware.Explanation{Denied: "mcp-version", Status: 400}, l.Explain(r))
	})
}

func TestAVersionOfMCPIsADateOfAVersionThatIsChecked(t *testing.T) {
	for _, version := range []string{"", "2025-11-25", "2026-07-27", "latest", "2026-7-28", "2026-07-28T00:00:00Z"} {
		_, err := middleware.New(agents(version))
		assert.ErrorContains(t, err, `"mcp-version": Match: "`+version+`" is not a version of MCP from 2026-07-28 on`)
	}
}
