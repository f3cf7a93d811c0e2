package rules_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
