package answer_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/answer"
	"github.com/weirgo/weir/internal/race"
)

// kinds has the code and the message of each kind, and the title and type of its problem object.
var kinds = map[answer.Kind]struct{ code, message, title, uri string }{
	answer.Quota:  {"rate_limit_exceeded", "Too many requests.", "Quota Exceeded", exceeded},
	answer.Cost:   {"rate_limit_exceeded", "The request costs more than the limit ever allows at once.", "Quota Exceeded", exceeded},
	answer.Zero:   {"rate_limit_exceeded", "The limit of this client is 0.", "Quota Exceeded", exceeded},
	answer.AtOnce: {"concurrency_limit_exceeded", threeAtOnce, "Quota Exceeded", exceeded},

	answer.Banned:    {"banned", "Requests from this client are not accepted.", "Forbidden", ""},
	answer.Denied:    {"denied", "This request is not accepted.", "Forbidden", ""},
	answer.DeniedNow: {"denied", "This request is not accepted now.", "Too Many Requests", ""},
	answer.NoKey: {"key_required", "The request lacks a value that its limits need, " +
		"such as a user name, an API key or a host, or has several.", "Bad Request", ""},
	answer.NoCredentials: {"key_required", "The request lacks credentials, such as an API key or a token.", "Unauthorized", ""},
	answer.TooLong:       {"body_too_long", "The request's body is too long.", "Content Too Large", ""},
	answer.Late:          {"body_late", "The request's body did not arrive in time.", "Request Timeout", ""},
	answer.Unavailable: {"temporary_reduced_capacity", "The service is temporarily unable to take this request.",
		"Temporary Reduced Capacity", types + "temporary-reduced-capacity"},
}

// kindsOfAI has the types of errors that SDKs of both families know.
var kindsOfAI = map[answer.Kind]string{
	answer.Quota: "rate_limit_error", answer.Cost: "rate_limit_error", answer.Zero: "rate_limit_error",
	answer.AtOnce: "rate_limit_error", answer.DeniedNow: "rate_limit_error",
	answer.Banned: "permission_error", answer.Denied: "permission_error",
	answer.NoKey: "invalid_request_error", answer.NoCredentials: "authentication_error",
	answer.TooLong: "invalid_request_error", answer.Late: "invalid_request_error",
	answer.Unavailable: "overloaded_error",
}

const (
	types       = "https://iana.org/assignments/http-problem-types#"
	exceeded    = types + "quota-exceeded"
	threeAtOnce = "3 requests are in progress, and no more are allowed at once."
)

// Bodies are written by hand, and are what encoding/json makes.
func TestBodiesAreTheJSONThatEncodingWrites(t *testing.T) {
	type plain struct {
		Error      string `json:"error"`
		Message    string `json:"message"`
		RetryAfter int64  `json:"retry_after,omitempty"`
	}
	type problem struct {
		Type     string            `json:"type,omitempty"`
		Title    string            `json:"title,omitempty"`
		Status   int               `json:"status"`
		Detail   string            `json:"detail"`
		Violated []json.RawMessage `json:"violated-policies,omitempty"`
	}
	type rpcWait struct {
		Milliseconds int64 `json:"retryAfterMs"`
		Seconds      int64 `json:"retryAfter"`
	}
	type rpcError struct {
		Code    int      `json:"code"`
		Message string   `json:"message"`
		Data    *rpcWait `json:"data,omitempty"`
	}
	type rpc struct {
		Version string   `json:"jsonrpc"`
		Error   rpcError `json:"error"`
	}
	type aiError struct {
		Type    string  `json:"type"`
		Code    string  `json:"code"`
		Message string  `json:"message"`
		Param   *string `json:"param"`
	}
	type ai struct {
		Type       string  `json:"type"`
		Error      aiError `json:"error"`
		RetryAfter int64   `json:"retry_after,omitempty"`
		Retry      *bool   `json:"retry,omitempty"`
	}
	text, placeholder := rapid.StringMatching(`[ -~äß€😀]{0,12}`), rapid.SampledFrom(placeholders)
	rapid.Check(t, func(t *rapid.T) {
		f := answer.Facts{
			Kind:    answer.Kind(rapid.IntRange(0, len(kinds)-1).Draw(t, "kind")),
			Status:  rapid.IntRange(400, 599).Draw(t, "status"),
			Seconds: rapid.Int64Range(0, 1<<25).Draw(t, "seconds"),
			AtOnce:  3,
			Type:    rapid.SampledFrom([]string{"", "https://example.org/slow"}).Draw(t, "type"),
			Title:   text.Draw(t, "title"),
			Message: strings.Join(rapid.SliceOf(rapid.OneOf(text, placeholder)).Draw(t, "message"), ""),
			Rule:    text.Draw(t, "rule"),
			Limit:   text.Draw(t, "limit"),
		}
		var violated []json.RawMessage
		for _, name := range rapid.SliceOfN(text, 0, 9).Draw(t, "violated") {
			violated = append(violated, json.RawMessage(encoded(name)))
			f.Violated = append(f.Violated, encoded(name))
		}
		kind := kinds[f.Kind]
		uri, title := kind.uri, kind.title
		if f.Type != "" {
			uri, title = f.Type, ""
		}
		if f.Title != "" {
			title = f.Title
		}
		message, wait := messageOf(&f), min(f.Seconds, 24*24*3600)
		require.Equal(t, encoded(problem{uri, title, f.Status, message, violated}), string(answer.Append(nil, answer.Problem, &f)))
		require.Equal(t, encoded(plain{kind.code, message, wait}), string(answer.Append(nil, answer.JSON, &f)))
		require.Equal(t, message+"\n", string(answer.Append(nil, answer.Text, &f)))
		stop := f
		stop.Stop = true
		object := ai{"error", aiError{kindsOfAI[f.Kind], kind.code, message, nil}, wait, nil}
		require.Equal(t, encoded(object), string(answer.Append(nil, answer.AI, &f)))
		object.Retry = new(bool)
		require.Equal(t, encoded(object), string(answer.Append(nil, answer.AI, &stop)))
		agents := rpc{Version: "2.0", Error: rpcError{Code: 429, Message: message}}
		if f.Seconds > 0 {
			agents.Error.Data = &rpcWait{wait * 1000, wait}
		}
		require.Equal(t, encoded(agents), string(answer.Append(nil, answer.RPC, &f)))
	})
}

