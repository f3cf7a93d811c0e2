package rules_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules"
)

var overridesFile = `version: 1
proxies: {trusted: [127.0.0.1]}
default: {limit: 3/h sliding_log, key: user|ip, overrides: {"user:carla": 6/h sliding_log, "user:finn": 2/h sliding_log, 203.0.113.7: {requests: 1, window: 1h, algorithm: sliding_log}}}
`

func TestTheLimitOfAKeyIsExplained(t *testing.T) {
	r := parse(t, overridesFile, rules.Options{})
	require.Empty(t, r.Warnings())
	e, err := r.Explain(rules.Request{Path: "/", User: "finn"})
	require.NoError(t, err)
	require.Equal(t, `2/1h sliding-log for "user:finn", a limit of its own`, e.Steps[2].Says)
}
