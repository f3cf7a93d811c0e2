package rules_test

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules"
)

// wrappedFile is written as many services have theirs.
const wrappedFile = `rate_limits:
  default: {requests: 100, window: 60, algorithm: sliding_window_counter}
  endpoints:
    /api/v1/search: {requests: 30, window: 60, algorithm: token_bucket, burst: 10}
    /api/v1/upload: {requests: 10, window: 3600, algorithm: sliding_window_log}
  tiers:
    free: {requests: 100, window: 3600}
    premium: {requests: 10000, window: 3600}
`

func TestAFileBelowRateLimitsIsAWholeOne(t *testing.T) {
	r := parse(t, wrappedFile, rules.Options{})
	require.Len(t, r.Warnings(), 1)
	require.Equal(t, `2:3: is read as version 1: write version: 1 above rate_limits, so that later versions of this program read it the same way`, r.Warnings()[0].String())
	requireSchema(t, wrappedFile)
	e, err := r.Explain(rules.Request{Method: http.MethodPost, Path: "/api/v1/upload"})
	require.NoError(t, err)
	require.Equal(t, 5, e.Steps[2].Line)

	for _, empty := range []string{`{"rate_limits": {}}`, `{"version": 1, "rate_limits": {}}`} {
		_, err := rules.Parse([]byte(empty), rules.Options{})
		require.ErrorContains(t, err, "limits nothing", empty)
	}

	for _, with := range []string{"version: 1\n" + wrappedFile, wrappedFile + "  version: 1\n", `{"rate_limits": {"version": 1, "default": "3/s"}}`} {
		assert.Empty(t, parse(t, with, rules.Options{}).Warnings(), with)
		requireSchema(t, with)
	}
}

// The YAML of docs/rules.md is read as it is pasted, and the first file draws no warning.
func TestTheFilesOfTheDocsAreGood(t *testing.T) {
	text, err := os.ReadFile("../../docs/rules.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(blocks), 5)
	for i, block := range blocks {
		file := block[1]
		if strings.HasPrefix(file, "rules: ") || strings.HasPrefix(file, "on: ") {
			continue // tests, which weir test reads, or a workflow
		}
		if !strings.HasPrefix(file, "version: 1\n") {
			require.NotZero(t, i, "the first is a whole file")
			file = "version: 1\n" + file
		}
		r, err := rules.Parse([]byte(file), rules.Options{})
		require.NoError(t, err, file)
		if i == 0 {
			require.Empty(t, r.Warnings())
		}
	}
}
