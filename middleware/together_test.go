package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

// waitOf is the Retry-After of an answer.
func waitOf(t *testing.T, w *httptest.ResponseRecorder) time.Duration {
	t.Helper()
	wait, err := time.ParseDuration(w.Header().Get("Retry-After") + "s")
	require.NoError(t, err)
	return wait
}

// After a limit fell, a client that obeys each Retry-After is admitted then, and so is not banned.
func TestWhoObeysRetryAfterIsNotBannedWhenALimitFell(t *testing.T) {
	for _, tt := range []struct{ before, after limiter.Limit }{
		{limiter.PerHour(500), limiter.PerHour(100)},
		{limiter.PerHour(500), limiter.PerMinute(5)},
		{limiter.PerHour(50).With(limiter.SlidingLog), limiter.PerHour(10)},
		{limiter.PerHour(500), limiter.PerHour(100).With(limiter.TokenBucket)},
		{limiter.PerHour(500).With(limiter.FixedWindow), limiter.PerHour(100)},
		{limiter.PerHour(500), limiter.PerDay(100)},
		{limiter.PerDay(1000), limiter.PerDay(500)},
	} {
		t.Run(tt.before.String()+" to "+tt.after.String(), func(t *testing.T) {
			phase.Test(t, func(t *testing.T) {
				list := bansOf(t)
				config := func(l limiter.Limit) middleware.Config {
					return middleware.Config{Bans: middleware.Bans{List: list}, Rules: []middleware.Rule{{Name: "api", Key: keyfunc.User, Limit: l,
						Escalate: bans.Escalation{After: 3, Within: time.Hour, Ban: time.Hour, Factor: 1, Max: time.Hour}}}, Logger: quiet}
				}
				l := limited(t, config(tt.before))
				h := l.Handler(ok)
				for serve(h, request(as("user"))).Code == http.StatusOK {
				}
				require.NoError(t, l.Reconfigure(config(tt.after)))
				for range 20 {
					w := serve(h, request(as("user")))
					if w.Code != http.StatusOK {
						require.Equal(t, http.StatusTooManyRequests, w.Code)
						time.Sleep(waitOf(t, w))
						require.Equal(t, http.StatusOK, serve(h, request(as("user"))).Code, "after the wait")
					}
					time.Sleep(5 * time.Minute)
				}
			})
		})
	}
}
