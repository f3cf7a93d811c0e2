package rules_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/middleware/rules"
)

func TestAnAlgorithmStandsBesideALimitOrSeveral(t *testing.T) {
	for text, want := range map[string]string{
		"{limits: [3/1s, 20/10s], algorithm: sliding_log}":            "3/1s sliding-log, 20/10s sliding-log",
		"{limits: [3/1s sliding-log, 20/10s], algorithm: gcra}":       "",
		"{limits: [3/1s burst 9, 20/10s], algorithm: token_bucket}":   "3/1s token-bucket burst 9, 20/10s token-bucket",
		"{limits: [3/1s token_bucket, 20/10s], algorithm: gcra}":      "3/1s token-bucket, 20/10s token-bucket",
		"{limit: 60/s burst 200, algorithm: leaky_bucket}":            "60/1s leaky-bucket burst 200",
		"{limit: 60/s token-bucket burst 9, algorithm: leaky_bucket}": "",
		"{limit: 60/s sliding-window, algorithm: fixed_window}":       "",
		"{limit: 60/s, burst: 200, algorithm: leaky_bucket}":          "60/1s leaky-bucket burst 200",
		"{requests: 60, window: 1s, algorithm: leaky_bucket}":         "60/1s leaky-bucket",
	} {
		r, err := rules.Parse([]byte("version: 1\ndefault: "+text), rules.Options{})
		if want == "" {
			assert.ErrorContains(t, err, "default.algorithm: is ", text)
			continue
		}
		if assert.NoError(t, err, text) {
			assert.Equal(t, want, r.Config().Default[0].Limit.String(), text)
		}
	}
}
