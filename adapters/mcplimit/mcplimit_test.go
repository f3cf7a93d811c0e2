package mcplimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/adapters/mcplimit"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

func limited(t testing.TB, rules ...middleware.Rule) *middleware.RateLimit {
	t.Helper()
	l, err := middleware.New(middleware.Config{Rules: rules})
	require.NoError(t, err)
	return l
}

// An input is what the tools take.
type input struct {
	Account any  `json:"account,omitempty"`
	Fail    bool `json:"fail,omitempty"`
}

// newServer returns a server with the tools search and export, a prompt and a resource. Each tool runs handle first.
func newServer(handle func(context.Context), receiving ...mcp.Middleware) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ServerOptions{
		CompletionHandler: func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{}}}, nil
		},
	})
	for _, name := range []string{"search", "export"} {
		mcp.AddTool(s, &mcp.Tool{Name: name}, func(ctx context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
			if handle != nil {
				handle(ctx)
			}
			if in.Fail {
				return nil, nil, errors.New("no such account")
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "found"}}}, nil, nil
		})
	}
	s.AddPrompt(&mcp.Prompt{Name: "hello"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{}, nil
	})
	s.AddResource(&mcp.Resource{Name: "it", URI: "file:///it"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "file:///it", Text: "it"}}}, nil
	})
	s.AddReceivingMiddleware(receiving...)
	return s
}

// connect returns a client of s in this process.
func connect(t testing.TB, s *mcp.Server) *mcp.ClientSession {
	t.Helper()
	here, there := mcp.NewInMemoryTransports()
	server, err := s.Connect(t.Context(), there, nil)
	require.NoError(t, err)
	client, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), here, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, client.Close())
		_ = server.Wait()
	})
	return client
}

// call returns the text of a tool's result, or the error.
func call(t testing.TB, c *mcp.ClientSession, tool string, in map[string]any) string {
	t.Helper()
	result, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: in})
	if err != nil {
		return err.Error()
	}
	return result.Content[0].(*mcp.TextContent).Text
}

func TestARefusedToolCallIsAResultThatTheModelReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, newServer(nil, mcplimit.New(limited(t,
			middleware.Rule{Name: "tools", Key: keyfunc.Global, Limit: limiter.Limit{Events: 1, Per: 12 * time.Second, Algorithm: limiter.TokenBucket}}))))
		require.Equal(t, "found", call(t, c, "search", nil))
		result, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "search"})
		require.NoError(t, err)
		require.True(t, result.IsError)
		require.Equal(t, "Too many requests. Try again in 12 seconds.", result.Content[0].(*mcp.TextContent).Text)
		time.Sleep(12 * time.Second)
		require.Equal(t, "found", call(t, c, "search", nil))
	})
}

func TestOtherRefusedMethodsAreErrorsOfJSONRPC(t *testing.T) {
	for name, ask := range map[string]func(context.Context, *mcp.ClientSession) error{
		"resources/read": func(ctx context.Context, c *mcp.ClientSession) error {
			_, err := c.ReadResource(ctx, &mcp.ReadResourceParams{URI: "file:///it"})
			return err
		},
		"prompts/get": func(ctx context.Context, c *mcp.ClientSession) error {
			_, err := c.GetPrompt(ctx, &mcp.GetPromptParams{Name: "hello"})
			return err
		},
		"completion/complete": func(ctx context.Context, c *mcp.ClientSession) error {
			_, err := c.Complete(ctx, &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "hello"},
				Argument: mcp.CompleteParamsArgument{Name: "a", Value: "b"}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, newServer(nil, mcplimit.New(limited(t,
				middleware.Rule{Name: "all", Key: keyfunc.Global, Limit: limiter.PerHour(1).With(limiter.SlidingLog)}))))
			require.NoError(t, ask(t.Context(), c))
			var refused *jsonrpc.Error
			require.ErrorAs(t, ask(t.Context(), c), &refused)
			require.EqualValues(t, 429, refused.Code)
			require.Equal(t, "Too many requests. Try again in 60 minutes.", refused.Message)
			require.JSONEq(t, `{"retryAfterMs":3600000,"retryAfter":3600}`, string(refused.Data))
		})
	}
}

