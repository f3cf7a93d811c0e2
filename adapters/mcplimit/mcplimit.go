// Package mcplimit is Weir's middleware for servers of MCP that use the official SDK:
//
//	server.AddReceivingMiddleware(mcplimit.New(limits))
//
// It reads tools and arguments from the calls, so it limits clients of every version of MCP, over HTTP and over stdio:
//
//	limits, err := weir.New(weir.Config{Rules: []weir.Rule{
//		{Name: "user", Key: keyfunc.User, Limit: weir.All(weir.PerMinute(120), weir.AtOnce(10))},
//		{Name: "tool", Key: keyfunc.Join(keyfunc.User, keyfunc.Tool), NoKey: weir.NoKeySkip, Limit: weir.PerMinute(30)},
//	}})
//
// # What is limited
//
// The methods tools/call, resources/read, prompts/get, completion/complete and subscriptions/listen are limited. Other
// methods never are, such as server/discover, initialize, ping, lists and notifications. A call that asks its client for
// input, and is then sent again, is two calls.
//
// # Keys
//
// To rules a call is an [http.Request]. Its context is the call's, and its Header has the fields of the HTTP request, if
// there is one. Mcp-Method and Mcp-Name are set from the call, for [keyfunc.Tool] and for a Match. So is Mcp-Param-NAME, for
// [keyfunc.ToolParam], from the argument NAME, whatever x-mcp-header calls it: give both the same name. Case does not
// matter. Only texts, numbers and booleans are set.
//
// [keyfunc.User] is the UserID of the call's TokenInfo, or else the user that a middleware in front has set. Over stdio
// there is no TokenInfo, and calls without a key share a counter. A middleware in front also sets tiers and the limits
// of customers:
//
//	server.AddReceivingMiddleware(signIn, mcplimit.New(limits)) // signIn calls weir.WithUser and weir.WithTier
//
// A call has no address, route, path, query or body. If the rules name a route, or a rule's key needs the address or the
// route, every call that meets the rule fails with an error that says so. A [middleware.MatchFunc] and bans by address do
// not see an address: use them in a limiter around the HTTP handler.
//
// # Refusals
//
// A refused tools/call has a result with IsError, which the model reads: "Too many requests. Try again in 12 seconds."
// Other methods have an error of JSON-RPC with the code 429 and data, {"retryAfterMs":12000,"retryAfter":12}.
// [middleware.Refusal] changes the texts. Over HTTP the status is 200 in both cases.
//
// # Outcomes
//
// For [middleware.Counts] a call has the status 200, or 500 if it ends with an error or with IsError. A handler says
// something else with [middleware.CountAs], and the real cost with [middleware.Settle]. A slot of [limiter.AtOnce] is
// held until the handler returns.
package mcplimit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

const callTool = "tools/call"

var isLimited = map[string]bool{
	callTool:               true,
	"resources/read":       true,
	"prompts/get":          true,
	"completion/complete":  true,
	"subscriptions/listen": true,
}

// New returns a middleware for the method AddReceivingMiddleware of an [mcp.Server].
func New(limits *middleware.RateLimit) mcp.Middleware {
	if limits == nil {
		panic("mcplimit: New needs limits")
	}
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, call mcp.Request) (result mcp.Result, err error) {
			if !isLimited[method] {
				return next(ctx, method, call)
			}
			r := request(ctx, method, call)
			if err := check(limits, r); err != nil {
				return nil, err
			}
			w := &answer{header: http.Header{}}
			entered := limits.Enter(w, r, nil)
			if entered == nil {
				return w.refuse(ctx, method)
			}
			status := http.StatusInternalServerError // of a panic
			defer func() { entered.End(status) }()
			result, err = next(entered.Request.Context(), method, call)
			if tool, ok := result.(*mcp.CallToolResult); err == nil && !(ok && tool != nil && tool.IsError) {
				status = http.StatusOK
			}
			return result, err
		}
	}
}

