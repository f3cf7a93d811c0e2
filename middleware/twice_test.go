package middleware_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// statuses are what n requests, one after the other, are answered.
func statuses(h http.Handler, n int, edits ...func(*http.Request)) (codes []int) {
	for range n {
		codes = append(codes, serve(h, request(edits...)).Code)
	}
	return codes
}

func TestALimiterChargesARequestEachTimeItPasses(t *testing.T) {
	for name, between := range map[string]func(http.Handler) http.Handler{
		"nothing":     func(h http.Handler) http.Handler { return h },
		"StripPrefix": func(h http.Handler) http.Handler { return http.StripPrefix("/v1", h) },
		"Clone": func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r.Clone(r.Context())) })
		},
	} {
		phase.Run(t, name, func(t *testing.T) {
			heard := &recorder{}
			l := limited(t, middleware.Config{Observer: heard, Rules: []middleware.Rule{
				{Name: "all", Key: keyfunc.Global, Limit: limiter.PerHour(4)}, {Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerHour(100)},
			}})
			h := l.Handler(between(l.Handler(ok)))
			assert.Equal(t, []int{200, 200, 429}, statuses(h, 3, func(r *http.Request) { r.URL.Path = "/v1/x" }))
			assert.Len(t, heard.seen, 5, "the third request did not pass the first limiter")
		})
	}
}

func TestRulesThatARequestMeetsFurtherInsideStillCount(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		outer := newLimit(t, middleware.Rule{Name: "all", Key: keyfunc.Global, Limit: limiter.PerHour(5)})
		inner := newLimit(t, middleware.Rule{Name: "login", Key: keyfunc.Global, Match: middleware.Route("POST /login"), Limit: limiter.PerHour(2)})
		mux := http.NewServeMux()
		mux.Handle("POST /login", inner.Handler(ok))
		mux.Handle("/", inner.Handler(ok))
		h := outer.Handler(mux)
		login := func(r *http.Request) { r.Method, r.URL.Path = "POST", "/login" }
		assert.Equal(t, []int{200, 200, 429}, statuses(h, 3, login))
		assert.Equal(t, []int{200, 200, 429}, statuses(h, 3), "the refusal inside took what it was charged outside")
	})
}

func TestASubRequestOfAHandlerCounts(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := newLimit(t, middleware.Rule{Name: "all", Key: keyfunc.Global, Limit: limiter.PerHour(10)})
		var h http.Handler
		h = l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/batch" {
				return
			}
			for range 4 {
				sub, err := http.NewRequestWithContext(r.Context(), "GET", "/", nil)
				require.NoError(t, err)
				sub.RemoteAddr = r.RemoteAddr
				h.ServeHTTP(w, sub)
			}
		}))
		batch := func(r *http.Request) { r.URL.Path = "/batch" }
		require.Equal(t, []int{200, 200, 429}, statuses(h, 3, batch))
	})
}
