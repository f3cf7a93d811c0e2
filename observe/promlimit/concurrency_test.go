package promlimit_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/promlimit"
)

func TestWhatIsInProgressAndWaitsIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := newMetrics(t, promlimit.Options{})
		limits := middleware.Must(middleware.New(middleware.Config{Observer: metrics, Rules: []middleware.Rule{
			{Name: "exports", Limit: limiter.AtOnce(1).Queue(2, time.Minute)},
		}}))
		require.Error(t, metrics.FollowLimiter(nil))
		require.NoError(t, metrics.FollowLimiter(limits))
		require.NoError(t, metrics.FollowLimiter(limits), "once is enough")
		h := limits.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(2 * time.Second) }))
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)) })
			synctest.Wait()
		}
		now := samples(t, metrics)
		assert.Equal(t, 1.0, now[`rate_limit_concurrency_in_progress{rule="exports",tier=""}`])
		assert.Equal(t, 2.0, now[`rate_limit_concurrency_waiting{rule="exports",tier=""}`])
		assert.Equal(t, 1.0, now[`rate_limit_concurrency_limit{rule="exports",tier=""}`])
		wg.Wait()
		now = samples(t, metrics)
		assert.Zero(t, now[`rate_limit_concurrency_in_progress{rule="exports",tier=""}`])
		assert.Zero(t, now[`rate_limit_concurrency_waiting{rule="exports",tier=""}`])
		assert.Equal(t, 3.0, now[`rate_limit_requests_total{decision="allowed",rule="exports",tier=""}`])
	})
}