// request returns the call as rules see it.
func request(ctx context.Context, method string, call mcp.Request) *http.Request {
	h := http.Header{}
	extra := call.GetExtra()
	if extra != nil {
		maps.Copy(h, extra.Header)
	}
	maps.DeleteFunc(h, func(name string, _ []string) bool {
		return strings.HasPrefix(name, "Mcp-") || name == "Connect-Protocol-Version" // the body says what is called
	})
	h["Accept"], h["Content-Type"] = []string{"application/json"}, []string{"application/json"} // an answer of JSON-RPC
	h["Mcp-Method"] = []string{method}
	switch params := call.GetParams().(type) {
	case *mcp.CallToolParamsRaw:
		if params != nil {
			h["Mcp-Name"] = []string{encode(params.Name)}
			setParams(h, params.Arguments)
		}
	case *mcp.ReadResourceParams:
		if params != nil {
			h["Mcp-Name"] = []string{encode(params.URI)}
		}
	case *mcp.GetPromptParams:
		if params != nil {
			h["Mcp-Name"] = []string{encode(params.Name)}
		}
	}
	if extra != nil && extra.TokenInfo != nil && extra.TokenInfo.UserID != "" {
		ctx = keyfunc.WithUser(ctx, extra.TokenInfo.UserID) // of this call; ctx may have the user who began the session
	}
	r := http.Request{Method: http.MethodPost, URL: &url.URL{Path: "/"}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: http.NoBody}
	return r.WithContext(ctx)
}

// setParams sets the fields of arguments. Names that differ in case share a field, which is then ambiguous.
func setParams(h http.Header, arguments json.RawMessage) {
	var all map[string]json.RawMessage
	if json.Unmarshal(arguments, &all) != nil {
		return // the SDK refuses the call, or there are none
	}
	for name, value := range all {
		switch text := ""; value[0] {
		case '{', '[', 'n': // an object, an array, null
		case '"':
			_ = json.Unmarshal(value, &text)
			h.Add(keyfunc.ParamField+name, encode(text))
		default:
			h.Add(keyfunc.ParamField+name, string(value))
		}
	}
}

// encode returns text as clients of MCP write it into a field: in base64 if it is not plain.
func encode(text string) string {
	isPlain := !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' })
	if isPlain && !strings.HasPrefix(text, "=?") && strings.Trim(text, " ") == text {
		return text
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
}

// check returns an error if a rule needs what a call does not have: if the call would be counted in another way if it
// had an address, a host, a route and a parameter of the route.
func check(limits *middleware.RateLimit, r *http.Request) error {
	if routes := limits.Routes(); len(routes) > 0 {
		return unfit("the rules name the route %q, and a call by MCP has no route", routes[0])
	}
	other := r.WithContext(r.Context())
	other.RemoteAddr, other.Host, other.Pattern = "192.0.2.1:1", "mcp.invalid", "/mcp"
	other.URL = &url.URL{Path: "//"} // not plain, so that WithPathValues keeps the values
	keyfunc.WithPathValues(other, func(string) (string, bool) { return "mcp", true })
	is, would := limits.Explain(r), limits.Explain(other)
	if is.Exempt != would.Exempt || is.Status != would.Status || len(is.Rules) != len(would.Rules) {
		return unfit("rule %q goes by the client's address, the host or the route, and a call by MCP has none of them",
			cmp.Or(is.Keyless, is.Denied, would.Keyless, would.Denied, "Config"))
	}
	for i, rule := range is.Rules {
		if rule.Rule != would.Rules[i].Rule || rule.Key != would.Rules[i].Key || rule.Class != would.Rules[i].Class {
			return unfit("rule %q counts by the client's address, the host or the route, and a call by MCP has none of them: "+
				"use keyfunc.User", rule.Rule.Name)
		}
	}
	return nil
}

func unfit(format string, about any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf("mcplimit: "+format, about)}
}

// An answer takes Weir's answer to a refused call.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = cmp.Or(a.status, status) }
func (a *answer) Write(b []byte) (int, error) { a.WriteHeader(http.StatusOK); return a.body.Write(b) }

// refuse returns the answer as one of MCP. A Refusal.Answer may have written another text than an error of JSON-RPC.
func (a *answer) refuse(ctx context.Context, method string) (mcp.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err // nobody waits
	}
	var written struct{ Error *jsonrpc.Error }
	if json.Unmarshal(a.body.Bytes(), &written) != nil || written.Error == nil || written.Error.Message == "" {
		written.Error = &jsonrpc.Error{Code: int64(a.status),
			Message: cmp.Or(strings.TrimSpace(a.body.String()), http.StatusText(a.status))}
		if seconds, err := strconv.Atoi(a.header.Get("Retry-After")); err == nil {
			written.Error.Data = fmt.Appendf(nil, `{"retryAfterMs":%d,"retryAfter":%d}`, 1000*seconds, seconds)
		}
	}
	if method == callTool {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: written.Error.Message}}}, nil
	}
	return nil, written.Error
}
