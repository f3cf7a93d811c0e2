package ginlimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/adapters/ginlimit"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
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

func TestARefusalIsAnsweredWithTheContextOfGin(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(c *gin.Context, result middleware.Result)
		status int
		body   string
	}{
		"an answer": {func(c *gin.Context, r middleware.Result) { c.String(418, c.FullPath()+" "+r.Rule) }, 418, "/ all"},
		"a body":    {func(c *gin.Context, r middleware.Result) { _, _ = c.Writer.WriteString("slower") }, 429, "slower"},
		"no answer": {func(*gin.Context, middleware.Result) {}, 429, ""},
	} {
		t.Run(name, func(t *testing.T) {
			limits := middleware.Must(middleware.New(middleware.Config{
				Rules:   []middleware.Rule{{Name: "all", Limit: limiter.PerHour(1).With(limiter.SlidingLog)}},
				Refusal: middleware.Refusal{Answer: func(http.ResponseWriter, *http.Request, middleware.Result) { t.Error("the adapter's goes before it") }},
			}))
			r := gin.New()
			var status, size int
			r.Use(func(c *gin.Context) {
				c.Next()
				status, size = c.Writer.Status(), max(0, c.Writer.Size())
			}, ginlimit.NewWith(limits, ginlimit.Options{OnRefused: test.answer}))
			r.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "home") })
			require.Equal(t, "home", serve(r, "/").Body.String())
			w := serve(r, "/")
			require.Equal(t, test.status, w.Code)
			require.Equal(t, []int{test.status, w.Body.Len()}, []int{status, size}, "loggers and metrics of gin's count refusals")
			require.Equal(t, test.body, w.Body.String())
			require.NotEmpty(t, w.Header().Get("Retry-After"))
			require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		})
	}
}
