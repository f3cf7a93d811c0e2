package keyfunc

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
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
	if err := isToolCall(r); err != nil {
		return "", err
	}
	name, err := toolField(r, "Mcp-Name", errTwoTools, errToolName)
	if err != nil {
		return "", err
	}
	return Shared.mark() + toolTag + name, nil
}

// ToolParam is an argument of the tool call by MCP: "param:Account:acme" for ToolParam("Account"). Clients copy an
// argument into the field Mcp-Param-Account if the tool's schema has "x-mcp-header": "Account" beside it (MCP of
// 2026-07-28), in plain text or in base64, as a tool's name. Of tools without that mark no server checks the field, and
// anybody can write anything into it: match only tools that have it.
//
// A whole number is one key however it is written: 42, 42.0 and 4.2e1. Other numbers, and fields that occur twice or can
// be read in more than one way, are [ErrAmbiguous]. All clients share the counter of a value; use Join(User,
// ToolParam("Account")) for one per user. Requests that call no tool, or lack the argument, have no key.
//
// ToolParam panics if name is not the name of a header.
func ToolParam(name string) Func { return must(newToolParam(name)) }

func newToolParam(name string) (Func, error) {
	field, err := canonicalHeader(ParamField + name)
	if name == "" || err != nil {
		return nil, fmt.Errorf("keyfunc: ToolParam(%q): %w", name, errNoParamName)
	}
	prefix := paramTag + strings.TrimPrefix(field, ParamField) + ":"
	var errTwo error = ambiguous(field + " twice")
	var errUnclear error = ambiguous("a " + field + " that can be read in more than one way")
	return func(r *http.Request) (string, error) {
		if err := isToolCall(r); err != nil {
			return "", err
		}
		value, err := toolField(r, field, errTwo, errUnclear)
		if err != nil {
			return "", err
		}
		if value, err = wholeNumber(value, errUnclear); err != nil {
			return "", err
		}
		return prefix + value, nil
	}, nil
}

// ParamField is what the header field of an argument of a tool call begins with. See [ToolParam].
const ParamField = "Mcp-Param-"

var errNoParamName = errors.New("it is not the name of a parameter in x-mcp-header")

// wholeNumber returns the digits of text that is a whole number, and other text as it is. Servers compare numbers, as
// 64-bit floats, with what the body says, so that a client may write one number in many ways.
func wholeNumber(text string, errUnclear error) (string, error) {
	number, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	switch isRange := errors.Is(err, strconv.ErrRange); {
	case err != nil && !isRange, math.IsNaN(number), math.IsInf(number, 0) && !isRange: // JSON has no NaN: it is a word
		return text, nil
	case isRange, number != math.Trunc(number):
		return "", errUnclear
	}
	return strconv.FormatFloat(number+0, 'f', -1, 64), nil // + 0: -0 is 0
}

// isToolCall returns nil for a request that calls a tool, and ErrNoKey for another one.
func isToolCall(r *http.Request) error {
	methods := r.Header["Mcp-Method"]
	if len(methods) > 1 {
		return errTwoTools
	}
	method, err := only(methods, errTwoTools)
	switch {
	case err != nil:
		return err
	case strings.Contains(method, ","): // as some proxies join two fields
		return errTwoTools
	case strings.HasPrefix(method, "=?"), method != toolCall && strings.EqualFold(method, toolCall):
		return errToolName // a server that reads it as tools/call would find the tool
	case method != toolCall:
		return ErrNoKey
	}
	return nil
}

const toolCall = "tools/call"

var (
	errTwoTools error = ambiguous("an Mcp-Method or Mcp-Name twice")
	errToolName error = ambiguous("an Mcp-Method or Mcp-Name that can be read in more than one way")
)

// toolField returns the decoded text of a field. Plain text that is written in base64 is the same text.
func toolField(r *http.Request, name string, errTwo, errUnclear error) (string, error) {
	if len(r.Header[name]) > 1 {
		return "", errTwo
	}
	field, err := only(r.Header[name], errTwo)
	if err != nil {
		return "", err
	}
	text, isEncoded := strings.CutPrefix(field, "=?base64?")
	if !isEncoded {
		isPlain := !strings.ContainsFunc(field, func(c rune) bool { return c < ' ' || c > '~' })
		if !isPlain || strings.HasPrefix(field, "=?") { // =?BASE64?, which some programs decode
			return "", errUnclear
		}
		return field, nil
	}
	text, isClosed := strings.CutSuffix(text, "?=")
	decoded, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || !isClosed || len(decoded) == 0 || !utf8.Valid(decoded) {
		return "", errUnclear
	}
	return string(decoded), nil
}
