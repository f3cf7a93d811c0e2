package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// The rule counts under the empty key, whose counter stores never evict for other keys. Operators name it by
// no key, or as the key function returns it.
func TestARuleWithGlobalHasOneCounterHoweverItIsNamed(t *testing.T) {
	global, _ := keyfunc.Global(nil)
	text, _ := keyfunc.Classify(global)
	phase.Test(t, func(t *testing.T) {
		l := newLimit(t, middleware.Rule{Name: "all", Key: keyfunc.Global, Limit: perHour(10)})
		statuses(l.Handler(ok), 2)
		for i, key := range []string{"", text, global} {
			require.True(t, l.Allow(httptest.NewRecorder(), request(), "all", key))
			found, err := l.Peek(t.Context(), "all", key)
			require.NoError(t, err)
			assert.EqualValues(t, 10-3-i, found[0].Remaining, "%q", key)
			assert.Empty(t, found[0].Key)
		}
		_, result := check(l, request())
		assert.Empty(t, result.Rules[0].Key)
		assert.Equal(t, keyfunc.Shared, result.Rules[0].Class)
		for _, key := range []string{"", text, global} {
			statuses(l.Handler(ok), 2)
			require.NoError(t, l.Reset(t.Context(), "all", key))
			found, err := l.Peek(t.Context(), "all", "")
			require.NoError(t, err)
			assert.EqualValues(t, 10, found[0].Remaining, "%q", key)
		}
		assert.True(t, l.Allow(httptest.NewRecorder(), request(), "all", "another"))
		found, err := l.Peek(t.Context(), "all", "")
		require.NoError(t, err)
		assert.EqualValues(t, 10, found[0].Remaining, "a handler's own key has a counter of its own")
	})
}

// The text of keyfunc.Global, returned by an application's function, is a key as any other.
func TestAKeyThatReadsGlobalIsAKeyOfItsOwn(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		store := &spy{}
		l := limited(t, middleware.Config{Store: store, Rules: []middleware.Rule{
			{Name: "tenant", Key: keyfunc.Header("X-Tenant"), Limit: perHour(10)},
			{Name: "all", Key: keyfunc.Global, Limit: limiter.PerSecond(10)},
			{Name: "own", Key: func(*http.Request) (string, error) { return "global", nil }, Limit: perHour(10)},
		}})
		check(l, request(header("X-Tenant", "global")))
		var keys []string
		for _, c := range store.charged {
			keys = append(keys, c.Key)
		}
		assert.Equal(t, []string{"header:X-Tenant:global", "", "global"}, keys)
	})
}
