package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
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

// An answer that does not count returns what was charged to the limit, and the slot once: another
// request's slot stays taken.
func TestAnAnswerThatDoesNotCountReturnsItsSlotOnce(t *testing.T) {
	limits := middleware.Must(middleware.New(middleware.Config{Rules: []middleware.Rule{{
		Name:   "work",
		Limit:  limiter.All(limiter.PerHour(100), limiter.AtOnce(2)),
		Counts: middleware.Not(middleware.StatusClass(5)),
	}}}))
	held, leave := make(chan struct{}), make(chan struct{})
	handler := limits.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			held <- struct{}{}
			<-leave
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	ask := func(path string) int {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code
	}
	var slow sync.WaitGroup
	slow.Go(func() { ask("/slow") })
	<-held
	for range 3 {
		assert.Equal(t, http.StatusInternalServerError, ask("/fails"))
	}
	slow.Go(func() { ask("/slow") }) // takes the second slot
	<-held
	assert.Equal(t, http.StatusServiceUnavailable, ask("/fails"), "both slots are taken")
	close(leave)
	slow.Wait()
}
