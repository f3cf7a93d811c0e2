package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

func rpc(media string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/shop.Cart/Add", strings.NewReader("a message"))
	r.ProtoMajor, r.ProtoMinor = 2, 0
	r.Header.Set("Content-Type", media)
	r.Header.Set("Connect-Protocol-Version", "1")
	return r
}

// A client cannot hide from a count of refusals behind its Content-Type, with whose refusals the status is 200.
func TestARefusalOfAnRPCCountsAs429(t *testing.T) {
	for media, status := range map[string]int{"application/grpc": 200, "application/connect+json": 200, "application/proto": 429, "text/plain": 429} {
		list := bans.Must(bans.New(bans.Options{}))
		outer := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Rules: []middleware.Rule{
			{Name: "refused", Key: keyfunc.IP(), Limit: perHour(9), Counts: middleware.Statuses(429),
				Escalate: bans.Escalation{After: 2, Within: time.Hour, Ban: time.Hour, Outcomes: true}},
		}})
		heard := &recorder{}
		inner := limited(t, middleware.Config{Observer: heard, Rules: []middleware.Rule{
			{Name: "one", Match: middleware.Route("POST /shop.Cart/Add"), Key: keyfunc.Global, Limit: perHour(1)},
		}})
		route := func(h http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("POST /shop.Cart/Add", h)
			return outer.Handler(mux)
		}
		h := route(inner.Handler(ok))
		require.Equal(t, 200, serve(h, rpc(media)).Code, media)
		assert.EqualValues(t, 9, left(t, outer, "refused", "192.0.2.1"), media)
		for range 2 {
			w := serve(h, rpc(media))
			require.Equal(t, status, w.Code, media)
			require.NotEmpty(t, w.Header().Get("Retry-After"), media)
			require.NotEmpty(t, w.Header().Get("X-RateLimit-Limit"), media)
		}
		assert.EqualValues(t, 7, left(t, outer, "refused", "192.0.2.1"), media)
		assert.Equal(t, middleware.OutcomeRefused, heard.last(t).Outcome, media)
		_, banned := list.Find("192.0.2.1")
		assert.True(t, banned, media)
		w := serve(h, rpc(media))
		assert.Equal(t, media == "application/grpc", w.Header().Get("Grpc-Status") == "7", "a ban is a permission that is denied")
	}
}

// A clone's answer is the request's, unless a handler made it for an answer of its own.
func TestARefusalOfACloneOfAnRPCCountsAs429(t *testing.T) {
	for media, status := range map[string]int{"application/grpc": 200, "application/connect+json": 200, "text/plain": 429} {
		for name, want := range map[string]int64{"passed on": 8, "of a batch": 9} {
			outer := limited(t, middleware.Config{Rules: []middleware.Rule{
				{Name: "refused", Key: keyfunc.IP(), Limit: perHour(9), Counts: middleware.Statuses(429)},
			}})
			inner := limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "none", Mode: middleware.Deny,
				Refusal: middleware.Refusal{Status: 429}}}}).Handler(ok)
			h := outer.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if name == "of a batch" {
					w = httptest.NewRecorder()
				}
				inner.ServeHTTP(w, r.Clone(r.Context()))
			}))
			w := serve(h, rpc(media))
			assert.Equal(t, name == "passed on" && status == 429, w.Code == 429, media)
			assert.Equal(t, want, left(t, outer, "refused", "192.0.2.1"), "%s %s", media, name)
		}
	}
}

// The application's own answer is not changed.
func TestAnAnswerOfTheApplicationIsForEachProtocol(t *testing.T) {
	l := limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "one", Key: keyfunc.Global, Limit: limiter.PerHour(1),
		Refusal: middleware.Refusal{Answer: func(w http.ResponseWriter, _ *http.Request, result middleware.Result) { w.WriteHeader(result.Status) }}}}})
	serve(l.Handler(ok), rpc("application/grpc"))
	w := serve(l.Handler(ok), rpc("application/grpc"))
	assert.Equal(t, 429, w.Code)
	assert.Empty(t, w.Header().Get("Grpc-Status"))
}
