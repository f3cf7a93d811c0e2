package rules_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/middleware/rules"
)

func TestAnEndpointRefusesEarlierVersionsOfMCP(t *testing.T) {
	for name, endpoint := range map[string]string{
		"a rule of its own":  `[{limit: 3/h, key: [user, tool]}, {mcp: 2026-07-28}]`,
		"one rule":           `{mcp: 2026-07-28, limit: 3/h, key: [user, tool]}`,
		"with a name":        `[{name: version, mcp: "2026-07-28", mode: enforce}, {limit: 3/h, key: [user, tool]}]`,
		"before a key's 401": `[{limit: 3/h, key: user, no_key: unauthorized}, {mcp: 2026-07-28, limit: 9/h, key: [user, tool]}]`,
	} {
		phase.Run(t, name, func(t *testing.T) {
			s := openText(t, "version: 1\nproxies: {trusted: [127.0.0.1]}\nendpoints: {\"POST /mcp\": "+endpoint+"}\ndefault: 1000/h\n")
			ask := func(user, version string) *http.Response {
				return s.ask(call{route: "POST /mcp", user: user, header: map[string]string{
					"Mcp-Protocol-Version": version, "Mcp-Method": "tools/call", "Mcp-Name": "t",
				}})
			}
			for range 5 {
				answer := ask("", "2025-11-25")
				body, err := io.ReadAll(answer.Body)
				require.NoError(t, err)
				assert.Equal(t, http.StatusBadRequest, answer.StatusCode)
				assert.JSONEq(t, `{"jsonrpc":"2.0","error":{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28"],"requested":"2025-11-25"}}}`, string(body))
			}
			for i := range 4 {
				assert.Equal(t, []int{200, 200, 200, 429}[i], ask("ann", "2026-07-28").StatusCode)
			}
			assert.Equal(t, http.StatusOK, s.status(call{route: "POST /other"}))
		})
	}
}

func TestACheckOfTheVersionOfMCPIsExplained(t *testing.T) {
	const text = "version: 1\nproxies: {}\nendpoints: {\"POST /mcp\": {mcp: 2026-07-28, limit: 3/h}}\n"
	r := parse(t, text, rules.Options{})
	e, err := r.Explain(rules.Request{Method: "POST", Path: "/mcp"})
	require.NoError(t, err)
	last := e.Steps[len(e.Steps)-1]
	assert.Equal(t, "no version of MCP from 2026-07-28 on: answered 400", last.Says)
	assert.Equal(t, []any{3, "POST /mcp mcp"}, []any{last.Line, last.Rule})
	e, err = r.Explain(rules.Request{Method: "POST", Path: "/mcp", Header: http.Header{"Mcp-Protocol-Version": {"2026-07-28"}}})
	require.NoError(t, err)
	assert.Equal(t, `3/1h for "192.0.2.1"`, e.Steps[len(e.Steps)-1].Says)
	assert.Contains(t, r.Needs(), rules.Need{Rule: "POST /mcp mcp", Of: "header:Mcp-Protocol-Version"})
	_, spelled := r.ReadsField("Mcp_Protocol_Version")
	assert.True(t, spelled)
	changes := rules.Diff(r, parse(t, "version: 1\nproxies: {}\nendpoints: {\"POST /mcp\": {mcp: 2026-08-28, limit: 3/h}}\n", rules.Options{}))
	assert.Len(t, changes, 1)
	assert.Contains(t, changes[0].String(), "mcp 2026-07-28 → 2026-08-28")
}

func TestARuleThatIsOffChecksNoVersionOfMCP(t *testing.T) {
	r := parse(t, "version: 1\nproxies: {}\nendpoints: {\"POST /mcp\": [{mcp: 2026-07-28, limit: 3/h, mode: off}, {limit: 9/h, key: user}]}\n", rules.Options{})
	assert.Len(t, r.Config().ByRoute["POST /mcp"], 1)
}
