package middleware_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
)

func TestTheWarningBeginsExactlyAtItsPercentage(t *testing.T) {
	phase.Test(t, func(*testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			capacity := rapid.Int64Range(1, 150).Draw(t, "capacity")
			percent := rapid.IntRange(1, 99).Draw(t, "percent")
			l := limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "r", Key: keyfunc.Global, Limit: limiter.PerDay(capacity), SoftAt: percent}}})
			for used := int64(1); used <= capacity; used++ {
				w, result := check(l, request())
				if w.Code != 200 {
					t.Fatalf("refused after %d of %d", used, capacity)
				}
				var want []string
				if used*100 >= capacity*int64(percent) {
					want = []string{fmt.Sprintf(`"r";r=%d;q=%d`, capacity-used, capacity)}
				}
				if fmt.Sprint(w.Header()["X-Ratelimit-Warning"]) != fmt.Sprint(want) || result.NearLimit != (want != nil) {
					t.Fatalf("with %d of %d used and a warning at %d%%: %v, %q", used, capacity, percent,
						result.NearLimit, w.Header()["X-Ratelimit-Warning"])
				}
			}
			w := httptest.NewRecorder()
			if passes(l, w, request()) || w.Header().Get("X-RateLimit-Warning") == "" {
				t.Fatal("no warning with the refusal")
			}
		})
	})
}

func TestOnlyRulesThatAreNearTheirLimitWarn(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		rules := []middleware.Rule{
			{Name: "never", Key: keyfunc.Global, Limit: limiter.PerHour(4)},
			{Name: "far", Key: keyfunc.Global, Limit: limiter.PerHour(1000), SoftAt: 50},
			{Name: `a "b"`, Key: keyfunc.Global, Limit: limiter.PerHour(4), SoftAt: 50},
			{Name: "c", Key: keyfunc.Global, Limit: limiter.PerHour(5), SoftAt: 60},
			{Name: "shadow", Key: keyfunc.Global, Limit: limiter.PerHour(4), SoftAt: 1, Mode: middleware.Shadow},
		}
		l := newLimit(t, rules...)
		w, result := check(l, request())
		assert.NotContains(t, w.Header(), "X-Ratelimit-Warning", "a rule in shadow does not warn")
		assert.False(t, result.NearLimit)
		w, result = check(l, request())
		assert.Equal(t, []string{`"a \"b\"";r=2;q=4`}, w.Header()["X-Ratelimit-Warning"])
		assert.True(t, result.NearLimit)
		assert.Equal(t, "never", result.Rule, "the binding rule need not be the one that warns")
		w, _ = check(l, request())
		assert.Equal(t, []string{`"a \"b\"";r=1;q=4, "c";r=2;q=5`}, w.Header()["X-Ratelimit-Warning"])
	})
}

func TestDuringAnOutageTheWarningIsAboutTheShare(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		store := failover.Must(failover.New(brokenStore{}, failover.Options{Replicas: 10, OnDegraded: func(failover.Event) {}}))
		l := limited(t, middleware.Config{Store: store, Rules: []middleware.Rule{{Name: "r", Key: keyfunc.Global, Limit: limiter.PerHour(100), SoftAt: 80}}})
		for used := 1; used <= 10; used++ {
			w, result := check(l, request())
			assert.Equal(t, used >= 8, result.NearLimit)
			assert.Equal(t, used >= 8, w.Header().Get("X-RateLimit-Warning") != "")
		}
	})
}

func TestStackedLimitersWarnInOneField(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		soft := func(name string, n int64, at int) *middleware.RateLimit {
			return newLimit(t, middleware.Rule{Name: name, Key: keyfunc.Global, Limit: limiter.PerHour(n), SoftAt: at})
		}
		var seen middleware.Result
		h := soft("outer", 4, 50).Handler(soft("middle", 100, 0).Handler(soft("inner", 3, 90).Handler(
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen, _ = middleware.FromContext(r.Context()) }))))
		w := serve(h, request())
		require.NotContains(t, w.Header(), "X-Ratelimit-Warning")
		assert.False(t, seen.NearLimit)
		w = serve(h, request())
		assert.Equal(t, []string{`"outer";r=2;q=4`}, w.Header()["X-Ratelimit-Warning"])
		assert.False(t, seen.NearLimit, "the nearest limiter is not near its limit")
		w = serve(h, request())
		assert.Equal(t, []string{`"outer";r=1;q=4, "inner";r=0;q=3`}, w.Header()["X-Ratelimit-Warning"])
		assert.True(t, seen.NearLimit)
	})
}