func TestOnlyCallsAreLimited(t *testing.T) {
	limits := limited(t, middleware.Rule{Name: "none", Mode: middleware.Deny})
	handler := mcplimit.New(limits)(func(context.Context, string, mcp.Request) (mcp.Result, error) { return nil, nil })
	for method, isLimited := range map[string]bool{
		"tools/call": true, "resources/read": true, "prompts/get": true, "completion/complete": true, "subscriptions/listen": true,
		"initialize": false, "server/discover": false, "ping": false, "notifications/cancelled": false, "tools/list": false,
		"logging/setLevel": false,
	} {
		t.Run(method, func(t *testing.T) {
			result, err := handler(t.Context(), method, &mcp.ListToolsRequest{})
			require.Equal(t, isLimited, result != nil || err != nil)
		})
	}
}

func TestToolsAndArgumentsAreKeys(t *testing.T) {
	once := limiter.PerHour(1).With(limiter.SlidingLog)
	for _, tt := range []struct {
		name      string
		key       keyfunc.Func
		tools     [2]string
		accounts  [2]any
		wantAlike bool
	}{
		{"two tools", keyfunc.Tool, [2]string{"search", "export"}, [2]any{1, 1}, false},
		{"one tool", keyfunc.Tool, [2]string{"search", "search"}, [2]any{1, 2}, true},
		{"two accounts", keyfunc.ToolParam("Account"), [2]string{"search", "search"}, [2]any{"a", "b"}, false},
		{"one account", keyfunc.ToolParam("account"), [2]string{"search", "export"}, [2]any{"ä ", "ä "}, true},
		{"text like base64", keyfunc.ToolParam("account"), [2]string{"search", "search"}, [2]any{"=?base64?YQ==?=", "a"}, false},
		{"a number written twice", keyfunc.ToolParam("account"), [2]string{"search", "search"},
			[2]any{json.RawMessage("42"), json.RawMessage("4.2e1")}, true},
		{"booleans", keyfunc.ToolParam("account"), [2]string{"search", "search"}, [2]any{true, false}, false},
		{"objects are no keys", keyfunc.ToolParam("account"), [2]string{"search", "search"}, [2]any{[]int{1}, map[string]any{}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := connect(t, newServer(nil, mcplimit.New(limited(t, middleware.Rule{Name: "it", Key: tt.key, Limit: once}))))
			require.Equal(t, "found", call(t, c, tt.tools[0], map[string]any{"account": tt.accounts[0]}))
			require.Equal(t, tt.wantAlike, call(t, c, tt.tools[1], map[string]any{"account": tt.accounts[1]}) != "found")
		})
	}
}

func TestAnArgumentInTwoSpellingsIsRefused(t *testing.T) {
	c := connect(t, newServer(nil, mcplimit.New(limited(t,
		middleware.Rule{Name: "account", Key: keyfunc.ToolParam("Account"), Limit: limiter.PerHour(9)}))))
	require.Contains(t, call(t, c, "search", map[string]any{"account": "a", "ACCOUNT": "b"}), "lacks a value that its limits need")
}

