package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// What a request costs in the end is of its rule's limits; its slot is one, and returned once.
func TestASlotIsNotSettled(t *testing.T) {
	store, err := limiter.NewMemory(limiter.MemoryOptions{})
	require.NoError(t, err)
	limits := middleware.Must(middleware.New(middleware.Config{Store: store, Rules: []middleware.Rule{{
		Name:  "tokens",
		Limit: limiter.All(limiter.PerHour(100), limiter.AtOnce(2)),
		Cost:  middleware.Reserve(func(*http.Request) int64 { return 10 }),
	}}}))
	handler := limits.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.NoError(t, middleware.Settle(r.Context(), "tokens", 3))
	}))
	for range 5 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		assert.Equal(t, http.StatusOK, w.Code)
	}
}
