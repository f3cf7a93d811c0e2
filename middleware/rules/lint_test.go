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
