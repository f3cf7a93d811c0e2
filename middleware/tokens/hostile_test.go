package tokens_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/tokens"
)

func TestHostileAnswersAreNotChargedTooLittle(t *testing.T) {
	final := func(in, out int64) tokens.Report {
		return tokens.Report{Usage: tokens.Usage{Input: in, Output: out}, Final: true}
	}
	seen := func(in, out int64) tokens.Report {
		return tokens.Report{Usage: tokens.Usage{Input: in, Output: out}}
	}
	for _, c := range []struct {
		name, contentType, body string
		want                    tokens.Report
	}{
		{"usage twice", asJSON, `{"usage":{"prompt_tokens":5,"completion_tokens":100},"usage":{"prompt_tokens":5,"completion_tokens":0}}`, final(5, 100)},
		{"a count twice", asJSON, `{"usage":{"completion_tokens":100,"completion_tokens":1}}`, final(0, 100)},
		{"cached twice", asJSON, `{"usage":{"prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":100,"cached_tokens":0}}}`, final(100, 0)},
		{"more cached than there are", asJSON, `{"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":1000}}}`,
			tokens.Report{Usage: tokens.Usage{Cached: 5}, Final: true}},
		{"a negative count", asJSON, `{"choices":[{"message":{"content":"12345678"}}],"usage":{"prompt_tokens":5,"completion_tokens":-1}}`, seen(5, 2)},
		{"a count beyond all numbers", asJSON, `{"usage":{"prompt_tokens":5,"completion_tokens":1e308}}`, seen(5, 0)},
		{"a count beyond floats", asJSON, `{"usage":{"prompt_tokens":5,"completion_tokens":1e999}}`, seen(5, 0)},
		{"a count of 100 digits", asJSON, `{"usage":{"prompt_tokens":5,"completion_tokens":` + strings.Repeat("0", 99) + `7}}`, seen(5, 0)},
		{"a count that is no number", asJSON, `{"usage":{"prompt_tokens":5,"completion_tokens":NaN}}`, seen(5, 0)},
		{"an infinite count", asJSON, `{"usage":{"prompt_tokens":5,"completion_tokens":Infinity}}`, seen(5, 0)},
		{"a count as text", asJSON, `{"usage":{"prompt_tokens":5,"completion_tokens":"7"}}`, seen(5, 0)},
		{"a count that is an object", asJSON, `{"usage":{"prompt_tokens":5,"completion_tokens":{}}}`, seen(5, 0)},
		{"a count with a fraction", asJSON, `{"usage":{"prompt_tokens":5.0,"completion_tokens":6.5}}`, final(5, 7)},
		{"no count", asJSON, `{"choices":[{"message":{"content":"12345"}}],"usage":{}}`, seen(0, 2)},
		{"counts that are null", asJSON, `{"choices":[{"message":{"content":"12345"}}],"usage":{"completion_tokens":null}}`, seen(0, 2)},
		{"usage is a text", asJSON, `{"usage":"prompt_tokens"}`, seen(0, 0)},
		{"usage in the text", asJSON, `{"choices":[{"message":{"content":"{\"usage\":{\"completion_tokens\":1}}"}}]}`, seen(0, 9)},
		{"usage in the content", asJSON, `{"choices":[{"usage":{"completion_tokens":1},"message":{"usage":{"completion_tokens":1}}}]}`, seen(0, 0)},
		{"usage deep in an array", asJSON, `{"a":[[[[[[[[[[{"usage":{"completion_tokens":1}}]]]]]]]]]]}`, seen(0, 0)},
		{"escaped names", asJSON, `{"us\u0061ge":{"completion\u005Ftokens":7}}`, final(0, 7)},
		{"names with control characters", asJSON, `{"us\u0000age":{"completion_tokens":7},"usage\n":{"completion_tokens":8},"i\nput_tokens":1}`, seen(0, 0)},
		{"a broken escape", asJSON, `{"us\u00zzge":1,"usage":{"completion_tokens":7}}`, seen(0, 0)},
		{"text after the end", asJSON, `{"usage":{"completion_tokens":7}}}}]]"`, final(0, 7)},
		{"wrong brackets", asJSON, `{"x":[},"usage":{"completion_tokens":7}}`, seen(0, 0)},
		{"an unfinished answer", asJSON, `{"usage":{"completion_tokens":7}`, seen(0, 7)},
		{"text that is cut", asJSON, `{"choices":[{"message":{"content":"123456789`, seen(0, 3)},
		{"only a closing bracket", asJSON, `}`, seen(0, 0)},
		{"a closing bracket first", asEvents, event(`]`) + event(`{"choices":[],"usage":{"completion_tokens":7}}`), final(0, 7)},
		{"no JSON", asJSON, `usage: 7`, seen(0, 0)},
		{"nothing", asJSON, ``, seen(0, 0)},
		{"a byte order mark", asEvents, "\ufeff" + event(`{"choices":[],"usage":{"completion_tokens":7}}`), final(0, 7)},
		{"half a byte order mark", asEvents, "\xefdata: {}\n\n" + event(`{"choices":[],"usage":{"completion_tokens":7}}`), final(0, 7)},
		{"carriage returns", asEvents, "data: {\"choices\":[],\rdata: \"usage\":{\"completion_tokens\":7}\rdata:}\r\r", final(0, 7)},
		{"comments and other fields", asEvents, ": data: {\"usage\":{\"completion_tokens\":9}}\ndataset: {\"usage\":{\"completion_tokens\":9}}\n data: {\"usage\":{\"completion_tokens\":9}}\nid\ndata\n" + event(`{"choices":[],"usage":{"completion_tokens":7}}`), final(0, 7)},
		{"one event's usage, another one's end", asEvents, event(`{"choices":[{}],"usage":{"completion_tokens":1}}`) + event(`{"choices":[{"delta":{"content":"123456789"}}]}`) + event("[DONE]"), seen(0, 3)},
		{"text after the usage", asEvents, event(`{"choices":[],"usage":{"completion_tokens":1}}`) + event(`{"choices":[{"delta":{"content":"123456789"}}]}`) + event("[DONE]"), seen(0, 3)},
		{"an end without usage", asEvents, event(`{"choices":[{"delta":{"content":"123456789"}}]}`) + event("[DONE]"), seen(0, 3)},
		{"the end in the text", asEvents, event(`{"choices":[{"delta":{"content":"[DONE]"}}],"usage":{"completion_tokens":1}}`), seen(0, 2)},
		{"an unfinished event before a usage", asEvents, event(`{"choices":[{"delta":{"content":"12345`) + event(`{"choices":[],"usage":{"completion_tokens":7}}`), final(0, 7)},
		{"a wrong count, then a right one", asEvents, event(`{"choices":[],"usage":{"completion_tokens":-7}}`) + event(`{"choices":[],"usage":{"completion_tokens":7}}`), seen(0, 7)},
	} {
		t.Run(c.name, func(t *testing.T) {
			forwarded, report := watch(t, c.contentType, strings.NewReader(c.body), tokens.Options{})
			assert.Equal(t, c.want, report)
			assert.Equal(t, c.body, string(forwarded))
			forwarded, report = watch(t, c.contentType, iotest.OneByteReader(strings.NewReader(c.body)), tokens.Options{})
			assert.Equal(t, c.want, report)
			assert.Equal(t, c.body, string(forwarded))
		})
	}
}

