package tokens_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/tokens"
)

const (
	asJSON   = "application/json"
	asEvents = "text/event-stream; charset=utf-8"
	asNDJSON = "application/x-ndjson"
)

// watch returns what is forwarded of an answer, and what it used.
func watch(t testing.TB, contentType string, body io.Reader, o tokens.Options) ([]byte, tokens.Report) {
	t.Helper()
	res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(body)}
	forwarded, report := forward(t, res, o)
	return forwarded, report
}

func forward(t testing.TB, res *http.Response, o tokens.Options) ([]byte, tokens.Report) {
	t.Helper()
	var reports []tokens.Report
	tokens.Watch(res, o, func(r tokens.Report) { reports = append(reports, r) })
	forwarded, _ := io.ReadAll(res.Body)
	require.NoError(t, res.Body.Close())
	require.Len(t, reports, 1)
	return forwarded, reports[0]
}

func event(data string) string { return "data: " + data + "\n\n" }

var dialects = []struct {
	name, contentType, body string
	want                    tokens.Report
}{
	{"a chat completion", asJSON, `{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}],
		"usage":{"prompt_tokens":1000,"completion_tokens":50,"total_tokens":1050,"prompt_tokens_details":{"cached_tokens":600,"audio_tokens":0}}}`,
		tokens.Report{Usage: tokens.Usage{Input: 400, Cached: 600, Output: 50}, Final: true}},
	{"a chat completion's stream", asEvents, event(`{"choices":[{"delta":{"content":"Hello"}}],"usage":null}`) +
		event(`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}}`) + event("[DONE]"),
		tokens.Report{Usage: tokens.Usage{Input: 9, Output: 12}, Final: true}},
	{"the usage in the last chunk with text", asEvents, event(`{"choices":[{"delta":{"content":"Hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":12}}`) + event("[DONE]"),
		tokens.Report{Usage: tokens.Usage{Input: 9, Output: 12}, Final: true}},
}

func TestAnAnswerSaysWhatItUsed(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			forwarded, report := watch(t, d.contentType, strings.NewReader(d.body), tokens.Options{})
			assert.Equal(t, d.want, report)
			assert.Equal(t, d.body, string(forwarded))
			forwarded, report = watch(t, d.contentType, iotest.OneByteReader(strings.NewReader(d.body)), tokens.Options{})
			assert.Equal(t, d.want, report)
			assert.Equal(t, d.body, string(forwarded))
		})
	}
}

func TestAskAddsOneMember(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"no options", `{"model":"m", "stream":true}`, `{"stream_options":{"include_usage":true},"model":"m", "stream":true}`},
		{"empty options", `{"stream":true,"stream_options": { } }`, `{"stream":true,"stream_options": {"include_usage":true } }`},
		{"other options", `{"stream_options":{"x":1},"stream":true}`, `{"stream_options":{"include_usage":true,"x":1},"stream":true}`},
		{"no thanks", `{"stream_options":{"include_usage":false},"stream":true}`, `{"stream_options":{"include_usage":true},"stream":true}`},
		{"null", `{"stream_options":null,"stream":true}`, `{"stream_options":{"include_usage":true},"stream":true}`},
		{"a null inside", `{"stream_options":{"include_usage":null},"stream":true}`, `{"stream_options":{"include_usage":true},"stream":true}`},
		{"escaped", `{"str\u0065am":true}`, `{"stream_options":{"include_usage":true},"str\u0065am":true}`},
		{"asked", `{"stream":true,"stream_options":{"include_usage":true}}`, ""},
		{"no stream", `{"model":"m"}`, ""},
		{"stream is false", `{"stream":false}`, ""},
		{"stream is a text", `{"stream":"true"}`, ""},
		{"stream is a list", `{"stream":[true]}`, ""},
		{"stream twice", `{"stream":false,"stream":true}`, ""},
		{"options twice", `{"stream":true,"stream_options":{},"stream_options":{}}`, ""},
		{"options are a text", `{"stream":true,"stream_options":"all"}`, ""},
		{"options are a list", `{"stream":true,"stream_options":[{}]}`, ""},
		{"deeper", `{"messages":[{"stream":true}]}`, ""},
		{"an array", `[{"stream":true}]`, ""},
		{"two values", `{"stream":true}{"stream":true}`, ""},
		{"unfinished", `{"stream":true`, ""},
		{"empty", ``, ""},
		{"a text", `"stream"`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := []byte(c.body)
			got, changed := tokens.Ask(body)
			assert.Equal(t, c.want != "", changed)
			if c.want == "" {
				c.want = c.body
			}
			assert.Equal(t, c.want, string(got))
		})
	}
}

