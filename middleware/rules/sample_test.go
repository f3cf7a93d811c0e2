package rules_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

// keyOf is the key of a request under a rule.
func keyOf(t testing.TB, r middleware.Rule, c call) string {
	t.Helper()
	key, err := r.Key(c.request())
	if err != nil {
		return err.Error()
	}
	key, _ = keyfunc.Classify(key)
	return key
}

// What both make of a limit is what package limiter reads in its own words.
func TestBothSpellingsOfALimitAreEqual(t *testing.T) {
	for short, long := range map[string]string{
		"100/60s":                       "requests: 100, window: 60",
		"100/1m":                        "requests: 100, window: 60s",
		"10_000/h":                      "requests: 10_000, window: 1h",
		"5/10m sliding_log":             "requests: 5, window: 10m, algorithm: sliding_window_log",
		"5/10m sliding-window":          "requests: 5, window: 600s, algorithm: sliding_window",
		"5/10m sliding_window_counter":  "requests: 5, window: 600s, algorithm: sliding_window_counter",
		"10/s burst 20":                 "requests: 10, window: 1s, burst: 20",
		"10/s token_bucket":             "requests: 10, window: 1s, algorithm: gcra",
		"10/s leaky_bucket burst 3":     "requests: 10, window: 1s, algorithm: leaky_bucket, burst: 3",
		"10/30d fixed_window":           "requests: 10, window: 30d, algorithm: fixed_window",
		"10/1h30m":                      "requests: 10, window: 90m",
		"{limit: 10/s, burst: 20}":      "requests: 10, window: 1s, algorithm: token_bucket, burst: 20",
		"{limit: 10/s burst 20}":        "limit: 10/s, algorithm: token_bucket, burst: 20",
		"{limit: 7/s, algorithm: gcra}": "limit: 7/s token_bucket",
		"{limit: 60/s burst 200, algorithm: leaky_bucket}":          "limit: 60/s leaky_bucket burst 200",
		"{limit: 60/s, burst: 200, algorithm: leaky_bucket}":        "limit: 60/s leaky_bucket burst 200",
		"{limits: [3/1s, 20/10s], algorithm: sliding_log}":          "limits: [3/s sliding_log, 20/10s sliding_log]",
		"{limits: [3/1s burst 9, 20/10s], algorithm: token_bucket}": "limits: [3/s burst 9, 20/10s token_bucket]",
		"{limits: [3/1s token_bucket, 20/10s], algorithm: gcra}":    "limits: [3/s token_bucket, 20/10s token_bucket]",
	} {
		one := parse(t, "version: 1\ndefault: "+short+"\n", rules.Options{}).Config().Default[0].Limit
		other := parse(t, "version: 1\ndefault: {"+long+"}\n", rules.Options{}).Config().Default[0].Limit
		assert.Equal(t, one, other, "%s and %s", short, long)
		if !strings.HasPrefix(short, "{") {
			want, err := limiter.Parse(short)
			require.NoError(t, err)
			assert.Equal(t, want, one, short)
		}
	}
}

func TestAWindowIsInSecondsUnlessItSays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"60": time.Minute, `"60"`: time.Minute, "1": time.Second, "3_600": time.Hour, "31_622_400": 366 * 24 * time.Hour,
		"60s": time.Minute, "1m": time.Minute, "hour": time.Hour, "day": 24 * time.Hour, "30d": 30 * 24 * time.Hour,
		"500ms": 500 * time.Millisecond, "1h30m": 90 * time.Minute, "1d12h": 36 * time.Hour, "1.5s": 1500 * time.Millisecond,
		"0": 0, "-1": 0, "+1": 0, "1.5": 0, "060": 0, "_60": 0, "6__0": 0, "60_": 0, "1_0s": 0, "1e3": 0, "0x10": 0,
		"31_622_401": 0, "99999999999999999999": 0, "1w": 0, "-1s": 0, `""`: 0, `" 60"`: 0, "60 s": 0, "1ns": 0, ".": 0,
	} {
		r, err := rules.Parse([]byte("version: 1\ndefault: {requests: 1, window: "+text+"}\n"), rules.Options{})
		if want == 0 {
			assert.Error(t, err, text)
		} else if assert.NoError(t, err, text) {
			assert.Equal(t, want, r.Config().Default[0].Limit.(limiter.Limit).Per, text)
		}
	}
}

