package keyfunc

import (
	"encoding/base64"
	"net/http"
	"strings"
	"unicode/utf8"
)

// Tool is the tool that an agent calls by MCP: "tool:search". It is one counter for all clients; use
// Join(User, Tool) for one per user and tool.
//
// The fields Mcp-Method and Mcp-Name say which tool is called (MCP of 2026-07-28), and the server must refuse a
// request whose body differs. A name may be written in base64, "=?base64?c2VhcmNo?=", which is the same key.
// Requests of other methods than tools/call, and requests without a name, have no key. Fields that occur twice,
// and names that programs may read differently, are [ErrAmbiguous].
//
// A client can make up names, each of which is a new key. If the server accepts earlier versions of MCP, a client can
// leave the fields out. Put a rule on the client beside it.
func Tool(r *http.Request) (string, error) {
	methods, names := r.Header["Mcp-Method"], r.Header["Mcp-Name"]
	if len(methods) > 1 || len(names) > 1 {
		return "", errTwoTools
	}
	method, err := only(methods, errTwoTools)
	switch {
	case err != nil:
		return "", err
	case strings.Contains(method, ","): // as some proxies join two fields
		return "", errTwoTools
	case strings.HasPrefix(method, "=?"), method != toolCall && strings.EqualFold(method, toolCall):
		return "", errToolName // a server that reads it as tools/call would find the tool
	case method != toolCall:
		return "", ErrNoKey
	}
	name, err := only(names, errTwoTools)
	if err != nil {
		return "", err
	}
	if name, err = decodeTool(name); err != nil {
		return "", err
	}
	return Shared.mark() + toolTag + name, nil
}

const toolCall = "tools/call"

var (
	errTwoTools error = ambiguous("an Mcp-Method or Mcp-Name twice")
	errToolName error = ambiguous("an Mcp-Method or Mcp-Name that can be read in more than one way")
)

// decodeTool returns the name that a field has. A name in base64 that is plain text already is the same name.
func decodeTool(field string) (string, error) {
	text, isEncoded := strings.CutPrefix(field, "=?base64?")
	if !isEncoded {
		isPlain := !strings.ContainsFunc(field, func(c rune) bool { return c < ' ' || c > '~' })
		if !isPlain || strings.HasPrefix(field, "=?") { // =?BASE64?, which some programs decode
			return "", errToolName
		}
		return field, nil
	}
	text, isClosed := strings.CutSuffix(text, "?=")
	name, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || !isClosed || len(name) == 0 || !utf8.Valid(name) {
		return "", errToolName
	}
	return string(name), nil
}