var placeholders = []string{"{retry_after}", "{seconds}", "{rule}", "{limit}"}

// messageOf is the message of f, by other means.
func messageOf(f *answer.Facts) string {
	wait, unit, units := time.Duration(f.Seconds)*time.Second, time.Second, "seconds"
	switch {
	case wait == time.Second:
		units = "second"
	case wait >= 48*time.Hour:
		unit, units = 24*time.Hour, "days"
	case wait >= 2*time.Hour:
		unit, units = time.Hour, "hours"
	case wait >= 2*time.Minute:
		unit, units = time.Minute, "minutes"
	}
	words := fmt.Sprintf("%d %s", wait.Round(unit)/unit, units)
	hasTime := strings.Contains(f.Message, "{retry_after}") || strings.Contains(f.Message, "{seconds}")
	switch {
	case f.Message != "" && (wait > 0 || !hasTime):
		return strings.NewReplacer("{retry_after}", words, "{seconds}", strconv.FormatInt(f.Seconds, 10),
			"{rule}", f.Rule, "{limit}", f.Limit).Replace(f.Message)
	case wait > 0:
		return kinds[f.Kind].message + " Try again in " + words + "."
	}
	return kinds[f.Kind].message
}

func encoded(value any) string {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		panic(err)
	}
	return strings.TrimSuffix(text.String(), "\n")
}

func TestOneRequestAtOnceIsNotCalledRequests(t *testing.T) {
	assert.Equal(t, "A request is in progress, and no more than one is allowed at once. Try again in 1 second.\n",
		string(answer.Append(nil, answer.Text, &answer.Facts{Kind: answer.AtOnce, AtOnce: 1, Seconds: 1})))
}

func TestAMessageHasNoBraceThatBeginsNoPlaceholder(t *testing.T) {
	for message, want := range map[string]bool{
		"": true, "Later.": true, "}": true, strings.Join(placeholders, ""): true, "a {rule} b {limit}": true,
		"{": false, "{}": false, "{rule": false, "{{rule}": false, "{rule}{": false, "{Rule}": false, "{rule }": false,
	} {
		assert.Equal(t, want, answer.IsMessage(message), message)
	}
	assert.True(t, answer.StatesLimit("of {limit}"))
	assert.False(t, answer.StatesLimit("limit"))
}

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

