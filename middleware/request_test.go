package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// Middleware in front of a limiter, such as for metrics, reads the route and the form when the handlers have returned.
func TestWhatHandlersSetInTheirRequestIsSeenInFrontOfTheLimiter(t *testing.T) {
	for name, rule := range map[string]middleware.Rule{
		"result":  {Limit: plenty},
		"counts":  {Limit: plenty, Counts: middleware.StatusClass(2)},
		"slot":    {Limit: limiter.All(plenty, limiter.AtOnce(5))},
		"refused": {Limit: logOf(1, plenty.Per), Match: middleware.Route("GET /users/{id}")},
	} {
		rule.Name, rule.Key = name, keyfunc.Global
		outer, inner := limited(t, middleware.Config{Rules: []middleware.Rule{rule}}), limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "inner", Key: keyfunc.Global, Limit: plenty}}})
		mux := http.NewServeMux()
		mux.HandleFunc("GET /users/{id}", func(_ http.ResponseWriter, r *http.Request) {
			assert.NoError(t, r.ParseForm())
			if r.Form.Has("panic") {
				panic("on purpose")
			}
		})
		handler := outer.Handler(inner.Handler(mux))
		for i, query := range []string{"?a=1", "?a=1&panic=1"} {
			r := httptest.NewRequest("GET", "/users/42"+query, http.NoBody)
			ctx, body := r.Context(), r.Body
			func() {
				defer func() { assert.Equal(t, i == 1 && name != "refused", recover() != nil, name) }()
				handler.ServeHTTP(httptest.NewRecorder(), r)
			}()
			assert.Equal(t, "GET /users/{id}", r.Pattern, name)
			if i == 0 || name != "refused" {
				assert.Equal(t, "42", r.PathValue("id"), name)
				assert.Equal(t, "1", r.FormValue("a"), name)
			}
			assert.Equal(t, ctx, r.Context(), "its own values are not those of the handlers")
			assert.Equal(t, body, r.Body, "which net/http looks at to reuse the connection")
		}
	}
}

func TestASecondEndDoesNothing(t *testing.T) {
	for name, config := range map[string]middleware.Config{
		"results": {Results: true},
		"slots":   {Rules: []middleware.Rule{{Name: "slots", Key: keyfunc.Global, Limit: limiter.AtOnce(2)}}},
		"counts":  {Rules: []middleware.Rule{{Name: "counts", Key: keyfunc.Global, Limit: plenty, Counts: middleware.StatusClass(2)}}},
	} {
		config.Rules = append(config.Rules, middleware.Rule{Name: "x", Key: keyfunc.Global, Limit: plenty})
		l := limited(t, config)
		r := request()
		e := l.Enter(httptest.NewRecorder(), r, nil)
		e.Request.Pattern = "inner"
		e.End(200)
		assert.Equal(t, "inner", r.Pattern, name)
		r.Pattern = "outer"
		e.End(500)
		assert.Equal(t, "outer", r.Pattern, name)
	}
}