// repeated is n bytes long.
type repeated struct {
	text string
	n, i int
}

func (r *repeated) Read(p []byte) (n int, err error) {
	for n < len(p) && r.n > 0 {
		c := copy(p[n:min(len(p), n+r.n)], r.text[r.i:])
		n, r.n, r.i = n+c, r.n-c, (r.i+c)%len(r.text)
	}
	if r.n == 0 {
		err = io.EOF
	}
	return n, err
}

func TestLargeAnswersTakeNoMemory(t *testing.T) {
	const large = 1 << 20
	end := `"},"usage":{"completion_tokens":7}}`
	for _, c := range []struct {
		name, contentType, begin, repeat, end string
		o                                     tokens.Options
		final                                 bool
	}{
		{"a member of 64 MiB", asJSON, `{"x":{"x":"`, "x", end, tokens.Options{}, true},
		{"a name of 64 MiB", asJSON, `{"x":{"`, "usage", `":"` + end, tokens.Options{}, true},
		{"a number of 64 MiB", asJSON, `{"x":{"x":`, "7", `,"x":"` + end, tokens.Options{}, true},
		{"escapes", asJSON, `{"x":{"x":"`, `\u0041`, end, tokens.Options{}, false},
		{"deep arrays", asJSON, `{"x":`, "[", "", tokens.Options{}, false},
		{"deep objects", asJSON, `{"usage":`, `{"usage":`, "", tokens.Options{}, false},
		{"a line without end", asEvents, "data: ", "x", "", tokens.Options{}, false},
		{"a name without end", asEvents, "", "data", "", tokens.Options{}, false},
		{"an event without end", asEvents, "", "data: [\n", "", tokens.Options{Asked: true}, false},
		{"comments without end", asEvents, "", ":\n", "", tokens.Options{Asked: true}, false},
		{"empty lines", asEvents, "", "\r\n", "", tokens.Options{Asked: true}, false},
		{"usages without end", asEvents, "", event(`{"choices":[],"usage":{"completion_tokens":7}}`), "", tokens.Options{Asked: true}, true},
		{"the last event has it all", asEvents, `data: {"choices":[],"x":{"x":"`, "x", end + "\n\n", tokens.Options{Asked: true}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			size := large
			if c.name == "a member of 64 MiB" {
				size = 64 << 20
			}
			body := io.MultiReader(strings.NewReader(c.begin), &repeated{text: c.repeat, n: size}, strings.NewReader(c.end))
			res := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {c.contentType}}, Body: io.NopCloser(body)}
			var report tokens.Report
			buffer := make([]byte, 32<<10)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			tokens.Watch(res, c.o, func(r tokens.Report) { report = r })
			_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, res.Body, buffer)
			require.NoError(t, err)
			runtime.ReadMemStats(&after)
			assert.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<10))
			assert.Equal(t, c.final, report.Final)
		})
	}
}

