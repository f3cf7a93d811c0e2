package ginlimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/adapters/ginlimit"
	"github.com/weirgo/weir/limiter"
)

func serve(h http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}

func TestARefusalAbortsTheChain(t *testing.T) {
	var calls []string
	note := func(name string) gin.HandlerFunc {
		return func(c *gin.Context) {
			c.Next()
			calls = append(calls, name)
			if c.IsAborted() {
				calls = append(calls, name+" sees abort")
			}
		}
	}
	r := gin.New()
	r.Use(note("before"), ginlimit.PerIP(limiter.PerHour(1).With(limiter.SlidingLog)), note("behind"))
	r.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "home") })

	require.Equal(t, http.StatusOK, serve(r, "/").Code)
	require.Equal(t, []string{"behind", "before"}, calls)
	calls = nil
	w := serve(r, "/")
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, []string{"before", "before sees abort"}, calls, "gin's own middleware in front sees c.IsAborted")
}