func TestWhatTheClientDidNotAskForIsRemoved(t *testing.T) {
	const text, usage = `{"choices":[{"delta":{"content":"Hi"}}],"usage":null}`, `{"choices":[],"usage":{"completion_tokens":3}}`
	final := tokens.Report{Usage: tokens.Usage{Output: 3}, Final: true}
	for _, c := range []struct {
		name, body, want string
		report           tokens.Report
	}{
		{"a usage", event(text) + event(usage) + event("[DONE]"), event(text) + event("[DONE]"), final},
		{"with CR LF", strings.ReplaceAll(event(text)+event(usage)+event("[DONE]"), "\n", "\r\n"),
			strings.ReplaceAll(event(text)+event("[DONE]"), "\n", "\r\n"), final},
		{"with CR", strings.ReplaceAll(event(text)+event(usage)+event("[DONE]"), "\n", "\r"),
			strings.ReplaceAll(event(text)+event("[DONE]"), "\n", "\r"), final},
		{"between comments", ": a\n\n" + event(usage) + ": b\n" + event(text) + ":c", ": a\n\n: b\n" + event(text) + ":c", final},
		{"in several lines, with fields", "event: x\nid: 1\ndata: {\"choices\":[],\ndata:\"usage\":{\"completion_tokens\":3}\ndata:}\n\n", "", final},
		{"at the end", event(usage), "", final},
		{"no choices at all", event(`{"usage":{"completion_tokens":3}}`), event(`{"usage":{"completion_tokens":3}}`), tokens.Report{Usage: tokens.Usage{Output: 3}}},
		{"no usage", event(`{"choices":[],"prompt_filter_results":[{}]}`), event(`{"choices":[],"prompt_filter_results":[{}]}`), tokens.Report{}},
		{"too large", event(`{"x":"` + strings.Repeat("x", 9<<10) + `",` + usage[1:]), event(`{"x":"` + strings.Repeat("x", 9<<10) + `",` + usage[1:]), final},
	} {
		for name, reader := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "split": iotest.OneByteReader, "halves": iotest.HalfReader, "end": iotest.DataErrReader,
		} {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				forwarded, report := watch(t, asEvents, reader(strings.NewReader(c.body)), tokens.Options{Asked: true})
				assert.Equal(t, c.want, string(forwarded))
				assert.Equal(t, c.report, report)
			})
		}
	}
}

func TestUnitsRoundUp(t *testing.T) {
	u := tokens.Usage{Input: 7, Cached: 30, Written: 2, Output: 1}
	assert.EqualValues(t, 40, tokens.Weights{}.Units(u))
	assert.EqualValues(t, 17, tokens.Weights{Input: 1, Cached: 0.1, Written: 1.25, Output: 4}.Units(u)) // 16.5
	assert.EqualValues(t, 1, tokens.Weights{Cached: 0.1}.Units(tokens.Usage{Cached: 10}))
	assert.EqualValues(t, 3, tokens.Weights{Cached: 0.1}.Units(u))
	assert.EqualValues(t, int64(math.MaxInt64), tokens.Weights{Output: math.MaxFloat64}.Units(tokens.Usage{Output: 1 << 60}))
	assert.NoError(t, tokens.Weights{Output: math.MaxFloat64}.Validate())
	for _, wrong := range []float64{-1, math.NaN(), math.Inf(1)} {
		assert.ErrorContains(t, tokens.Weights{Written: wrong}.Validate(), "tokens: Weights.Written is ")
	}
}

func TestWithoutTheFinalCountTheReservationStays(t *testing.T) {
	seen := tokens.Report{Usage: tokens.Usage{Output: 30}}
	assert.EqualValues(t, 100, seen.Units(tokens.Weights{}, 100))
	assert.EqualValues(t, 30, seen.Units(tokens.Weights{}, 10))
	seen.Final = true
	assert.EqualValues(t, 30, seen.Units(tokens.Weights{}, 100))
}

func TestAStreamThatBreaksIsReportedOnce(t *testing.T) {
	broken := errors.New("broken")
	for _, o := range []tokens.Options{{}, {Asked: true}} {
		body := io.MultiReader(strings.NewReader(event(`{"choices":[{"delta":{"content":"12345678"}}]}`)+`data: {"ch`), iotest.ErrReader(broken))
		res := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {asEvents}}, Body: io.NopCloser(body)}
		var reports []tokens.Report
		tokens.Watch(res, o, func(r tokens.Report) { reports = append(reports, r) })
		forwarded, err := io.ReadAll(res.Body)
		require.ErrorIs(t, err, broken)
		require.NoError(t, res.Body.Close())
		assert.True(t, bytes.HasSuffix(forwarded, []byte(`data: {"ch`)))
		assert.Equal(t, []tokens.Report{{Usage: tokens.Usage{Output: 2}}}, reports)
	}
}