func TestAnErrorWithoutUsageCostsNothing(t *testing.T) {
	for _, c := range []struct {
		status   int
		encoding string
		body     string
		want     tokens.Report
	}{
		{429, "", `{"error":{"message":"slow down"}}`, tokens.Report{Final: true}},
		{500, "gzip", "\x1f\x8b", tokens.Report{Final: true}},
		{502, "", ``, tokens.Report{Final: true}},
		{400, "", `{"error":{},"usage":{"prompt_tokens":7}}`, tokens.Report{Usage: tokens.Usage{Input: 7}, Final: true}},
		{400, "", `{"error":{},"usage":{"prompt_tokens":-7}}`, tokens.Report{}},
		{200, "gzip", `{"usage":{"prompt_tokens":7}}`, tokens.Report{}},
		{200, "Identity", `{"usage":{"prompt_tokens":7}}`, tokens.Report{Usage: tokens.Usage{Input: 7}, Final: true}},
		{204, "", ``, tokens.Report{}},
	} {
		t.Run(fmt.Sprint(c.status, c.encoding, c.body), func(t *testing.T) {
			res := &http.Response{StatusCode: c.status, Header: http.Header{"Content-Type": {asJSON}, "Content-Encoding": {c.encoding}}, Body: io.NopCloser(strings.NewReader(c.body))}
			forwarded, report := forward(t, res, tokens.Options{Asked: true})
			assert.Equal(t, c.body, string(forwarded))
			assert.Equal(t, c.want, report)
		})
	}
}

