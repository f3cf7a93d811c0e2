package middleware_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

func TestBodyAIIsTheErrorOfEachRefusal(t *testing.T) {
	list := bansOf(t)
	rule := func(edit func(*middleware.Rule)) middleware.Config {
		r := middleware.Rule{Name: "r", Key: keyfunc.Bearer, Limit: logOf(1, time.Hour)}
		edit(&r)
		return middleware.Config{Rules: []middleware.Rule{r}, Logger: quiet}
	}
	for name, c := range map[string]struct {
		config middleware.Config
		want   string
	}{
		"a limit":        {rule(func(*middleware.Rule) {}), "429 rate_limit_error rate_limit_exceeded 3600"},
		"a ban":          {middleware.Config{Bans: middleware.Bans{List: list, Keys: byIP}}, "403 permission_error banned 60"},
		"denied":         {rule(func(r *middleware.Rule) { r.Mode = middleware.Deny }), "403 permission_error denied 0"},
		"no key":         {rule(func(r *middleware.Rule) { r.NoKey = middleware.NoKeyBadRequest }), "400 invalid_request_error key_required 0"},
		"no credentials": {rule(func(r *middleware.Rule) { r.NoKey = middleware.NoKeyUnauthorized }), "401 authentication_error key_required 0"},
		"no database": {rule(func(r *middleware.Rule) {
			r.OnOutage, r.Key = limiter.FailClosed, func(*http.Request) (string, error) { return "", errors.New("no database") }
		}), "503 overloaded_error temporary_reduced_capacity 1"},
	} {
		phase.Run(t, name, func(t *testing.T) {
			require.NoError(t, list.Ban(t.Context(), "192.0.2.1", time.Minute))
			c.config.Refusal.Body = middleware.BodyAI
			h := limited(t, c.config).Handler(ok)
			serve(h, request())
			w := serve(h, request())
			var body struct {
				Type  string
				Error struct{ Type, Code, Message string }
				Wait  int64 `json:"retry_after"`
			}
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body), w.Body)
			assert.Equal(t, "error", body.Type)
			assert.NotEmpty(t, body.Error.Message)
			assert.Equal(t, c.want, fmt.Sprintf("%d %s %s %d", w.Code, body.Error.Type, body.Error.Code, body.Wait))
		})
	}
}

func TestBodyAIReplacesNothingButPlainJSON(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		ofRule := func(name string, body middleware.Body) middleware.Rule {
			return middleware.Rule{Name: name, Key: keyfunc.Global, Limit: logOf(1, time.Hour), Refusal: middleware.Refusal{Body: body},
				Match: middleware.MatchFunc(func(r *http.Request) bool { return r.URL.Path == "/"+name })}
		}
		h := limited(t, middleware.Config{Refusal: middleware.Refusal{Body: middleware.BodyAI},
			Rules: []middleware.Rule{ofRule("ai", 0), ofRule("plain", middleware.BodyPlain)}}).Handler(ok)
		ask := func(path string, edits ...func(*http.Request)) string {
			return serve(h, request(append(edits, func(r *http.Request) { r.URL.Path = path })...)).Body.String()
		}
		ask("/ai")
		ask("/plain")
		assert.Equal(t, `{"type":"error","error":{"type":"rate_limit_error","code":"rate_limit_exceeded",`+
			`"message":"Too many requests. Try again in 60 minutes.","param":null},"retry_after":3600}`, ask("/ai"))
		assert.Contains(t, ask("/plain"), `{"error":"rate_limit_exceeded"`, "the rule's own goes first")
		assert.Contains(t, ask("/ai", header("Accept", "application/problem+json")), `"status":429`)
		assert.Contains(t, ask("/ai", header("Accept", "text/plain")), "Too many requests.")
		assert.Contains(t, ask("/ai", header("Mcp-Method", "tools/call")), `"jsonrpc":"2.0"`)
	})
	assert.ErrorContains(t, middleware.Refusal{Body: 9}.Validate(), "Refusal.Body is 9: there is no such choice")
}
