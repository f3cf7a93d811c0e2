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
	{"a usage in each chunk", asEvents, event(`{"choices":[{"delta":{"content":"Hel"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`) +
		event(`{"choices":[{"delta":{"content":"lo"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":12}}`) + event("[DONE]"),
		tokens.Report{Usage: tokens.Usage{Input: 9, Output: 12}, Final: true}},
	{"cached and written tokens of a chat completion", asJSON, `{"usage":{"prompt_tokens":100,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":20,"cache_write_tokens":30}}}`,
		tokens.Report{Usage: tokens.Usage{Input: 50, Cached: 20, Written: 30, Output: 5}, Final: true}},
	{"reasoning that only the total has", asJSON, `{"usage":{"prompt_tokens":100,"completion_tokens":5,"total_tokens":405,"completion_tokens_details":{"reasoning_tokens":300}}}`,
		tokens.Report{Usage: tokens.Usage{Input: 100, Output: 305}, Final: true}},
	{"embeddings", asJSON, `{"object":"list","data":[{"embedding":[0.1,-2e-5]}],"usage":{"prompt_tokens":8,"total_tokens":8}}`,
		tokens.Report{Usage: tokens.Usage{Input: 8}, Final: true}},

	{"a response", asJSON, `{"object":"response","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"Hi"}]}],
		"usage":{"input_tokens":75,"input_tokens_details":{"cached_tokens":25,"cache_write_tokens":5},"output_tokens":1186,"output_tokens_details":{"reasoning_tokens":1024},"total_tokens":1261}}`,
		tokens.Report{Usage: tokens.Usage{Input: 45, Cached: 25, Written: 5, Output: 1186}, Final: true}},
	{"a response in the background", asJSON, `{"object":"response","status":"queued","output":[],"usage":null}`, tokens.Report{}},
	{"a response's stream", asEvents, responseStream("response.completed"), tokens.Report{Usage: tokens.Usage{Input: 50, Cached: 25, Output: 7}, Final: true}},
	{"a response that was cut", asEvents, responseStream("response.incomplete"), tokens.Report{Usage: tokens.Usage{Input: 50, Cached: 25, Output: 7}, Final: true}},
	{"a response that failed", asEvents, responseStream("response.failed"), tokens.Report{Usage: tokens.Usage{Input: 50, Cached: 25, Output: 7}, Final: true}},
	{"a response that goes on", asEvents, responseStream("response.in_progress"), tokens.Report{Usage: tokens.Usage{Input: 50, Cached: 25, Output: 7}}},

	{"a message", asJSON, `{"type":"message","role":"assistant","content":[{"type":"text","text":"Hi!"}],"stop_reason":"end_turn",
		"usage":{"input_tokens":2095,"cache_creation_input_tokens":100,"cache_read_input_tokens":2000,"output_tokens":503}}`,
		tokens.Report{Usage: tokens.Usage{Input: 2095, Cached: 2000, Written: 100, Output: 503}, Final: true}},
	{"a message's stream", asEvents, messageStart + messageText + named("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":15}}`) + messageStop,
		tokens.Report{Usage: tokens.Usage{Input: 25, Cached: 7, Written: 3, Output: 15}, Final: true}},
	{"a message with tools of the server", asEvents, messageStart + messageText + named("message_delta", `{"type":"message_delta","delta":{"stop_reason":null},"usage":{"input_tokens":25,"output_tokens":15}}`) +
		named("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":10682,"cache_read_input_tokens":70,"output_tokens":510}}`) + messageStop,
		tokens.Report{Usage: tokens.Usage{Input: 10682, Cached: 70, Written: 3, Output: 510}, Final: true}},
	{"a message that breaks off", asEvents, messageStart + messageText, tokens.Report{Usage: tokens.Usage{Input: 25, Cached: 7, Written: 3, Output: 3}}},
	{"a message without its usage", asEvents, messageStart + messageText + named("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`) + messageStop,
		tokens.Report{Usage: tokens.Usage{Input: 25, Cached: 7, Written: 3, Output: 3}}},
	{"only the beginning of a message", asEvents, messageStart + messageStop, tokens.Report{Usage: tokens.Usage{Input: 25, Cached: 7, Written: 3, Output: 1}}},

	{"an answer of Gemini", asJSON, `{"candidates":[{"content":{"parts":[{"text":"Hi"}],"role":"model"},"finishReason":"STOP"}],
		"usageMetadata":{"promptTokenCount":1000,"cachedContentTokenCount":600,"candidatesTokenCount":10,"thoughtsTokenCount":90,"toolUsePromptTokenCount":5,"totalTokenCount":1105}}`,
		tokens.Report{Usage: tokens.Usage{Input: 405, Cached: 600, Output: 100}, Final: true}},
	{"a stream of Gemini", asEvents, event(geminiText) + event(geminiEnd), tokens.Report{Usage: tokens.Usage{Input: 4, Output: 12}, Final: true}},
	{"an array of Gemini", asJSON, "[" + geminiText + "\n,\r\n" + geminiEnd + "]", tokens.Report{Usage: tokens.Usage{Input: 4, Output: 12}, Final: true}},
	{"a stream of Gemini that ends early", asEvents, event(geminiText), tokens.Report{Usage: tokens.Usage{Input: 4, Output: 3}}},
	{"an array of Gemini that ends early", asJSON, "[" + geminiText + "]", tokens.Report{Usage: tokens.Usage{Input: 4, Output: 3}}},
	{"a prompt that Gemini blocks", asJSON, `{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":4,"totalTokenCount":4}}`, tokens.Report{Usage: tokens.Usage{Input: 4}, Final: true}},

	{"a chat of Ollama", asJSON, `{"model":"m","message":{"role":"assistant","content":"Hi"},"done":true,"total_duration":5191566416,"prompt_eval_count":26,"eval_count":298}`,
		tokens.Report{Usage: tokens.Usage{Input: 26, Output: 298}, Final: true}},
	{"a chat's stream of Ollama", asNDJSON, `{"message":{"content":"The sky"},"done":false}` + "\n" + `{"message":{"content":""},"done":true,"prompt_eval_count":26,"eval_count":282}` + "\n",
		tokens.Report{Usage: tokens.Usage{Input: 26, Output: 282}, Final: true}},
	{"a text's stream of Ollama that breaks off", asNDJSON, `{"response":"The sky","done":false}` + "\n" + `{"response":"is b`,
		tokens.Report{Usage: tokens.Usage{Output: 3}}},
}

