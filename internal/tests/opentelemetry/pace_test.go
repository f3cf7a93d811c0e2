package opentelemetry_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/otellimit"
	"github.com/weirgo/weir/pace"
)

// answers are the statuses of a server, one for each request.
type answers []int

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	status := (*a)[0]
	*a = (*a)[1:]
	response := &http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Request: r}
	if status == http.StatusTooManyRequests {
		response.Header.Set("Retry-After", "10")
	}
	return response, nil
}

func TestPacedRequestsAreCountedAndTheirSpansShowTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, otellimit.Options{}, middleware.Config{Rules: []middleware.Rule{byKey}})
		transport, err := pace.NewTransport(&answers{200, 429, 200}, pace.Options{
			Rules:    []pace.Rule{{Name: "api", Host: "api.example.org", Limit: limiter.PerSecond(10).WithBurst(10)}},
			Retry:    pace.Retry{Attempts: 2},
			Observer: s.observer,
		})
		require.NoError(t, err)
		ask := func() []map[string]any {
			ctx, span := s.provider.Tracer("test").Start(t.Context(), "job")
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example.org/", nil)
			require.NoError(t, err)
			response, err := transport.RoundTrip(r)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, response.StatusCode)
			span.End()
			ended := s.spans.Ended()
			events := []map[string]any{}
			for _, e := range ended[len(ended)-1].Events() {
				assert.Equal(t, "rate_limit.pace", e.Name)
				events = append(events, values(e.Attributes))
			}
			return events
		}
		assert.Empty(t, ask(), "it was sent at once, and served")
		events := ask()
		require.Len(t, events, 2)
		assert.Equal(t, map[string]any{
			"rate_limit.rule": "api", "rate_limit.outcome": "refused", "rate_limit.pace.attempt": int64(1),
			"rate_limit.pace.wait": 0.0, "rate_limit.retry_after": 10.0,
		}, events[0])
		assert.Equal(t, "served", events[1]["rate_limit.outcome"])
		assert.GreaterOrEqual(t, events[1]["rate_limit.pace.wait"], 10.0)

		m := s.metrics()
		assert.Equal(t, 2.0, m["rate_limit.pace.attempts rate_limit.outcome=served,rate_limit.rule=api"])
		assert.Equal(t, 1.0, m["rate_limit.pace.attempts rate_limit.outcome=refused,rate_limit.rule=api"])
		assert.Equal(t, 1.0, m["rate_limit.pace.retries rate_limit.rule=api"])
		assert.Equal(t, 3.0, m["rate_limit.pace.wait.duration rate_limit.rule=api"])
	})
}
