package middleware_test

import (
	"net/http"
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

func bansOf(t require.TestingT) *bans.Memory {
	list, err := bans.New(bans.Options{})
	require.NoError(t, err)
	return list
}

var (
	always middleware.MatchFunc = func(*http.Request) bool { return true }
	byIP                        = []keyfunc.Func{keyfunc.IP()}
)

func preflight(r *http.Request) {
	r.Method = http.MethodOptions
	r.Header.Set("Origin", "https://a.example")
	r.Header.Set("Access-Control-Request-Method", "PUT")
}

func TestADeniedRequestIsRefusedBeforeAnythingElse(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		store := &spy{}
		l := limited(t, middleware.Config{Store: store, Bans: middleware.Bans{Deny: always}, Allow: always, Rules: []middleware.Rule{
			{Name: "r", Limit: limiter.PerHour(1), Key: func(*http.Request) (string, error) { return "", keyfunc.ErrNoKey }, NoKey: middleware.NoKeyUnauthorized},
		}})
		for _, r := range []*http.Request{request(), request(preflight)} {
			w := serve(l.Handler(ok), r)
			assert.Equal(t, 403, w.Code)
			assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
			assert.NotContains(t, w.Header(), "Retry-After", "there is no end")
			assert.NotContains(t, w.Header(), "X-Ratelimit-Limit")
			assert.JSONEq(t, `{"error":"banned","message":"Requests from this client are not accepted."}`, w.Body.String())
		}
		w := serve(l.Handler(ok), request(header("Accept", "application/problem+json")))
		assert.JSONEq(t, `{"title":"Forbidden","status":403,"detail":"Requests from this client are not accepted."}`, w.Body.String())
		assert.Empty(t, store.charged)
	})
}

func TestABanEndsWhenItsTimeIsOver(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		list := bansOf(t)
		store := &spy{}
		h := limited(t, middleware.Config{Store: store, Bans: middleware.Bans{List: list, Keys: byIP}, Allow: always, Rules: []middleware.Rule{{Name: "r", Key: keyfunc.Global, Limit: plenty}}}).Handler(ok)
		require.Equal(t, 200, serve(h, request()).Code)
		require.NoError(t, list.Ban(t.Context(), "192.0.2.1", time.Minute))
		for _, edit := range []func(*http.Request){from("192.0.2.1:9"), preflight} {
			w := serve(h, request(edit))
			assert.Equal(t, 403, w.Code)
			assert.Equal(t, "60", w.Header().Get("Retry-After"))
			assert.Contains(t, w.Body.String(), `"retry_after":60`)
		}
		assert.Equal(t, 200, serve(h, request(from("192.0.2.2:1"))).Code)
		time.Sleep(time.Minute - time.Microsecond)
		w := serve(h, request())
		assert.Equal(t, 403, w.Code)
		assert.Equal(t, "1", w.Header().Get("Retry-After"))
		time.Sleep(time.Microsecond)
		assert.Equal(t, 200, serve(h, request()).Code)
		assert.Empty(t, store.charged, "what is allowed or banned is not counted")
	})
}

func TestEachOfTheBanKeysIsLookedUp(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		list := bansOf(t)
		missing := keyfunc.Func(func(*http.Request) (string, error) { return "192.0.2.1", keyfunc.ErrNoKey })
		empty := keyfunc.Func(func(*http.Request) (string, error) { return "", nil })
		h := limited(t, middleware.Config{Bans: middleware.Bans{List: list, Keys: []keyfunc.Func{missing, empty, keyfunc.User, keyfunc.Header("X-Device")}}}).Handler(ok)
		require.NoError(t, list.Ban(t.Context(), "", 0))
		require.NoError(t, list.Ban(t.Context(), "192.0.2.1", 0))
		assert.Equal(t, 200, serve(h, request()).Code, "an empty key is none")

		as := func(user string) *http.Request {
			return request(header("X-Device", "d")).WithContext(keyfunc.WithUser(t.Context(), user))
		}
		user, err := keyfunc.User(as("mallory"))
		require.NoError(t, err)
		require.NoError(t, list.Ban(t.Context(), user, 0))
		assert.Equal(t, 403, serve(h, as("mallory")).Code)
		assert.Equal(t, 200, serve(h, as("alice")).Code)
		device, err := keyfunc.Header("X-Device")(as("alice"))
		require.NoError(t, err)
		require.NoError(t, list.Ban(t.Context(), device, 0))
		assert.Equal(t, 403, serve(h, as("alice")).Code)
	})
}

func TestWhatIsAllowedIsNeverLimited(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		store := &spy{}
		l := limited(t, middleware.Config{Store: store, Rules: []middleware.Rule{{Name: "r", Key: keyfunc.Global, Limit: limiter.PerHour(1)}},
			Allow: middleware.MatchFunc(func(r *http.Request) bool { return r.Pattern == "GET /healthz" })})
		mux := http.NewServeMux()
		mux.Handle("GET /healthz", ok)
		mux.Handle("/", ok)
		h := l.Handler(mux)
		for range 3 {
			w := serve(h, request(func(r *http.Request) { r.URL.Path = "/healthz" }))
			require.Equal(t, 200, w.Code)
			require.Empty(t, w.Header().Get("X-RateLimit-Limit"))
		}
		assert.Empty(t, store.charged)
		assert.Equal(t, 200, serve(h, request()).Code)
		assert.Equal(t, 429, serve(h, request()).Code)
	})
}

func TestWhileNothingIsBannedNoKeyIsLookedUp(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		list, asked := bansOf(t), 0
		h := limited(t, middleware.Config{Bans: middleware.Bans{List: list, Keys: []keyfunc.Func{func(r *http.Request) (string, error) {
			asked++
			return keyfunc.IP()(r)
		}}}}).Handler(ok)
		require.Equal(t, 200, serve(h, request()).Code)
		assert.Zero(t, asked)
		require.NoError(t, list.Ban(t.Context(), "192.0.2.9", 0))
		require.Equal(t, 200, serve(h, request()).Code)
		assert.Equal(t, 1, asked)
	})
}

// A slow list finds a ban that ends while it is looked for.
type slow struct{ bans.List }

func (slow) Empty() bool                  { return false }
func (slow) Find(string) (bans.Ban, bool) { return bans.Ban{Until: time.Now()}, true }

func TestABanThatHasJustEndedHasARetryAfter(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		h := limited(t, middleware.Config{Bans: middleware.Bans{List: slow{}, Keys: byIP}}).Handler(ok)
		w := serve(h, request())
		assert.Equal(t, 403, w.Code)
		assert.Equal(t, "1", w.Header().Get("Retry-After"))
	})
}
