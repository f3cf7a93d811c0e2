package rules_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

func TestReadingRulesLogsNothing(t *testing.T) {
	var log strings.Builder
	o := rules.Options{Config: middleware.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}}
	r := parse(t, "version: 1\ndefault: {limit: 10/s, key: [ip|user]}\n", o)
	assert.Empty(t, log.String())
	assert.Len(t, r.Warnings(), 1)
}

// Weir does not see the code of such an answer, and counts it.
func TestCountsOnAMethodOfGRPCHaveAWarning(t *testing.T) {
	for rule, want := range map[string]bool{
		`"POST /auth.v1.Auth/SignIn": {limit: 5/m, counts: [401]}`: true,
		`"/shop.Cart/*": {limit: 5/m, counts: ["!5xx"]}`:           true,
		`"/shop.Cart/{method}": {limit: 5/m, counts: [2xx]}`:       true,
		`"POST /auth.v1.Auth/SignIn": {limit: 5/m}`:                false,
		`"POST /login": {limit: 5/m, counts: [401]}`:               false,
		`"/file.json": {limit: 5/m, counts: [401]}`:                false,
		`"/v1.0/Users": {limit: 5/m, counts: [401]}`:               false,
	} {
		warnings := parse(t, "version: 1\nendpoints:\n  "+rule+"\ndefault: 10/s\n", rules.Options{}).Warnings()
		if !want {
			assert.Empty(t, warnings, rule)
			continue
		}
		if assert.Len(t, warnings, 1, rule) {
			assert.Contains(t, warnings[0].Message, "weir.CountAs")
			assert.Equal(t, 3, warnings[0].Line)
		}
	}
}

func TestAMisspeltRouteOfAFileIsWarnedOf(t *testing.T) {
	for name, text := range map[string]string{
		"an endpoint":  `endpoints: {"POST /lgoin": 5/m, "POST /login": 5/m}`,
		"a raw path":   `endpoints: {"/users/42": 5/m, "/users/{name}": 5/m}`,
		"an exemption": "default: 5/m\nallow: {routes: [/helthz, /healthz]}",
		"a mux's home": "endpoints: {\"/\": 5/m}",
	} {
		var log strings.Builder
		o := rules.Options{Config: middleware.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}}
		l, err := middleware.New(parse(t, "version: 1\n"+text+"\n", o).Config())
		require.NoError(t, err)
		mux := http.NewServeMux()
		for _, pattern := range []string{"POST /login", "GET /users/{id}", "GET /healthz", "/{$}"} {
			mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
		}
		h := l.Handler(mux)
		for range 3 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/healthz", nil))
		}
		assert.Equal(t, 1, strings.Count(log.String(), "weir-no-such-route"), "%s: %s", name, log.String())
	}
}

// isHidden reports whether the second of two limits of the same requests is said to have no effect.
func isHidden(t *testing.T, first, second limiter.Limit) bool {
	t.Helper()
	text := fmt.Sprintf("version: 1\nglobal: [{limit: %v, key: ip}, {limit: %v, key: ip, name: second}]\n", first, second)
	for _, warning := range parse(t, text, rules.Options{}).Warnings() {
		if warning.Field == "global.1" && strings.Contains(warning.Message, "which has no effect") {
			return true
		}
	}
	return false
}

func TestATighterLimitHidesAnother(t *testing.T) {
	for _, c := range []struct {
		limit, other limiter.Limit
		hides        bool
	}{
		{limiter.PerSecond(100), limiter.PerMinute(10_000), true},
		{limiter.PerSecond(100), limiter.PerMinute(6_000), false}, // a counter passes a little more around a boundary
		{limiter.PerSecond(10), limiter.PerMinute(610), true},     // a log does not, and a counter also counts a share of the minute before
		{limiter.PerSecond(10), limiter.PerMinute(609), false},
		{limiter.PerSecond(10), limiter.PerMinute(600).With(limiter.SlidingLog), true},
		{limiter.PerSecond(10), limiter.PerMinute(599).With(limiter.SlidingLog), false},
		{limiter.PerMinute(100), limiter.PerMinute(100), true},
		{limiter.PerMinute(101), limiter.PerMinute(100), false},
		{limiter.PerHour(1000), limiter.PerSecond(3002), true},
		{limiter.PerHour(1000), limiter.PerSecond(3001), false},
		{limiter.PerMinute(10_000), limiter.PerSecond(100), false},
		{limiter.PerSecond(1).WithBurst(5), limiter.PerMinute(1000), true},
		{limiter.PerSecond(1).WithBurst(5), limiter.PerMinute(69), false},
		{limiter.PerMinute(60).WithBurst(5), limiter.PerSecond(1).WithBurst(5), true}, // the same rate
		{limiter.PerMinute(60).WithBurst(6), limiter.PerSecond(1).WithBurst(5), false},
		{limiter.PerMinute(61).WithBurst(5), limiter.PerSecond(1).WithBurst(5), false},
		{limiter.PerMinute(60), limiter.PerMinute(1000).With(limiter.LeakyBucket), false}, // which also delays
		{limiter.Monthly(5).In("Europe/Berlin"), limiter.Monthly(5).In("Europe/Berlin"), true},
		{limiter.Monthly(5), limiter.Monthly(5).In("Europe/Berlin"), false}, // their months begin at other times
		{limiter.Daily(5), limiter.Limit{Events: 1_000_000, Per: 31 * 24 * time.Hour}, false},
		{limiter.PerSecond(1), limiter.Daily(90_001), true},
		{limiter.PerSecond(1), limiter.Daily(86_400), false}, // a day may have 25 hours
	} {
		assert.Equal(t, c.hides, isHidden(t, c.limit, c.other), "%v, %v", c.limit, c.other)
	}
}

// No traffic, such as bursts around a boundary, shows that there is a limit that is said to have no effect.
func TestALimitThatIsHiddenRefusesNothing(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		seed := rand.Uint64()
		t.Logf("seed: %d", seed)
		random := rand.New(rand.NewPCG(1, seed))
		draw := func(most int64) limiter.Limit {
			l := limiter.Limit{Events: 1 + random.Int64N(most), Per: []time.Duration{time.Second, 2 * time.Second, 7 * time.Second}[random.IntN(3)]}
			l.Algorithm = limiter.Algorithm(random.IntN(6))
			if l.Algorithm == limiter.TokenBucket && random.IntN(2) == 0 {
				l.Burst = 1 + random.Int64N(most)
			}
			return l
		}
		for hidden := 0; hidden < 100; {
			l, other := draw(15), draw(60)
			if !isHidden(t, l, other) {
				continue
			}
			hidden++
			first, second := limiter.Must(limiter.New(limiter.Config{Name: "first", Limit: l})), limiter.Must(limiter.New(limiter.Config{Name: "second", Limit: other}))
			pauses := []time.Duration{0, 0, 0, 0, 0, time.Microsecond, l.Per / 15, l.Per / 2, l.Per - time.Microsecond, l.Per, other.Per - time.Microsecond, other.Per}
			for range 100 {
				time.Sleep(pauses[random.IntN(len(pauses))])
				if d, err := first.Allow(t.Context(), "k"); err != nil || !d.Allowed {
					require.NoError(t, err)
					continue
				}
				d, err := second.Allow(t.Context(), "k")
				require.NoError(t, err)
				require.True(t, d.Allowed, "%v passed what %v refused", l, other)
			}
		}
	})
}