func TestUpgradesKeepTheirBody(t *testing.T) {
	body := struct{ io.ReadWriteCloser }{}
	res := &http.Response{StatusCode: http.StatusSwitchingProtocols, Header: http.Header{}, Body: body}
	var reports []tokens.Report
	tokens.Watch(res, tokens.Options{}, func(r tokens.Report) { reports = append(reports, r) })
	assert.Equal(t, io.ReadCloser(body), res.Body)
	assert.Equal(t, []tokens.Report{{}}, reports)
}

func TestABodyMayBeClosedWhileItIsRead(t *testing.T) {
	for _, o := range []tokens.Options{{}, {Asked: true}} {
		var reports []tokens.Report
		from, to := io.Pipe()
		res := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {asEvents}}, Body: from}
		tokens.Watch(res, o, func(r tokens.Report) { reports = append(reports, r) })
		var readers sync.WaitGroup
		readers.Go(func() { _, _ = io.Copy(io.Discard, res.Body) })
		_, err := to.Write([]byte(event(`{"choices":[{"delta":{"content":"12345678"}}]}`)))
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		readers.Wait()
		require.Len(t, reports, 1)
	}
}

// Each byte is returned as soon as it cannot belong to an event that is removed.
func TestNothingElseIsHeldBack(t *testing.T) {
	for _, piece := range []string{
		": ping\n", ": ping\r", event(`{"choices":[{}]}`), `data: {"id":"x","choices":[{`, "data: [", "data: {}", `data: {"choices":null`, "\n", "event: error\ndata: x",
	} {
		from, to := io.Pipe()
		res := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {asEvents}}, Body: from}
		tokens.Watch(res, tokens.Options{Asked: true}, func(tokens.Report) {})
		go to.Write([]byte(piece)) //nolint:errcheck // the test reads it
		got := make([]byte, len(piece))
		_, err := io.ReadFull(res.Body, got)
		require.NoError(t, err)
		assert.Equal(t, piece, string(got))
		require.NoError(t, res.Body.Close())
	}
}

// pieces returns at most as many bytes as the next byte of sizes says.
type pieces struct {
	body, sizes []byte
	i           int
}

func (r *pieces) Read(p []byte) (int, error) {
	size := len(p)
	if len(r.sizes) > 0 {
		size = min(size, int(r.sizes[r.i%len(r.sizes)]))
		r.i++
	}
	n := copy(p[:size], r.body)
	if r.body = r.body[n:]; len(r.body) == 0 {
		return n, io.EOF
	}
	return n, nil
}

func FuzzWatch(f *testing.F) {
	for _, d := range dialects {
		f.Add(d.contentType, d.body, []byte{3, 0, 17}, false)
		f.Add(d.contentType, strings.ReplaceAll(d.body, "\n", "\r\n"), []byte{1}, true)
	}
	f.Fuzz(func(t *testing.T, contentType, body string, sizes []byte, asked bool) {
		o := tokens.Options{Asked: asked}
		if bytes.Count(sizes, []byte{0}) == len(sizes) {
			sizes = nil
		}
		whole, want := watch(t, contentType, strings.NewReader(body), o)
		split, got := watch(t, contentType, &pieces{body: []byte(body), sizes: sizes}, o)
		require.Equal(t, want, got)
		require.Equal(t, string(whole), string(split))
		if !asked {
			require.Equal(t, body, string(whole))
		}
		u := got.Usage
		require.GreaterOrEqual(t, min(u.Input, u.Cached, u.Written, u.Output), int64(0))
	})
}

func FuzzAsk(f *testing.F) {
	f.Add(`{"stream":true,"stream_options":{"include_usage":false}}`)
	f.Fuzz(func(t *testing.T, body string) {
		asked, changed := tokens.Ask([]byte(body))
		if !changed {
			require.Equal(t, body, string(asked))
			return
		}
		_, again := tokens.Ask(asked)
		require.False(t, again, "%s", asked)
	})
}
