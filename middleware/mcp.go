package middleware

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// MCPVersion returns a rule with Deny, named "mcp-version", that refuses requests of a version of MCP before oldest, a
// date such as "2026-07-28", or of none: MCP-Protocol-Version must occur once and be that date or a later one. Put it
// first into the rules of ByRoute["POST /mcp"] if rules go by other fields of MCP, such as Mcp-Method in
// [keyfunc.Tool]: servers check these fields only in requests of 2026-07-28 or later, which oldest must be. The answer
// is 400 with the error -32022 of JSON-RPC, and with the versions "supported" and "requested", so that clients do not
// fall back to an earlier version as they do after a plain 400. Do not put it in front of a server that lacks oldest:
// see adapters/mcplimit.
//
// [keyfunc.Tool]: https://pkg.go.dev/github.com/weirgo/weir/keyfunc#Tool
func MCPVersion(oldest string) Rule {
	return Rule{Name: "mcp-version", Mode: Deny, Match: beforeMCP(oldest), Refusal: Refusal{
		Status: http.StatusBadRequest,
		Answer: func(w http.ResponseWriter, r *http.Request, result Result) {
			supported, _ := json.Marshal([]string{oldest})
			requested, _ := json.Marshal(fmt.Sprintf("%.64s", r.Header.Get(mcpVersion)))
			w.Header()["Content-Type"] = []string{"application/json"}
			w.WriteHeader(result.Status)
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","error":{"code":-32022,"message":"Unsupported protocol version",`+
				`"data":{"supported":%s,"requested":%s}}}`, supported, requested)
		},
	}}
}

const mcpVersion = "Mcp-Protocol-Version"

// checkedMCP is the first version of MCP whose servers compare the fields with the body.
const checkedMCP = "2026-07-28"

// A beforeMCP matches requests of an earlier version of MCP than this date.
type beforeMCP string

// Matches implements Match. A text that is no date may be one of any version.
func (oldest beforeMCP) Matches(r *http.Request) bool {
	given := r.Header[mcpVersion]
	return len(given) != 1 || !isDate(given[0]) || given[0] < string(oldest)
}

// WrongPattern returns what is wrong with the date; see [route.Wrong].
func (oldest beforeMCP) WrongPattern() error {
	if !isDate(string(oldest)) || oldest < checkedMCP {
		return fmt.Errorf("%.64q is not a version of MCP from %s on, the first whose servers check the fields", string(oldest), checkedMCP)
	}
	return nil
}

func isDate(text string) bool {
	_, err := time.Parse(time.DateOnly, text)
	return err == nil
}