func named(name, data string) string { return "event: " + name + "\n" + event(data) }

func responseStream(last string) string {
	return named("response.created", `{"type":"response.created","response":{"status":"in_progress","usage":null}}`) +
		named("response.output_text.delta", `{"type":"response.output_text.delta","delta":"Hello"}`) +
		named(last, `{"type":"`+last+`","response":{"output":[{"content":[{"text":"Hello"}]}],"usage":{"input_tokens":75,"input_tokens_details":{"cached_tokens":25},"output_tokens":7,"total_tokens":82}}}`)
}

var (
	messageStart = named("message_start", `{"type":"message_start","message":{"content":[],"usage":{"input_tokens":25,"cache_read_input_tokens":7,"cache_creation_input_tokens":3,"output_tokens":1}}}`)
	messageText  = named("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}`) + named("ping", `{"type":"ping"}`) +
		named("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\u4e2d\ud83d\ude00"}}`) // 5, 3 and 4 bytes
	messageStop = named("message_stop", `{"type":"message_stop"}`)
)

const (
	geminiText = `{"candidates":[{"content":{"parts":[{"text":"0123456789"}]}}],"usageMetadata":{"promptTokenCount":4,"totalTokenCount":4}}`
	geminiEnd  = `{"candidates":[{"content":{"parts":[{"text":"."}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":12,"totalTokenCount":16}}`
)

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
		{"only a closing bracket", `}`, ""},
		{"a text", `"stream"`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := append(make([]byte, 0, 1<<10), c.body...)
			got, changed := tokens.Ask(body)
			assert.Equal(t, c.want != "", changed)
			assert.Equal(t, c.body, string(body))
			if c.want == "" {
				c.want = c.body
			}
			assert.Equal(t, c.want, string(got))
		})
	}
}

func TestWhatTheClientDidNotAskForIsRemoved(t *testing.T) {
	const text, usage = `{"choices":[{"delta":{"content":"Hi"}}],"usage":null}`, `{"choices":[],"usage":{"completion_tokens":3}}`
	const empty = `{"choices":[{"delta":{}}]}`
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
		{"between comments", ": a\n\n" + event(usage) + ": b\n" + event(empty) + ":c", ": a\n\n: b\n" + event(empty) + ":c", final},
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