func TestARuleThatNeedsAnAddressOrARouteIsAnError(t *testing.T) {
	hour := limiter.PerHour(9)
	deny, err := middleware.New(middleware.Config{Bans: middleware.Bans{Deny: middleware.Route("/admin/*")}})
	require.NoError(t, err)
	byRoute, err := middleware.New(middleware.Config{
		ByRoute: map[string][]middleware.Rule{"POST /mcp": {{Name: "it", Key: keyfunc.User, Limit: hour}}}})
	require.NoError(t, err)
	for name, limits := range map[string]*middleware.RateLimit{
		"IP":        limited(t, middleware.Rule{Name: "it", Key: keyfunc.IP(), Limit: hour}),
		"First":     limited(t, middleware.Rule{Name: "it", Key: keyfunc.First(keyfunc.User, keyfunc.IP()), Limit: hour}),
		"Join":      limited(t, middleware.Rule{Name: "it", Key: keyfunc.Join(keyfunc.Tool, keyfunc.IP()), Limit: hour}),
		"Hash":      limited(t, middleware.Rule{Name: "it", Key: keyfunc.Hash([]byte("0123456789abcdef0123456789abcdef"), keyfunc.IP()), Limit: hour}),
		"Host":      limited(t, middleware.Rule{Name: "it", Key: keyfunc.Host, Limit: hour}),
		"Route":     limited(t, middleware.Rule{Name: "it", Key: keyfunc.Route, Limit: hour}),
		"PathValue": limited(t, middleware.Rule{Name: "it", Key: keyfunc.PathValue("id"), Limit: hour}),
		"without a key 400": limited(t,
			middleware.Rule{Name: "it", Key: keyfunc.Route, NoKey: middleware.NoKeyBadRequest, Limit: hour}),
		"an address of its own": limited(t, middleware.Rule{Name: "it", Limit: hour,
			Key: func(r *http.Request) (string, error) { return "mine:" + r.RemoteAddr, nil }}),
		"Match":   limited(t, middleware.Rule{Name: "it", Match: middleware.Route("POST /mcp"), Key: keyfunc.User, Limit: hour}),
		"Deny":    deny,
		"ByRoute": byRoute,
	} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, newServer(func(context.Context) { t.Error("the tool ran") }, mcplimit.New(limits)))
			answer := call(t, c, "search", map[string]any{})
			require.Contains(t, answer, "mcplimit: ")
			require.Regexp(t, `rule "it"|the route "(POST /mcp|/admin/\*)"`, answer)
		})
	}
}

func TestUsersTiersAndTheirLimitsComeFromTheContext(t *testing.T) {
	limits := limited(t, middleware.Rule{Name: "plan", Key: keyfunc.First(keyfunc.User, keyfunc.IP()),
		Limit: limiter.PerHour(1).With(limiter.SlidingLog),
		Tiers: middleware.Tiers{"premium": limiter.PerHour(2).With(limiter.SlidingLog)}})
	signIn := func(user, tier string, own int) mcp.Middleware {
		return func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
				ctx = middleware.WithTier(keyfunc.WithUser(ctx, user), tier)
				if own > 0 {
					ctx, _ = middleware.WithLimit(ctx, "plan", limiter.PerHour(int64(own)).With(limiter.SlidingLog))
				}
				return next(ctx, method, r)
			}
		}
	}
	for _, tt := range []struct {
		user, tier string
		own, want  int
	}{{"1", "", 0, 1}, {"2", "premium", 0, 2}, {"3", "premium", 3, 3}} {
		t.Run(tt.user, func(t *testing.T) {
			c := connect(t, newServer(nil, signIn(tt.user, tt.tier, tt.own), mcplimit.New(limits)))
			for i := range tt.want + 1 {
				require.Equal(t, i < tt.want, call(t, c, "search", map[string]any{}) == "found", "call %d", i)
			}
		})
	}
}

func TestOverHTTPTheTokenNamesTheUserAndTheBodyTheTool(t *testing.T) {
	s := newServer(nil, mcplimit.New(limited(t,
		middleware.Rule{Name: "tool", Key: keyfunc.Join(keyfunc.User, keyfunc.Tool, keyfunc.Header("X-Team")), Limit: limiter.PerHour(1).With(limiter.SlidingLog)})))
	verify := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: token, Expiration: time.Now().Add(time.Hour)}, nil
	}
	server := httptest.NewServer(auth.RequireBearerToken(verify, nil)(
		mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})))
	defer server.Close()
	post := func(user, team, tool, claimed string) string {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, tool)
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader(body))
		for name, value := range map[string]string{"Authorization": "Bearer " + user, "X-Team": team, "Mcp-Method": "ping", "Mcp-Name": claimed,
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2025-06-18"} {
			r.Header.Set(name, value)
		}
		w, err := server.Client().Do(r)
		require.NoError(t, err)
		defer w.Body.Close()
		var answer struct {
			ID     int
			Result struct{ IsError bool }
		}
		require.NoError(t, json.NewDecoder(w.Body).Decode(&answer))
		require.Equal(t, 200, w.StatusCode)
		require.Equal(t, 7, answer.ID, "the SDK adds the id")
		if answer.Result.IsError {
			return "refused"
		}
		return "found"
	}
	require.Equal(t, "found", post("ann", "red", "search", "search"))
	require.Equal(t, "found", post("bob", "red", "search", "search"), "another user")
	require.Equal(t, "found", post("ann", "blue", "search", "search"), "another field")
	require.Equal(t, "found", post("ann", "red", "export", "export"), "another tool")
	require.Equal(t, "refused", post("ann", "red", "search", "made-up"), "what fields say of the tool is not read")
}