func TestTheClientChoosesTheFormat(t *testing.T) {
	const problem, plain, text = answer.Problem, answer.JSON, answer.Text
	for _, test := range []struct {
		accept []string
		want   answer.Format
	}{
		{nil, plain},
		{[]string{""}, plain},
		{[]string{"*/*"}, plain},
		{[]string{"application/json"}, plain},
		{[]string{"application/*"}, plain},
		{[]string{"application/problem+json"}, problem},
		{[]string{"Application/Problem+JSON"}, problem},
		{[]string{"application/json, application/problem+json"}, problem},
		{[]string{"application/json", "application/problem+json"}, problem},
		{[]string{"application/json, application/problem+json;q=0.5"}, plain},
		{[]string{"application/problem+json;q=0, */*"}, plain},
		{[]string{"application/problem+json;q=0"}, plain},
		{[]string{"application/json, text/plain, */*"}, plain},
		{[]string{"text/plain"}, text},
		{[]string{"text/*"}, text},
		{[]string{"text/plain, application/problem+json"}, problem},
		{[]string{browser}, text},
		{[]string{"text/html;q=0.1, application/json;q=0.2"}, plain},
		{[]string{browser + ",image/avif,image/webp,image/apng,application/signed-exchange;v=b3;q=0.7"}, text},
		{[]string{"application/json;q=0, */*"}, text},
		{[]string{"text/html;q=0, text/plain"}, text},
		{[]string{"text/html;q=0.1, application/json;q=0.5, text/plain"}, text},
		{[]string{"image/png"}, plain},
		{[]string{"text/plain;q=nonsense, application/json;q=0.1"}, plain},
		{[]string{"text/plain;q=nan, application/json;q=0.1"}, plain},
		{[]string{"text/plain;q=2, application/json;q=0.1"}, plain},
		{[]string{"text/plain; charset=utf-8 ; q=1"}, text},
		{[]string{",,;;q,/,*"}, plain},
	} {
		assert.Equal(t, test.want, answer.Negotiate(test.accept), "Accept: %q", test.accept)
	}
	assert.Equal(t, "application/problem+json", problem.ContentType())
	assert.Equal(t, "application/json", plain.ContentType())
	assert.Equal(t, "text/plain; charset=utf-8", text.ContentType())
}

// A refusal has to be cheap, whatever the client sends.
func TestAnAcceptFieldWithoutEndIsNotRead(t *testing.T) {
	const problem = "application/problem+json"
	long := func(text string, n int) string { return strings.Repeat(text, n/len(text)) }
	for name, accept := range map[string][]string{
		"one line":    {problem + long(",A/B", 1<<20)},
		"a last line": {long(",A/B", 1<<20), problem},
		"many lines":  append(slices.Repeat([]string{"A/B"}, 1<<18), problem),
		"empty lines": append(make([]string, 1<<18), problem),
		"no elements": {problem, long("A", 1<<20)},
		"parameters":  {problem + long(";A=B", 1<<20)},
		"commas":      {problem + long(",", 1<<20)},
	} {
		var format answer.Format
		allocs := testing.AllocsPerRun(10, func() { format = answer.Negotiate(accept) })
		assert.Equal(t, answer.JSON, format, "%s: the answer is as without Accept", name)
		assert.Zero(t, allocs, name)
	}
	most := []string{"text/html," + long("image/png,", 500), problem}
	assert.Equal(t, answer.Problem, answer.Negotiate(most), "more than any client sends is read")
}

// costings are refusals, and what their clients accept.
var costings = map[string]struct {
	accept []string
	facts  answer.Facts
}{
	"json":    {nil, answer.Facts{Status: 429, Seconds: 12}},
	"problem": {[]string{"application/problem+json"}, answer.Facts{Status: 429, Seconds: 12, Violated: []string{`"ip"`}}},
	"browser": {[]string{browser}, answer.Facts{Status: 429, Seconds: 12}},
	"own message": {[]string{"application/problem+json"}, answer.Facts{
		Status: 429, Seconds: 12, Violated: []string{`"ip"`},
		Title: `Größe "x"`, Message: `"{rule}" is {limit}: back in {retry_after} ({seconds}).`, Rule: `a"b`, Limit: "100/1m",
	}},
}

func TestAnAnswerAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	for name, c := range costings {
		buffer := make([]byte, 0, 512)
		assert.Zero(t, testing.AllocsPerRun(100, func() { respond(buffer, c.accept, c.facts) }), name)
	}
}

// respond puts the facts on the stack, as a request does.
func respond(buffer []byte, accept []string, facts answer.Facts) []byte {
	return answer.Append(buffer[:0], answer.Negotiate(accept), &facts)
}

func BenchmarkAnswer(b *testing.B) {
	for name, c := range costings {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			buffer := make([]byte, 0, 512)
			for b.Loop() {
				buffer = respond(buffer, c.accept, c.facts)
			}
		})
	}
}
