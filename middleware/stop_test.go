package middleware_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

func TestStopAboveTellsClientsWhenToGiveUp(t *testing.T) {
	hour := func(stop time.Duration) middleware.Rule {
		return middleware.Rule{Name: "r", Key: keyfunc.Global, Limit: logOf(1, time.Hour), Refusal: middleware.Refusal{StopAbove: stop}}
	}
	rule := func(edit func(*middleware.Rule)) middleware.Rule {
		r := hour(0)
		edit(&r)
		return r
	}
	deny := func(status int, after time.Duration) middleware.Rule {
		return middleware.Rule{Name: "r", Mode: middleware.Deny,
			Refusal: middleware.Refusal{Status: status, RetryAfter: after, StopAbove: time.Minute}}
	}
	list := bansOf(t)
	phase.Test(t, func(t *testing.T) {
		require.NoError(t, list.Ban(t.Context(), "192.0.2.1", 2*time.Minute))
		for name, c := range map[string]struct {
			general time.Duration
			rule    middleware.Rule
			bans    middleware.Bans
			stops   bool
		}{
			"off":                   {rule: hour(0)},
			"a longer wait":         {rule: hour(time.Minute), stops: true},
			"exactly that wait":     {rule: hour(time.Hour)},
			"jitter does not count": {rule: rule(func(r *middleware.Rule) { r.Refusal = middleware.Refusal{StopAbove: time.Hour, Jitter: 100} })},
			"all rules":             {general: time.Minute, rule: hour(0), stops: true},
			"all rules but this":    {general: time.Minute, rule: hour(-1)},
			"this rule more":        {general: time.Minute, rule: hour(2 * time.Hour)},
			"too expensive": {rule: rule(func(r *middleware.Rule) {
				r.Cost, r.Refusal.StopAbove = middleware.CostOf(func(*http.Request) int64 { return 2 }), 48*time.Hour
			}), stops: true},
			"no credentials":          {general: time.Minute, rule: rule(func(r *middleware.Rule) { r.Key, r.NoKey = keyfunc.Bearer, middleware.NoKeyUnauthorized }), stops: true},
			"no key":                  {general: time.Minute, rule: rule(func(r *middleware.Rule) { r.Key, r.NoKey = keyfunc.Bearer, middleware.NoKeyBadRequest }), stops: true},
			"a ban":                   {general: time.Minute, rule: hour(0), bans: middleware.Bans{List: list, Keys: byIP}, stops: true},
			"a shorter ban":           {general: 3 * time.Minute, rule: hour(0), bans: middleware.Bans{List: list, Keys: byIP}},
			"a network's ban":         {general: time.Minute, rule: hour(0), bans: middleware.Bans{Deny: always}, stops: true},
			"denied":                  {rule: deny(403, 0), stops: true},
			"denied for long":         {rule: deny(503, time.Hour), stops: true},
			"denied for nobody knows": {rule: deny(503, 0)},
			"denied now":              {rule: deny(429, 0)},
			"denied without its own":  {general: time.Minute, rule: middleware.Rule{Name: "r", Mode: middleware.Deny}},
		} {
			h := limited(t, middleware.Config{Rules: []middleware.Rule{c.rule}, Bans: c.bans, Logger: quiet,
				Refusal: middleware.Refusal{StopAbove: c.general}}).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			serve(h, request())
			w := serve(h, request())
			require.GreaterOrEqual(t, w.Code, 400, name)
			want, member := []string(nil), `"retry":false}`
			if c.stops {
				want = []string{"false"}
			}
			assert.Equal(t, want, w.Header()["X-Should-Retry"], name)
			for _, accept := range []string{"application/json", "application/problem+json"} {
				body := serve(h, request(header("Accept", accept))).Body.String()
				if c.stops {
					assert.Contains(t, body, member, name)
				} else {
					assert.NotContains(t, body, `"retry"`, name)
				}
			}
		}
	})
}

func TestStopAboveIsANegativePushbackInGRPC(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		for stop, want := range map[time.Duration]string{time.Minute: "-1", 2 * time.Hour: "3600000"} {
			h := limited(t, middleware.Config{Refusal: middleware.Refusal{StopAbove: stop},
				Rules: []middleware.Rule{{Name: "r", Key: keyfunc.Global, Limit: logOf(1, time.Hour)}}}).Handler(ok)
			serve(h, request())
			w := serve(h, rpc("application/grpc"))
			assert.Equal(t, want, w.Header().Get("Grpc-Retry-Pushback-Ms"))
			assert.Equal(t, "3600", w.Header().Get("Retry-After"), "the time stays")
		}
	})
}

func TestStopAboveHasABound(t *testing.T) {
	assert.ErrorContains(t, middleware.Refusal{StopAbove: 367 * 24 * time.Hour}.Validate(),
		"Refusal.StopAbove is 8808h0m0s: it must be at most 366 days")
}
