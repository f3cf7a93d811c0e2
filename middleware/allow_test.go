package middleware_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
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

// allow calls l.Allow with the rule "login" behind its Handler, and returns the status of the answer.
func allow(l *middleware.RateLimit, key string) int {
	return serve(l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.Allow(w, r, "login", key)
	})), request()).Code
}

func TestAllowChargesItsRuleOnEachCallAndNoOther(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := limited(t, middleware.Config{Rules: []middleware.Rule{
			{Name: "ip", Key: keyfunc.IP(), Limit: perHour(10)},
			{Name: "login", Key: keyfunc.Header("X-User"), NoKey: middleware.NoKeySkip, Limit: perHour(5), Cost: middleware.Units(2), Match: middleware.Route("/x")},
		}})
		left := func(rule, key string) int64 {
			found, err := l.Peek(t.Context(), rule, key)
			require.NoError(t, err)
			return found[0].Remaining
		}
		passed := 0
		serve(l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for range 3 {
				if l.Allow(w, r, "login", "ann") {
					passed++
				}
			}
		})), request())
		assert.Equal(t, 2, passed, "a call is charged whether or not one was before, with the rule's cost")
		assert.Equal(t, int64(1), left("login", "ann"))
		assert.Equal(t, int64(9), left("ip", "192.0.2.1"))
	})
}

func TestAllowFollowsBansAndLeadsToThem(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		list, err := bans.New(bans.Options{})
		require.NoError(t, err)
		l := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Rules: []middleware.Rule{
			{Name: "login", Key: keyfunc.Header("X-User"), NoKey: middleware.NoKeySkip, Limit: perHour(1), Escalate: bans.Escalation{After: 2, Within: time.Hour, Ban: time.Hour}},
		}})
		for i, want := range []int{200, 429, 429, 403} {
			assert.Equal(t, want, allow(l, "ann"), i)
		}
		assert.Equal(t, 200, allow(l, "bob"))
	})
}

// A name that a client types is neither an address, nor a user, nor another key of requests.
func TestAKeyOfAHandlerIsNoKeyOfRequests(t *testing.T) {
	user := func(id string) func(*http.Request) {
		return func(r *http.Request) { *r = *r.WithContext(keyfunc.WithUser(r.Context(), id)) }
	}
	for name, victim := range map[string]func(*http.Request){
		"203.0.113.7":     from("203.0.113.7:1"),
		"2001:db8::/64":   from("[2001:db8::1]:1"),
		"user:42":         user("42"),
		"apikey:k":        header("X-Api-Key", "k"),
		"tenant:7":        header("X-Tenant", "7"),
		"handler:ann":     from("203.0.113.8:1"),
		"header:X-A:acme": header("X-A", "acme"),
	} {
		phase.Run(t, name, func(t *testing.T) {
			list := bansOf(t)
			tenant := func(r *http.Request) (string, error) {
				if id := r.Header.Get("X-Tenant"); id != "" {
					return "tenant:" + id, nil
				}
				return "", keyfunc.ErrNoKey
			}
			keys := []keyfunc.Func{keyfunc.IP(), keyfunc.User, keyfunc.APIKey("X-Api-Key"), keyfunc.Header("X-A"), tenant}
			l := limited(t, middleware.Config{Bans: middleware.Bans{List: list, Keys: keys}, Rules: []middleware.Rule{
				{Name: "ip", Key: keyfunc.First(tenant, keyfunc.User, keyfunc.IP()), Limit: plenty, Escalate: first},
				{Name: "login", Key: keyfunc.IP(), Match: middleware.Route("POST /login"), Limit: perHour(2), Escalate: first},
			}})
			for i, want := range []int{200, 200, 429, 403} {
				assert.Equal(t, want, allow(l, name), i)
			}
			assert.Equal(t, 200, serve(l.Handler(ok), request(victim)).Code, "the client whose key looks like the name")
			assert.Equal(t, 1, bansIn(t, list))
			all, err := list.All(t.Context())
			require.NoError(t, err)
			assert.Equal(t, "handler:"+name, all[0].Key)

			lifted, err := list.Unban(t.Context(), "handler:"+name)
			require.NoError(t, err)
			assert.True(t, lifted)
			require.NoError(t, l.Reset(t.Context(), "login", name))
			assert.Equal(t, 200, allow(l, name))
		})
	}
}

