package middleware_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

func TestTheBodyIsWhatTheClientAskedFor(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		var rules []middleware.Rule
		for i, events := range []int64{1, 2, 1, 1, 2, 1, 1} { // more than a refusal has room for
			rules = append(rules, middleware.Rule{Name: fmt.Sprint(i), Key: keyfunc.Global, Limit: logOf(events, time.Hour)})
		}
		h := limited(t, middleware.Config{Rules: rules}).Handler(ok)
		serve(h, request())
		for accept, want := range map[string][2]string{
			"application/problem+json": {"application/problem+json", `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
				`"title":"Quota Exceeded","status":429,"detail":"Too many requests. Try again in 60 minutes.",` +
				`"violated-policies":["0","2","3","5","6"]}`},
			"*/*": {"application/json", `{"error":"rate_limit_exceeded",` +
				`"message":"Too many requests. Try again in 60 minutes.","retry_after":3600}`},
			"text/html;q=0.2, text/plain": {"text/plain; charset=utf-8", "Too many requests. Try again in 60 minutes.\n"},
		} {
			w := serve(h, request(header("Accept", accept)))
			assert.Equal(t, want, [2]string{w.Header().Get("Content-Type"), w.Body.String()}, accept)
		}
	})
}

func TestAgentsGetAnErrorOfJSONRPC(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		day := logOf(1, time.Hour)
		config := middleware.Config{Rules: []middleware.Rule{{Name: "day", Key: keyfunc.Global, Limit: day}}}
		h := limited(t, config).Handler(ok)
		serve(h, request())
		const rpc = `{"jsonrpc":"2.0","error":{"code":429,` +
			`"message":"Too many requests. Try again in 60 minutes.","data":{"retryAfterMs":3600000,"retryAfter":3600}}}`
		held := held{make(chan struct{})}
		for accept, want := range map[string]string{
			"application/json, text/event-stream": rpc,
			"*/*":                                 rpc,
			"text/plain":                          "Too many requests. Try again in 60 minutes.\n",
		} {
			r := request(header("Accept", accept), header("Mcp-Method", "tools/call"))
			r.Body, r.ProtoMajor = held, 2 // the client holds its body back
			w := serve(h, r)
			assert.Equal(t, http.StatusTooManyRequests, w.Code)
			assert.Equal(t, "3600", w.Header().Get("Retry-After"))
			assert.Equal(t, want, w.Body.String(), accept)
		}
		close(held.closed)
		w := serve(h, request(header("Mcp-Method", "notifications/cancelled")))
		assert.Contains(t, w.Body.String(), `{"error":"rate_limit_exceeded"`, "a notification has no answer by JSON-RPC")
		w = serve(h, request(header("Accept", "application/problem+json"), header("Mcp-Method", "tools/call")))
		assert.Equal(t, "application/problem+json", w.Header().Get("Content-Type"), "it was asked for by name")
	})
}

// A held body is read by nobody.
type held struct{ closed chan struct{} }

func (h held) Read([]byte) (int, error) { <-h.closed; return 0, errors.New("a refusal reads the body") }
func (h held) Close() error             { return nil }

func TestEachRefusalSaysItsReason(t *testing.T) {
	ban := func(status int) middleware.Config {
		return middleware.Config{Bans: middleware.Bans{Keys: byIP, Status: status}}
	}
	rule := func(edit func(*middleware.Rule)) middleware.Config {
		r := middleware.Rule{Name: "r", Key: keyfunc.Bearer, Limit: limiter.PerHour(1), Refusal: middleware.Refusal{Title: "Own"}}
		edit(&r)
		return middleware.Config{Rules: []middleware.Rule{r}, Logger: quiet}
	}
	noKey := func(n middleware.NoKey) middleware.Config { return rule(func(r *middleware.Rule) { r.NoKey = n }) }
	deny := func(status int) middleware.Config {
		return rule(func(r *middleware.Rule) { r.Mode, r.Refusal.Status = middleware.Deny, status })
	}
	const capacity = "The service is temporarily unable to take this request."
	for name, c := range map[string]struct {
		config middleware.Config
		want   string
	}{
		"banned":      {ban(0), "403 Forbidden: Requests from this client are not accepted. Try again in 60 seconds."},
		"banned, 429": {ban(429), "429 Quota Exceeded: Too many requests. Try again in 60 seconds."},
		"denied":      {deny(0), "403 Own: This request is not accepted."},
		"denied, 429": {deny(429), "429 Own: This request is not accepted now."},
		"denied, 503": {deny(503), "503 Own: " + capacity},
		"no credentials": {noKey(middleware.NoKeyUnauthorized),
			"401 Unauthorized: The request lacks credentials, such as an API key or a token."},
		"no key": {noKey(middleware.NoKeyBadRequest), "400 Bad Request: The request lacks a value that its limits need, " +
			"such as a user name, an API key or a host, or has several."},
		"no database": {rule(func(r *middleware.Rule) {
			r.OnOutage, r.Key = limiter.FailClosed, func(*http.Request) (string, error) { return "", errors.New("no database") }
		}), "503 Temporary Reduced Capacity: " + capacity + " Try again in 1 second."},
		"too expensive": {rule(func(r *middleware.Rule) { r.Cost = middleware.CostOf(func(*http.Request) int64 { return 2 }) }),
			"429 Own: The request costs more than the limit ever allows at once."},
		"a limit of 0": {rule(func(r *middleware.Rule) { r.Name = "zero" }), "429 Own: The limit of this client is 0."},
	} {
		phase.Run(t, name, func(t *testing.T) {
			if c.config.Bans.Keys != nil {
				list := bansOf(t)
				require.NoError(t, list.Ban(t.Context(), "192.0.2.1", time.Minute))
				c.config.Bans.List = list
			}
			r := request(limitedFor("zero", limiter.PerHour(0)), header("Accept", "application/problem+json"))
			w := serve(limited(t, c.config).Handler(ok), r)
			var body struct {
				Status        int
				Title, Detail string
			}
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body))
			assert.Equal(t, c.want, fmt.Sprintf("%d %s: %s", body.Status, body.Title, body.Detail))
			assert.Equal(t, w.Code, body.Status)
		})
	}
}

func TestA401NamesTheSchemeOfItsKey(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			key         keyfunc.Func
			given, want string
		}{
			{keyfunc.Bearer, "", "Bearer"},
			{keyfunc.APIKey("X-Api-Key"), "", "Key"},
			{keyfunc.User, "", "Key"},
			{keyfunc.APIKey("X-Api-Key"), "Basic", "Basic"},
		} {
			rule := middleware.Rule{Name: "r", Key: test.key, NoKey: middleware.NoKeyUnauthorized, Limit: limiter.PerHour(1)}
			h, w := newLimit(t, rule).Handler(ok), httptest.NewRecorder()
			if test.given != "" {
				w.Header().Set("WWW-Authenticate", test.given)
			}
			h.ServeHTTP(w, request())
			assert.Equal(t, 401, w.Code)
			assert.Equal(t, []string{test.want}, w.Header()["Www-Authenticate"])
		}
	})
}

func TestRefusalsSayWhatClientsNeed(t *testing.T) {
	inMinute(t, func(t *testing.T) {
		h := newLimit(t, middleware.Rule{Name: "login", Key: keyfunc.Global, Limit: limiter.PerMinute(1).With(limiter.FixedWindow)}).Handler(ok)
		serve(h, request())

		w := serve(h, request(header("Accept", "text/plain")))
		assert.Equal(t, "Too many requests. Try again in 50 seconds.\n", w.Body.String())
		assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))

		w = serve(h, request(func(r *http.Request) { r.Method = http.MethodHead }))
		assert.Equal(t, 429, w.Code)
		assert.Equal(t, "50", w.Header().Get("Retry-After"))
		assert.Empty(t, w.Body.String(), "HEAD has no body")
		assert.Equal(t, "104", w.Header().Get("Content-Length"), "but the length of GET's")
	})
}

func TestOwnAnswersToRefusals(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		var seen middleware.Result
		list := bansOf(t)
		l, err := middleware.New(middleware.Config{
			Bans: middleware.Bans{List: list, Keys: byIP},
			Rules: []middleware.Rule{
				{Name: "r", Key: keyfunc.Global, Limit: limiter.PerHour(1)},
				{Name: "key", NoKey: middleware.NoKeyUnauthorized, Limit: limiter.PerHour(1),
					Match: middleware.MatchFunc(func(r *http.Request) bool { return r.Method == http.MethodPut }),
					Key:   func(*http.Request) (string, error) { return "", nil }},
				{Name: "own", Mode: middleware.Deny, Match: middleware.MatchFunc(func(r *http.Request) bool { return r.Method == http.MethodPatch }),
					Refusal: middleware.Refusal{Answer: func(w http.ResponseWriter, _ *http.Request, result middleware.Result) { w.WriteHeader(result.Status) }}},
			},
			Refusal: middleware.Refusal{Answer: func(w http.ResponseWriter, r *http.Request, result middleware.Result) {
				seen = result
				w.WriteHeader(http.StatusTeapot)
			}},
		})
		require.NoError(t, err)
		h := l.Handler(ok)
		require.Equal(t, 200, serve(h, request()).Code)

		w := serve(h, request())
		assert.Equal(t, http.StatusTeapot, w.Code)
		assert.NotEmpty(t, w.Header().Get("Retry-After"))
		assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		assert.Equal(t, 429, seen.Status)
		assert.Equal(t, "r", seen.Rule)
		assert.Positive(t, seen.RetryAfter)

		serve(h, request(func(r *http.Request) { r.Method = http.MethodPut }))
		assert.Equal(t, 401, seen.Status)
		assert.Empty(t, seen.Rule)
		assert.Equal(t, 403, serve(h, request(func(r *http.Request) { r.Method = http.MethodPatch })).Code, "its own goes before Config's")

		_, err = list.Escalate(t.Context(), "192.0.2.1", "login", bans.Escalation{Ban: time.Second, Factor: 1, Max: time.Second})
		require.NoError(t, err)
		serve(h, request())
		assert.Equal(t, middleware.Result{Rule: "login", Status: 403, Banned: true, Decision: limiter.Decision{RetryAfter: time.Second}}, seen)
	})
}
