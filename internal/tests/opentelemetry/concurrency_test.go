package opentelemetry_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/otellimit"
)

func TestWhatIsInProgressIsMeasured(t *testing.T) {
	s := serve(t, otellimit.Options{}, middleware.Config{Rules: []middleware.Rule{byKey}})
	l, err := middleware.New(middleware.Config{Rules: []middleware.Rule{{Name: "exports", Key: keyfunc.Global, Limit: limiter.AtOnce(2)}}})
	require.NoError(t, err)
	require.Error(t, s.observer.FollowLimiter(nil))
	require.NoError(t, s.observer.FollowLimiter(l))
	const name = "rate_limit.concurrency.in_progress rate_limit.rule=exports"
	l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		assert.Equal(t, 1.0, s.metrics()[name])
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	now := s.metrics()
	assert.Contains(t, now, name)
	assert.Zero(t, now[name])
	assert.Contains(t, now, "rate_limit.concurrency.waiting rate_limit.rule=exports")
}