func TestABanOfAnAddressIsNoBanOfANameThatLooksLikeIt(t *testing.T) {
	list := bansOf(t)
	l := limited(t, middleware.Config{Bans: middleware.Bans{List: list, Keys: byIP}, Rules: []middleware.Rule{
		{Name: "login", Key: keyfunc.User, NoKey: middleware.NoKeySkip, Limit: plenty},
	}})
	for _, key := range []string{"203.0.113.7", "user:42"} {
		require.NoError(t, list.Ban(t.Context(), key, time.Hour))
	}
	assert.Equal(t, 200, allow(l, "203.0.113.7"))
	assert.Equal(t, 403, allow(l, "user:42"), "an operator banned the key that the handler gives")
}

func TestResetForgetsTheRefusalsOfAHandlersKey(t *testing.T) {
	list := bansOf(t)
	e := first
	e.After = 2
	l := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Rules: []middleware.Rule{
		{Name: "login", Key: keyfunc.User, NoKey: middleware.NoKeySkip, Limit: perHour(1), Escalate: e},
	}})
	for range 3 {
		for _, want := range []int{200, 429} {
			assert.Equal(t, want, allow(l, "ann"))
		}
		require.NoError(t, l.Reset(t.Context(), "login", "ann"))
	}
	assert.Zero(t, bansIn(t, list))
}

func TestAllowDecidesForNoRuleThatItCannotKeep(t *testing.T) {
	for name, rule := range map[string]middleware.Rule{
		"another":  {Name: "other", Key: keyfunc.Global, Limit: perHour(1)},
		"slots":    {Name: "login", Key: keyfunc.Global, Limit: limiter.AtOnce(1)},
		"a tier":   {Name: "login", Key: keyfunc.Global, Limit: perHour(1), Tiers: middleware.Tiers{"gold": limiter.All(perHour(1), limiter.AtOnce(1))}},
		"outcomes": {Name: "login", Key: keyfunc.Global, Limit: perHour(1), Counts: middleware.Statuses(401)},
		"settled":  {Name: "login", Key: keyfunc.Global, Limit: perHour(1), Cost: middleware.Reserve(func(*http.Request) int64 { return 1 })},
	} {
		t.Run(name, func(t *testing.T) {
			logger, log := logged()
			for _, shadow := range []bool{false, true} {
				l := limited(t, middleware.Config{Rules: []middleware.Rule{rule}, Logger: logger, Shadow: shadow})
				w := httptest.NewRecorder()
				r := request()
				r = r.WithContext(middleware.WithTier(r.Context(), "gold"))
				assert.Equal(t, shadow, l.Allow(w, r, "login", "ann"))
				if !shadow {
					assert.Equal(t, 503, w.Code)
				}
				assert.Contains(t, log.String(), "weir-allow-rule")
				log.Reset()
			}
		})
	}
}

func TestAllowLeavesTheBodyToTheHandler(t *testing.T) {
	list := bansOf(t)
	require.NoError(t, list.Ban(t.Context(), "json:account:eve", 0))
	l := limited(t, middleware.Config{
		Bans:  middleware.Bans{List: list, Keys: []keyfunc.Func{keyfunc.JSONField("account", 1024)}},
		Rules: []middleware.Rule{{Name: "login", Key: keyfunc.Global, Limit: plenty}},
	})
	w := httptest.NewRecorder()
	http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.True(t, l.Allow(w, r, "login", "jane"))
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Equal(t, `{"account":"jane"}`, string(body))
	}).ServeHTTP(w, httptest.NewRequest("POST", "/login", strings.NewReader(`{"account":"jane"}`)))
}
