package keyfunc_test

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
)

func TestAPathLeadsThroughObjects(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"x","a":{"b":{"c":{"d":"y"}}}}`:                           "y",
		`{"a" : {"z":[{"b":1}],"b":{"c":{"d":"y\u0041"}}}}`:                 "yA",
		`{"a":{"b":{"c":{"d":7}}}}`:                                         "7",
		`{"a":{"b":{"c":{}}}}`:                                              "none",
		`{"a":{"b":[{"c":{"d":"y"}}]}}`:                                     "none",
		`{"a":null}`:                                                        "none",
		`{"a.b.c.d":"y"}`:                                                   "none",
		`{"b":{"c":{"d":"y"}}}`:                                             "none",
		`{"a":{"b":{"c":{"d":"y"}}},"a":{}}`:                                "ambiguous",
		`{"a":{"b":{"c":{"d":"y"}},"B":{"c":{"d":"y"}}}}`:                   "ambiguous",
		`{"a":{"b":{"c":{"d":"y","D":"z"}}}}`:                               "ambiguous",
		`{"a":{"b":{"c":{"d":1e308}}}}`:                                     "ambiguous",
		`{"a":{"b":{"c":{"d":"y"}}}`:                                        "ambiguous",
		strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000): "ambiguous",
	} {
		t.Run(body[:min(len(body), 60)], func(t *testing.T) {
			key, err := keyfunc.JSONField("a.b.c.d", 1<<20)(post(body))
			switch want {
			case "none":
				assert.ErrorIs(t, err, keyfunc.ErrNoKey, key)
			case "ambiguous":
				assert.ErrorIs(t, err, keyfunc.ErrAmbiguous, key)
			default:
				require.NoError(t, err)
				assert.Equal(t, "body:a.b.c.d:"+want, key)
			}
		})
	}
}

func TestANumberOfTheBodyIsWholeAndClear(t *testing.T) {
	number, err := keyfunc.JSONNumber("max_tokens", 1<<10)
	require.NoError(t, err)
	for body, want := range map[string]int64{`{"max_tokens":0}`: 0, `{"max_tokens": 4096,"n":2}`: 4096, `{"max_tokens":9223372036854775807}`: 1<<63 - 1} {
		n, err := number(post(body))
		require.NoError(t, err, body)
		assert.Equal(t, want, n)
	}
	for _, value := range []string{
		`-1`, `-0`, `1.0`, `1.5`, `1e3`, `1e308`, `9223372036854775808`, `"4096"`, `true`, `[1]`, `{}`, `1,"max_tokens":2`, `1,"MAX_TOKENS":1`,
		`1,"max_tokens":"1"`, `1}{"max_tokens":9`, strings.Repeat("[", 600),
	} {
		_, err := number(post(`{"max_tokens":` + value + `}`))
		assert.ErrorIs(t, err, keyfunc.ErrAmbiguous, value)
	}
	_, err = number(post(`{"Max_Tokens":1}`))
	assert.ErrorIs(t, err, keyfunc.ErrAmbiguous, "a server that minds case finds no maximum")
	for _, body := range []string{"", "{}", `{"max_tokens":null}`, "[1]"} {
		_, err := number(post(body))
		assert.ErrorIs(t, err, keyfunc.ErrNoKey, body)
	}
	_, err = number(post(`{"max_tokens":1,"pad":"` + strings.Repeat("x", 1<<10) + `"}`))
	require.Error(t, err)
	assert.NotErrorIs(t, err, keyfunc.ErrAmbiguous, "it is answered 413")
	for _, path := range []string{"", "a.", "a:b", "a.b.c.d.e"} {
		_, err := keyfunc.JSONNumber(path, 1<<10)
		assert.Error(t, err, path)
		assert.Panics(t, func() { keyfunc.JSONField(path, 1<<10) }, path)
	}
	_, err = keyfunc.JSONNumber("a", 10<<20+1)
	assert.ErrorContains(t, err, "maxBytes is 10485761")
}

// However many keys read a body, it is in memory once, and parsing it takes next to nothing more.
func TestABodyIsReadAndKeptOnce(t *testing.T) {
	const size = 4 << 20
	source := &reader{Reader: io.LimitReader(io.MultiReader(strings.NewReader(`{"model":"m","pad":"`), zeros{}), size-2)}
	r := &http.Request{Body: io.NopCloser(io.MultiReader(source, strings.NewReader(`"}`)))}
	key, err := keyfunc.Parse("json:model", nil)
	require.NoError(t, err)
	assert.Equal(t, "body:model:m", keyOf(t, key, r))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 8 {
		assert.Equal(t, "body:model:m", keyOf(t, key, r))
	}
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
	assert.Equal(t, size-2, source.bytes)
	left, err := io.Copy(io.Discard, r.Body)
	require.NoError(t, err)
	assert.EqualValues(t, size, left)
}