func TestAtOnceHoldsASlotUntilTheCallEnds(t *testing.T) {
	limits := limited(t, middleware.Rule{Name: "busy", Key: keyfunc.Tool, Limit: limiter.AtOnce(1)})
	begun, end := make(chan bool), make(chan bool)
	c := connect(t, newServer(func(context.Context) { begun <- true; <-end }, mcplimit.New(limits)))
	for range 2 {
		done := make(chan string)
		go func() { done <- call(t, c, "search", map[string]any{}) }()
		<-begun
		require.Contains(t, call(t, c, "search", map[string]any{}), "A request is in progress")
		end <- true
		require.Equal(t, "found", <-done)
	}
}

func TestACancelledCallReleasesItsSlot(t *testing.T) {
	limits := limited(t, middleware.Rule{Name: "busy", Key: keyfunc.Tool, Limit: limiter.AtOnce(1)})
	begun, ended := make(chan bool), make(chan bool)
	wait := mcplimit.New(limits)(func(ctx context.Context, _ string, _ mcp.Request) (mcp.Result, error) {
		begun <- true
		<-ctx.Done()
		return nil, ctx.Err()
	})
	for range 2 { // subscriptions/listen is such a call, which lasts until its client leaves
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := wait(ctx, "subscriptions/listen", &mcp.ListToolsRequest{})
			assert.ErrorIs(t, err, context.Canceled)
			ended <- true
		}()
		<-begun
		_, err := wait(t.Context(), "subscriptions/listen", &mcp.ListToolsRequest{})
		require.ErrorContains(t, err, "in progress")
		cancel()
		<-ended
	}
}

func TestAPanicReleasesTheSlot(t *testing.T) {
	limits := limited(t, middleware.Rule{Name: "busy", Key: keyfunc.Tool, Limit: limiter.AtOnce(1)})
	fails := mcplimit.New(limits)(func(context.Context, string, mcp.Request) (mcp.Result, error) { panic("a bug") })
	for range 2 {
		require.PanicsWithValue(t, "a bug", func() {
			_, _ = fails(t.Context(), "tools/call", &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "search"}})
		})
	}
	require.Zero(t, limits.InProgress()[0].Requests)
}

func TestAClientThatLeavesTheQueueIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := limited(t, middleware.Rule{Name: "busy", Key: keyfunc.Global, Limit: limiter.AtOnce(1).Queue(1, time.Minute)})
		end := make(chan bool)
		handler := mcplimit.New(limits)(func(context.Context, string, mcp.Request) (mcp.Result, error) { <-end; return nil, nil })
		ask := func(ctx context.Context) (mcp.Result, error) {
			return handler(ctx, "tools/call", &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "search"}})
		}
		go func() { _, _ = ask(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		go func() { time.Sleep(time.Second); cancel() }()
		_, err := ask(ctx)
		require.ErrorIs(t, err, context.Canceled)
		end <- true
	})
}

