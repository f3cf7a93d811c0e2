package promlimit_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/observe/promlimit"
	"github.com/weirgo/weir/pace"
)

// A server answers with the next of these statuses, and with the last of them from then on. It
// takes a tenth of a second.
type server struct {
	mu       sync.Mutex
	statuses []int
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(100 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	response := &http.Response{StatusCode: s.statuses[0], ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Request: r}
	if len(s.statuses) > 1 {
		s.statuses = s.statuses[1:]
	}
	if response.StatusCode == http.StatusTooManyRequests {
		response.Header.Set("Retry-After", "10")
	}
	return response, nil
}

func call(t *testing.T, transport http.RoundTripper, host string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/", nil)
	require.NoError(t, err)
	_, err = transport.RoundTrip(r)
	return err
}

func TestEveryMetricOfRequestsToOthersMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := newMetrics(t, promlimit.Options{})
		transport := pace.Must(pace.NewTransport(&server{statuses: []int{200, 503, 200, 429, 200}}, pace.Options{
			Rules:    []pace.Rule{{Name: "api", Host: "api.example.org", Limit: limiter.PerSecond(1)}},
			Retry:    pace.Retry{Attempts: 2, Budget: 100},
			Observer: metrics,
		}))
		metrics.FollowTransport(transport)
		moved := map[string]bool{}
		before := samples(t, metrics)
		note := func() map[string]float64 {
			now := samples(t, metrics)
			for name, value := range now {
				if value != before[name] {
					family, _, _ := strings.Cut(name, "{")
					moved[family] = true
				}
			}
			return now
		}
		ask := func() error { return call(t, transport, "api.example.org", 20*time.Second) }

		require.NoError(t, ask())
		require.NoError(t, ask(), "503, and then again")
		now := note()
		assert.Equal(t, 2.0, now[`rate_limit_pace_attempts_total{outcome="served",rule="api"}`])
		assert.Equal(t, 1.0, now[`rate_limit_pace_attempts_total{outcome="failed",rule="api"}`])
		assert.Equal(t, 1.0, now[`rate_limit_pace_retries_total{rule="api"}`])
		assert.Equal(t, 3.0, now[`rate_limit_pace_wait_seconds{rule="api"}`])

		done := make(chan error, 2)
		go func() { done <- ask() }() // is refused, waits for ten seconds, and is sent again
		time.Sleep(1950 * time.Millisecond)
		now = note()
		assert.Equal(t, 1.0, now[`rate_limit_pace_waiting{rule="api"}`])
		assert.InDelta(t, 9, now[`rate_limit_pace_cooldown_seconds{rule="api"}`], 0.2)

		require.Error(t, call(t, transport, "api.example.org", time.Second), "which is too short")
		now = note()
		assert.Equal(t, 1.0, now[`rate_limit_pace_attempts_total{outcome="too_long",rule="api"}`])
		require.NoError(t, <-done)
		now = note()
		assert.Equal(t, 1.0, now[`rate_limit_pace_attempts_total{outcome="refused",rule="api"}`])
		assert.Zero(t, now[`rate_limit_pace_waiting{rule="api"}`])
		assert.Zero(t, now[`rate_limit_pace_cooldown_seconds{rule="api"}`])
		assert.Equal(t, 5.0, now[`rate_limit_pace_wait_seconds{rule="api"}`], "of those that were sent")

		require.NoError(t, call(t, transport, "other.example.org", time.Second))
		assert.Equal(t, 1.0, note()[`rate_limit_pace_attempts_total{outcome="unmatched",rule=""}`])
		for _, name := range names(metrics) {
			if strings.HasPrefix(name, "rate_limit_pace") {
				assert.True(t, moved[name], "%s has not moved", name)
			}
		}
	})
}

func TestToCountAnAttemptTakesNoMemory(t *testing.T) {
	metrics := newMetrics(t, promlimit.Options{})
	o := &pace.Observation{Rule: "api", Waited: time.Second}
	metrics.ObserveAttempt(o)
	assert.Zero(t, testing.AllocsPerRun(100, func() { metrics.ObserveAttempt(o) }))
}

func TestTransportsOfOneRuleAreShownTogether(t *testing.T) {
	metrics := newMetrics(t, promlimit.Options{})
	for range 2 {
		transport := pace.Must(pace.NewTransport(nil, pace.Options{Rules: []pace.Rule{{Name: "api", Host: "api.example.org", Limit: limiter.PerSecond(1)}}}))
		metrics.FollowTransport(transport)
	}
	_, ok := samples(t, metrics)[`rate_limit_pace_waiting{rule="api"}`]
	assert.True(t, ok)
}
