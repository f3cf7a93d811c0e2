package middleware_test

import (
	"context"
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

// Any client can type a name: of an address, a user or another key of requests.
func TestAKeyOfAHandlerBansNobody(t *testing.T) {
	for _, name := range []string{"ann", "192.0.2.1", "user:42", "handler:ann", keyfunc.Own.Mark("user:42")} {
		phase.Run(t, name, func(t *testing.T) {
			list := bansOf(t)
			logger, log := logged()
			l := limited(t, middleware.Config{Logger: logger, Bans: middleware.Bans{List: list, Keys: []keyfunc.Func{keyfunc.IP(), keyfunc.User}}, Rules: []middleware.Rule{
				{Name: "login", Key: keyfunc.IP(), Match: middleware.Route("POST /login"), Limit: perHour(2), Escalate: first},
			}})
			for i, want := range []int{200, 200, 429, 429, 429} {
				assert.Equal(t, want, allow(l, name), i)
			}
			assert.Zero(t, bansIn(t, list))
			assert.Equal(t, 1, strings.Count(log.String(), "code=weir-not-banned"))
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

// A value that was seen makes it ask the store again.
func TestAllowChargesNoOtherRuleIfTheRulesChangeMeanwhile(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		config := middleware.Config{Rules: []middleware.Rule{
			{Name: "all", Key: keyfunc.Global, Limit: perHour(5)},
			{Name: "login", Key: keyfunc.Header("X-User"), Distinct: keyfunc.Header("X-Value"), Limit: perHour(5), NoKey: middleware.NoKeySkip},
		}}
		var l *middleware.RateLimit
		changes := false
		config.Store = &spy{fails: func(context.Context, []limiter.Charge) error {
			if changes {
				changes = false
				return l.Reconfigure(config)
			}
			return nil
		}}
		l = limited(t, config)
		for i := range 2 { // the second value was seen
			changes = i == 1
			assert.True(t, l.Allow(httptest.NewRecorder(), request(header("X-Value", "1")), "login", "ann"))
		}
		found, err := l.Peek(t.Context(), "all", "")
		require.NoError(t, err)
		assert.Equal(t, int64(5), found[0].Remaining)
	})
}

// A rule with Escalate asks the store with a context of its own.
func TestTheStoresContextEndsWithTheDecision(t *testing.T) {
	asks := map[string]func(*middleware.RateLimit, *http.Request) bool{
		"Allow": func(l *middleware.RateLimit, r *http.Request) bool {
			return l.Allow(httptest.NewRecorder(), r, "login", "ann")
		},
		"Enter": func(l *middleware.RateLimit, r *http.Request) bool { return passes(l, httptest.NewRecorder(), r) },
	}
	for name, ask := range asks {
		t.Run(name, func(t *testing.T) {
			var asked context.Context
			store := &spy{fails: func(ctx context.Context, _ []limiter.Charge) error { asked = ctx; return ctx.Err() }}
			l := limited(t, middleware.Config{Store: store, Bans: middleware.Bans{List: bansOf(t)}, Rules: []middleware.Rule{
				{Name: "login", Key: keyfunc.IP(), Limit: plenty, Escalate: first},
			}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			assert.True(t, ask(l, request().WithContext(ctx)))
			assert.Error(t, asked.Err(), "its timer waits for the request's deadline")
		})
	}
}
