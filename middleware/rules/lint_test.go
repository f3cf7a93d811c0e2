package rules_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

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
