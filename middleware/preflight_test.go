package middleware_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

func TestPreflightsCountLikeOtherRequests(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		h := middleware.PerIP(limiter.PerHour(2))(ok)
		require.Equal(t, 200, serve(h, request(preflight)).Code)
		require.Equal(t, 200, serve(h, request()).Code)
		require.Equal(t, 429, serve(h, request(preflight)).Code)
	})
}

func TestExemptPreflightsAreNotCountedAndOtherOptionsAre(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		options := func(r *http.Request) { r.Method = http.MethodOptions }
		h := limited(t, middleware.Config{Allow: middleware.IsPreflight, Rules: []middleware.Rule{{Name: "all", Key: keyfunc.Global, Limit: limiter.PerHour(1)}}}).Handler(ok)
		for range 3 {
			w := serve(h, request(preflight))
			require.Equal(t, 200, w.Code)
			require.Empty(t, w.Header().Get("X-RateLimit-Limit"))
		}
		require.Equal(t, 200, serve(h, request(options)).Code)
		require.Equal(t, 429, serve(h, request(options, header("Origin", "https://a.example"))).Code, "without the requested method it is no preflight")
		require.Equal(t, 429, serve(h, request(options, header("Access-Control-Request-Method", "PUT"))).Code, "nor without an origin")
		require.Equal(t, 200, serve(h, request(preflight)).Code, "not even when the client is refused")
	})
}

// A browser sends its preflights without credentials.
func TestAPreflightWithoutTheRulesKeyCountsTheClientsAddress(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		for _, noKey := range []middleware.NoKey{middleware.NoKeyShare, middleware.NoKeyBadRequest, middleware.NoKeyUnauthorized} {
			h := newLimit(t, middleware.Rule{Name: "key", Key: keyfunc.APIKey("X-Api-Key"), Limit: limiter.PerHour(2), NoKey: noKey}).Handler(ok)
			for _, client := range []string{"192.0.2.1:1", "192.0.2.2:1"} {
				require.Equal(t, 200, serve(h, request(preflight, from(client))).Code, "%v: it is not refused for a missing key", noKey)
				require.Equal(t, 200, serve(h, request(preflight, from(client))).Code)
				require.Equal(t, 429, serve(h, request(preflight, from(client))).Code, "%v: it is counted", noKey)
			}
			require.Equal(t, 200, serve(h, request(preflight, from("192.0.2.1:1"), header("X-Api-Key", "k"))).Code, "one with a key counts that")
			require.Equal(t, 200, serve(h, request(from("192.0.2.1:1"), header("X-Api-Key", "k"))).Code, "which preflights without it take nothing from")
			require.Equal(t, 429, serve(h, request(from("192.0.2.1:1"), header("X-Api-Key", "k"))).Code)
		}
	})
}

// Such a rule is not for them, as it is not for the requests that they ask for.
func TestAPreflightWithoutTheKeyOfARuleThatSkipsIsLeftToTheOthers(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		h := newLimit(t,
			middleware.Rule{Name: "debug", Key: keyfunc.Header("X-Debug"), Limit: limiter.PerHour(1), NoKey: middleware.NoKeySkip},
			middleware.Rule{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerHour(3)}).Handler(ok)
		for _, want := range []int{200, 200, 200, 429} {
			require.Equal(t, want, serve(h, request(preflight)).Code)
		}
	})
}

func TestTheAddressOfAPreflightIsTheOneThatTheRulesCount(t *testing.T) {
	behindProxy := keyfunc.IP(keyfunc.TrustProxies("10.0.0.0/8"))
	ofKey := middleware.Rule{Name: "key", Key: keyfunc.Bearer, Limit: limiter.PerHour(1), NoKey: middleware.NoKeyUnauthorized}
	byAddress := middleware.Rule{Name: "ip", Key: keyfunc.First(keyfunc.User, behindProxy), Limit: limiter.PerHour(100)}
	for name, c := range map[string]middleware.Config{
		"of a rule for all": {Rules: []middleware.Rule{ofKey, byAddress}},
		"of a route":        {Rules: []middleware.Rule{ofKey}, ByRoute: map[string][]middleware.Rule{"/login": {byAddress}}},
		"of the default":    {ByRoute: map[string][]middleware.Rule{"/api": {ofKey}}, Default: []middleware.Rule{byAddress}},
		"of the bans":       {Rules: []middleware.Rule{ofKey}, Bans: middleware.Bans{List: bansOf(t), Keys: []keyfunc.Func{keyfunc.User, behindProxy}}},
	} {
		phase.Run(t, name, func(t *testing.T) {
			h := limited(t, c).Handler(ok)
			client := func(n int) *http.Request {
				return request(preflight, routedBy("/api"), from("10.0.0.1:1"), header("X-Forwarded-For", fmt.Sprintf("192.0.2.%d", n)))
			}
			for n := range 5 {
				require.Equal(t, 200, serve(h, client(n)).Code, "each has its own counter, not the proxy's")
				require.Equal(t, 429, serve(h, client(n)).Code)
			}
		})
	}
}

func TestAPreflightDoesNotTryKeysWithoutEnd(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		asked := 0
		byRoute := map[string][]middleware.Rule{}
		for i := range 500 {
			byRoute[fmt.Sprintf("/%d", i)] = []middleware.Rule{{Name: fmt.Sprint(i), Limit: plenty, Key: func(*http.Request) (string, error) {
				asked++
				return "", keyfunc.ErrNoKey
			}}}
		}
		h := limited(t, middleware.Config{ByRoute: byRoute}).Handler(ok)
		require.Equal(t, 200, serve(h, request(preflight, routedBy("/7"))).Code)
		assert.LessOrEqual(t, asked, 40)
	})
}