func TestCountsGoesByIsError(t *testing.T) {
	for name, tt := range map[string]struct {
		counts middleware.Counts
		handle func(context.Context)
		fail   bool
		want   bool
	}{
		"a result counts as 200":        {middleware.StatusClass(2), nil, false, true},
		"an error does not":             {middleware.StatusClass(2), nil, true, false},
		"an error counts as 500":        {middleware.StatusClass(5), nil, true, true},
		"a handler says what it is":     {middleware.Statuses(401), func(ctx context.Context) { _ = middleware.CountAs(ctx, 401) }, true, true},
		"what it said is all that is":   {middleware.StatusClass(5), func(ctx context.Context) { _ = middleware.CountAs(ctx, 401) }, true, false},
		"a result is not what it lacks": {middleware.Statuses(401), nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, newServer(tt.handle, mcplimit.New(limited(t, middleware.Rule{Name: "it", Key: keyfunc.Global,
				Limit: limiter.PerHour(1).With(limiter.SlidingLog), Counts: tt.counts}))))
			first := call(t, c, "search", map[string]any{"fail": tt.fail})
			again := call(t, c, "search", map[string]any{"fail": tt.fail})
			require.Equal(t, tt.want, first != again, again)
		})
	}
}

func TestAHandlerSettlesWhatACallCost(t *testing.T) {
	limits := limited(t, middleware.Rule{Name: "tokens", Key: keyfunc.Global, Limit: limiter.PerHour(100).With(limiter.SlidingLog),
		Cost: middleware.Reserve(func(*http.Request) int64 { return 60 })})
	c := connect(t, newServer(func(ctx context.Context) { assert.NoError(t, middleware.Settle(ctx, "tokens", 10)) }, mcplimit.New(limits)))
	require.Equal(t, "found", call(t, c, "search", map[string]any{}))
	require.Equal(t, "found", call(t, c, "search", map[string]any{}))
}

func TestARefusalHasTheTextsOfTheRules(t *testing.T) {
	for name, tt := range map[string]struct {
		refusal middleware.Refusal
		want    string
	}{
		"Message": {middleware.Refusal{Message: "Search again in {seconds} s."}, "Search again in 3600 s."},
		"Answer": {middleware.Refusal{Answer: func(w http.ResponseWriter, _ *http.Request, _ middleware.Result) {
			_, _ = w.Write([]byte("Ask sales.\n"))
		}}, "Ask sales."},
		"an empty Answer": {middleware.Refusal{Answer: func(http.ResponseWriter, *http.Request, middleware.Result) {}}, "Too Many Requests"},
	} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, newServer(nil, mcplimit.New(limited(t, middleware.Rule{Name: "it", Key: keyfunc.Global,
				Limit: limiter.PerHour(1).With(limiter.SlidingLog), Refusal: tt.refusal}))))
			call(t, c, "search", map[string]any{})
			require.Equal(t, tt.want, call(t, c, "search", map[string]any{}))
			_, err := c.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "hello"})
			var refused *jsonrpc.Error
			require.ErrorAs(t, err, &refused)
			require.EqualValues(t, 429, refused.Code)
			require.Equal(t, tt.want, refused.Message)
			require.Contains(t, string(refused.Data), `"retryAfterMs":3600000`)
		})
	}
}

func TestNewNeedsLimits(t *testing.T) {
	require.PanicsWithValue(t, "mcplimit: New needs limits", func() { mcplimit.New(nil) })
}

func BenchmarkCall(b *testing.B) {
	limits := limited(b, middleware.Rule{Name: "tool", Key: keyfunc.Join(keyfunc.User, keyfunc.Tool), NoKey: middleware.NoKeySkip, Limit: limiter.PerSecond(10_000_000)})
	next := func(context.Context, string, mcp.Request) (mcp.Result, error) { return nil, nil }
	call := &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "search", Arguments: json.RawMessage(`{"query":"weirs"}`)}}
	ctx := keyfunc.WithUser(b.Context(), "42")
	b.Run("middleware", func(b *testing.B) {
		handler := mcplimit.New(limits)(next)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := handler(ctx, "tools/call", call); err != nil {
				b.Fatal(err)
			}
		}
	})
	for name, receiving := range map[string][]mcp.Middleware{"in memory, limited": {mcplimit.New(limits)}, "in memory": nil} {
		b.Run(name, func(b *testing.B) {
			c := connect(b, newServer(nil, receiving...))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "search", Arguments: map[string]any{}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