// Each scalar of the format with what is read of it. An empty want is a problem.
func TestScalarsAreReadAsTheyAreMeant(t *testing.T) {
	const escalate = "escalate: {after: 1, within: 1m, ban: 1m, factor: "
	for field, texts := range map[string]map[string]string{
		"algorithm: ": {
			"sliding_window": "sliding-window", "sliding_window_counter": "sliding-window-counter", "fixed_window": "fixed-window",
			"token_bucket": "token-bucket", "gcra": "token-bucket", "leaky_bucket": "leaky-bucket", "sliding_log": "sliding-log",
			"sliding_window_log": "sliding-log", "Token-Bucket": "token-bucket", "slidingwindow": "", "1": "", "true": "",
		},
		"on_outage: ": {"local": "local", "open": "open", "closed": "closed", "close": "", `""`: "", "1": ""},
		"mode: ":      {"enforce": "false", "shadow": "true", "Shadow": "", "of": "", "false": ""},
		"no_key: ":    {"share": "0", "skip": "1", "bad_request": "2", "unauthorized": "3", "400": "", "Skip": ""},
		"soft: ": {"80%": "80", `"1%"`: "1", "99%": "99", "off": "0", "{at: 50%}": "50", "{at: off}": "0",
			"0%": "", "100%": "", "80": "", "08%": "", "+8%": "", "8.5%": "", "-5%": "", "%": "", "80 %": "", "on": ""},
		escalate: {"1}": "1", "2.5}": "2.5", "1000}": "1000", `"3"}`: "3", "0}": "", "0.99}": "", "1001}": "", ".nan}": "",
			".inf}": "", "1_0}": "", "0x2}": "", "-2}": "", "two}": ""},
		"cost: ": {"5": "5", "{units: 5}": "5", `"5"`: "5", "1_000": "1000", "10_000": "10000", "10_001": "",
			"9223372036854775807": "", "0": "", "-1": "", "+5": "", "05": "", "5.0": "", "9223372036854775808": "", "_5": "", "5_": "", "1MiB": "",
			"1_2_3": "123", "010": "", "0x10": "", "0o10": "", "0b1": "", "1e3": "", "1__0": "", "0_1": "", "1,000": "", "1 000": "", "'1 '": "", "''": "", ".5": "", ".inf": "", ".nan": "", "١": ""},
	} {
		for text, want := range texts {
			r, err := rules.Parse([]byte("version: 1\ndefault: {limit: 10_000/s, "+field+text+"}\n"), rules.Options{})
			if want == "" {
				assert.Error(t, err, "%s%s", field, text)
				continue
			}
			if !assert.NoError(t, err, "%s%s", field, text) {
				continue
			}
			rule := r.Config().Default[0]
			got := map[string]any{
				"algorithm: ": rule.Limit.(limiter.Limit).Algorithm, "on_outage: ": rule.OnOutage, "mode: ": rule.Mode == middleware.Shadow, "no_key: ": rule.NoKey,
				"soft: ": rule.SoftAt, escalate: rule.Escalate.Factor, "cost: ": strings.Fields(strings.Trim(fmt.Sprint(rule.Cost), "{}"))[0],
			}[field]
			assert.Equal(t, want, fmt.Sprint(got), "%s%s", field, text)
		}
	}
}

func TestASizeIsANumberAndAUnit(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "4096": 4096, "4_096": 4096, "500B": 500, "1kB": 1000, "1KB": 1000, "2MB": 2e6, "3GB": 3e9,
		"1KiB": 1 << 10, "1MiB": 1 << 20, "2GiB": 2 << 30, `"1MiB"`: 1 << 20, "8_589_934_591GiB": (1<<33 - 1) << 30,
		"0": 0, "-1": 0, "+1": 0, "01": 0, "1.5MiB": 0, "1 MiB": 0, "MiB": 0, "1MiBMiB": 0, "1Mb": 0, "1mib": 0, "1TiB": 0,
		"1M": 0, "_1": 0, "1__0": 0, `""`: 0, "8_589_934_592GiB": 0, "9223372036854775808": 0, "0x10": 0, "1e3": 0, "on": 0,
	} {
		r, err := rules.Parse([]byte("version: 1\ndefault: {limit: 10/s, cost: {header: X-Size, per: "+text+"}}\n"), rules.Options{})
		if want == 0 {
			assert.Error(t, err, text)
			continue
		}
		if !assert.NoError(t, err, text) {
			continue
		}
		cost := r.Config().Default[0].Cost
		sized := func(n int64) *http.Request { return call{header: map[string]string{"X-Size": fmt.Sprint(n)}}.request() }
		assert.EqualValues(t, 1, cost.Of(sized(want)), text)
		if want < 1<<62 {
			assert.EqualValues(t, 2, cost.Of(sized(want+1)), text)
		}
	}
}

func TestSoftOfARuleGoesBeforeThatOfTheFile(t *testing.T) {
	c := parse(t, "version: 1\nsoft: 80%\nglobal: {limit: 3/s, soft: off, key: global}\ndefault: {limit: 3/s, soft: 50%}\ntiers: {a: 3/s}\n", rules.Options{}).Config()
	assert.Equal(t, 0, c.Rules[0].SoftAt)
	assert.Equal(t, 50, c.Default[0].SoftAt)
	assert.Equal(t, 80, c.ByTier["a"][0].SoftAt)
}
