package gateway_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/serving"
)

// ofPage returns the rules file of docs/gateway.md.
func ofPage(t *testing.T) string {
	page, err := os.ReadFile("../../../../docs/gateway.md")
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(page), "cat > tokens.yaml <<'END'\n")
	text, _, found := strings.Cut(after, "END\n")
	require.True(t, found)
	return text
}

// A budget is what a gateway's rule "tokens" has left, as its next refusal shows, and what its upstream has seen.
type budget struct {
	*started
	mu   sync.Mutex
	sent []*http.Request
	text []string // their bodies
}

// metered starts a gateway with a limit of 100,000 tokens an hour in front of a service.
func metered(t *testing.T, cost string, service http.HandlerFunc) *budget {
	b := &budget{}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		b.mu.Lock()
		b.sent, b.text = append(b.sent, r), append(b.text, string(text))
		b.mu.Unlock()
		service(w, r)
	}))
	t.Cleanup(upstream.Close)
	b.started = start(t, "version: 1\nproxies: {}\ndefault: {name: tokens, key: global, limit: 100_000/30d, cost: {"+cost+"}}\n", upstream.URL, nil)
	return b
}

func (b *budget) post(path, body string) *http.Response {
	b.t.Helper()
	answer, err := http.Post(b.url+path, "application/json", strings.NewReader(body))
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

// used waits until the budget has so many units used.
func (b *budget) used(want int) {
	b.t.Helper()
	used := -1
	for deadline := time.Now().Add(20 * time.Second); used != want && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		used = b.now()
	}
	assert.Equal(b.t, want, used)
}

func (b *budget) now() int {
	w := httptest.NewRecorder()
	b.watcher.RateLimit.Usage().ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	var list struct {
		Rules []struct{ Limits []struct{ Used int } }
	}
	require.NoError(b.t, json.Unmarshal(w.Body.Bytes(), &list), w.Body)
	return list.Rules[0].Limits[0].Used
}

func read(t *testing.T, answer *http.Response) string {
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return string(text)
}

const (
	prompt    = `{"model":"m","max_tokens":1000,"messages":[]}`
	streamed  = `{"model":"m","max_tokens":1000,"stream":true,"messages":[]}`
	completed = `{"choices":[{"message":{"content":"hello"}}],"usage":{"prompt_tokens":30,"completion_tokens":12,"prompt_tokens_details":{"cached_tokens":20}}}`
	reserves  = `reserve: {json: [max_completion_tokens, max_tokens], missing: 4_000}, settle: usage`
	chat      = "/v1/chat/completions"
)

// event is an event of a stream.
func event(w http.ResponseWriter, data string) {
	_, _ = io.WriteString(w, "data: "+data+"\n\n")
	w.(http.Flusher).Flush()
}

func TestTheAnswerSettlesWhatWasReserved(t *testing.T) {
	for name, tt := range map[string]struct {
		cost, path, body string
		respond          http.HandlerFunc
		used             int
	}{
		"usage":   {reserves, chat, prompt, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, completed) }, 42},
		"weights": {reserves + ", weights: {input: 2, cached: 0.5, output: 4}", chat, prompt, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, completed) }, 78},
		"a stream": {reserves, chat, streamed, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			event(w, `{"choices":[{"delta":{"content":"hello"}}]}`)
			event(w, `{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":12}}`)
			event(w, "[DONE]")
		}, 42},
		"more than reserved": {reserves, chat, prompt, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"choices":[],"usage":{"prompt_tokens":3000,"completion_tokens":12}}`)
		}, 3012},
		"no usage":     {reserves, chat, prompt, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"choices":[]}`) }, 1000},
		"no maximum":   {reserves, chat, `{"model":"m"}`, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"choices":[]}`) }, 4000},
		"0 as maximum": {reserves, chat, `{"max_tokens":0}`, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"choices":[]}`) }, 4000},
		"a large upload": {"reserve: 500, settle: usage", "/v1/audio/transcriptions", strings.Repeat("x", 9<<20), func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, completed)
		}, 42},
		"the larger":      {reserves, chat, `{"max_tokens":7,"max_completion_tokens":9}`, func(http.ResponseWriter, *http.Request) {}, 9},
		"several answers": {reserves, chat, `{"max_tokens":70,"n":3}`, func(http.ResponseWriter, *http.Request) {}, 210},
		"the prompt": {"reserve: {json: max_tokens, missing: 1, input: {bytes_per_unit: 4}}, settle: usage, weights: {input: 2, output: 3}", chat,
			`{"max_tokens":10}`, func(http.ResponseWriter, *http.Request) {}, 10*3 + 2*5},
		"a path": {"reserve: {json: generationConfig.maxOutputTokens, times: generationConfig.candidateCount, missing: 1}, settle: usage", "/v1beta/models/x:generateContent",
			`{"generationConfig":{"maxOutputTokens":50,"candidateCount":2}}`, func(http.ResponseWriter, *http.Request) {}, 100},
		"all of the limit": {reserves, chat, `{"max_tokens":9000000000}`, func(http.ResponseWriter, *http.Request) {}, 100_000},
		"an error":         {reserves, chat, prompt, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, 0},
		"an error with usage": {reserves, chat, prompt, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			_, _ = io.WriteString(w, completed)
		}, 42},
		"a broken stream": {reserves, chat, streamed, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			event(w, `{"choices":[{"delta":{"content":"hello"}}]}`)
			panic(http.ErrAbortHandler)
		}, 1000},
		"a long broken stream": {reserves, chat, streamed, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for range 100 {
				event(w, `{"choices":[{"delta":{"content":"`+strings.Repeat("x", 100)+`"}}]}`)
			}
			panic(http.ErrAbortHandler)
		}, 2500},
		"a field": {"reserve: 500, settle: {header: X-Cost}", "/", "x", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("x-cost", "77") }, 77},
		"a field of an 103": {"reserve: 500, settle: {header: X-Cost}", "/", "x", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Cost", "5")
			w.WriteHeader(103)
			w.Header().Set("X-Cost", "78")
		}, 78},
		"an odd field":       {"reserve: 500, settle: {header: X-Cost}", "/", "x", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Cost", "-7") }, 500},
		"two fields":         {"reserve: 500, settle: {header: X-Cost}", "/", "x", func(w http.ResponseWriter, _ *http.Request) { w.Header()["X-Cost"] = []string{"5", "6"} }, 6},
		"an error, no field": {"reserve: 500, settle: {header: X-Cost}", "/", "x", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := metered(t, tt.cost, tt.respond)
			r, err := http.NewRequest("POST", b.url+tt.path, strings.NewReader(tt.body))
			require.NoError(t, err)
			r.Header.Set("X-Cost", "1")
			answer, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			defer answer.Body.Close()
			_, _ = io.Copy(io.Discard, answer.Body)
			assert.Empty(t, answer.Header["X-Cost"])
			b.used(tt.used)
		})
	}
}

func TestAClientThatLeavesPaysTheReservation(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		used int
	}{"a little": {"hello", 1000}, "a lot": {strings.Repeat("x", 8000), 2000}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			canceled := make(chan struct{})
			b := metered(t, reserves, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				event(w, `{"choices":[{"delta":{"content":"`+tt.text+`"}}]}`)
				<-r.Context().Done()
				close(canceled)
			})
			answer := b.post(chat, streamed)
			line, err := bufio.NewReader(answer.Body).ReadString('\n')
			require.NoError(t, err)
			assert.Contains(t, line, tt.text)
			require.NoError(t, answer.Body.Close())
			<-canceled
			b.used(tt.used)
		})
	}
}

func TestAServiceThatIsDownCostsNothing(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	b := &budget{started: start(t, "version: 1\ndefault: {name: tokens, key: global, limit: 100_000/30d, cost: {"+reserves+"}}\n", closed.URL, nil)}
	assert.Equal(t, 502, b.post(chat, prompt).StatusCode)
	b.used(0)
}

// Only a stream of chat completions is asked for its usage, and a client that did not ask does not see it.
func TestOtherBodiesAreForwardedByteForByte(t *testing.T) {
	const spaced = "{ \"model\":\t\"m\\u0041\", \"max_tokens\" : 5 }\n"
	for name, tt := range map[string]struct{ cost, path, body, want string }{
		"a stream":           {reserves, chat, `{"stream":true,"max_tokens":5}`, `{"stream_options":{"include_usage":true},"stream":true,"max_tokens":5}`},
		"a stream, null":     {reserves, chat, `{"stream":true,"stream_options":{"include_usage":null}}`, `{"stream":true,"stream_options":{"include_usage":true}}`},
		"asked by itself":    {reserves, chat, `{"stream":true,"stream_options":{"include_usage":true}}`, ""},
		"no stream":          {reserves, chat, spaced, ""},
		"another API":        {reserves, "/v1/messages", `{"stream":true,"max_tokens":5}`, ""},
		"do not ask":         {reserves + ", usage: {ask: false, no_max: bad_request}", chat, `{"stream":true,"max_tokens":5}`, ""},
		"no JSON":            {reserves, chat, "stream=true", ""},
		"gets a maximum":     {reserves + ", usage: {ask: false, no_max: missing}", chat, `{"stream":true, "max_tokens":null }`, `{"stream":true, "max_tokens":null ,"max_completion_tokens":4000}`},
		"gets it for null":   {reserves + ", usage: {no_max: missing}", "/v1/messages", `{"max_completion_tokens":null, "a":1.0}`, `{"a":1.0,"max_completion_tokens":4000}`},
		"gets it for 0":      {reserves + ", usage: {no_max: missing}", "/v1/messages", `{"max_completion_tokens":0}`, `{"max_completion_tokens":4000}`},
		"gets its only one":  {reserves + ", usage: {no_max: missing}", "/v1/messages", " {} ", ` {"max_completion_tokens":4000} `},
		"has a maximum":      {reserves + ", usage: {no_max: missing}", "/v1/messages", `{"max_tokens":5}`, ""},
		"gets none, no JSON": {reserves + ", usage: {no_max: missing}", "/v1/messages", `x{}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := metered(t, tt.cost, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				event(w, `{"choices":[{"delta":{"content":"hello"}}]}`)
				event(w, `{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":12}}`)
			})
			r, err := http.NewRequest("POST", b.url+tt.path, io.MultiReader(strings.NewReader(tt.body))) // in chunks
			require.NoError(t, err)
			r.Header.Set("Accept-Encoding", "gzip")
			answer, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			defer answer.Body.Close()
			assert.Equal(t, !strings.HasPrefix(name, "a stream"), strings.Contains(read(t, answer), "prompt_tokens"))
			assert.Equal(t, cmp.Or(tt.want, tt.body), b.text[0])
			assert.Equal(t, "identity", b.sent[0].Header.Get("Accept-Encoding"))
			b.used(42)
		})
	}
	refuses := metered(t, reserves+", usage: {ask: false, no_max: bad_request}", echo)
	assert.Equal(t, 400, refuses.post(chat, `{"stream":true,"max_tokens":null}`).StatusCode)
	assert.Empty(t, refuses.sent)
}

func TestAReservationOutlivesAReload(t *testing.T) {
	arrived, goOn := make(chan struct{}), make(chan struct{})
	b := metered(t, reserves, func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-goOn
		_, _ = io.WriteString(w, completed)
	})
	done := make(chan int)
	go func() { done <- b.post(chat, prompt).StatusCode }()
	<-arrived
	assert.Equal(t, 1000, b.now())
	require.NoError(t, os.WriteFile(b.file, []byte("version: 1\nproxies: {}\ndefault: {name: tokens, key: global, limit: 100_000/30d, cost: 3}\n"), 0o600))
	before := b.watcher.Rules().Version()
	b.watcher.Reread()
	for b.watcher.Rules().Version() == before {
		time.Sleep(time.Millisecond)
	}
	assert.Equal(t, 1000, b.now())
	close(goOn)
	assert.Equal(t, 200, <-done)
	b.used(42)
}

func TestHostileBodiesNeitherPassNorTakeMemory(t *testing.T) {
	b := metered(t, reserves, echo)
	for name, tt := range map[string]struct {
		body string
		want int
	}{
		"a member of 64 MiB": {`{"max_tokens":5,"pad":"` + strings.Repeat("x", 64<<20) + `"}`, 413},
		"a little too long":  {`{"max_tokens":5,"pad":"` + strings.Repeat("x", 8<<20) + `"}`, 413},
		"as long as it may":  {`{"max_tokens":5,"pad":"` + strings.Repeat("x", 8<<20-25) + `"}`, 200},
		"deep":               {`{"max_tokens":5,"pad":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`, 400},
		"twice":              {`{"max_tokens":5,"max_tokens":6}`, 400},
		"in capitals":        {`{"MAX_TOKENS":5}`, 400},
		"negative":           {`{"max_tokens":-5}`, 400},
		"huge":               {`{"max_tokens":1e308}`, 400},
		"text":               {`{"max_tokens":"5"}`, 400},
		"n is negative":      {`{"max_tokens":5,"n":-1}`, 400},
		"no end":             {`{"max_tokens":5`, 400},
		"two":                {`{"max_tokens":5}{"max_tokens":6}`, 400},
	} {
		t.Run(name, func(t *testing.T) {
			answer := b.post(chat, tt.body)
			assert.Equal(t, tt.want, answer.StatusCode)
			assert.Equal(t, tt.want == 413, strings.Contains(read(t, answer), "too long"))
		})
	}
	early := b.raw("POST " + chat + " HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9000000\r\n\r\n")
	assert.Equal(t, 413, early.StatusCode, "no 100 is first")
	r, err := http.NewRequest("POST", b.url+chat, strings.NewReader(prompt))
	require.NoError(t, err)
	r.Header.Set("Content-Encoding", "gzip")
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	assert.Equal(t, 400, answer.StatusCode)
	b.used(5)
}

// The file of docs/gateway.md, with clients that hold their bodies back.
func TestARefusedClientTakesNoMemory(t *testing.T) {
	memory := serving.NewMemory(20 << 20)
	s := startWith(t, strings.Replace(ofPage(t), "60/1m", "3/30d", 1), upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, completed)
	}), nil, memory)
	send := func(key, fields, body string) *http.Response {
		return s.raw("POST " + chat + " HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + key + "\r\n" + fields + "\r\n\r\n" + body)
	}
	for range 3 {
		assert.Equal(t, 200, send("a", fmt.Sprint("Content-Length: ", len(prompt)), prompt).StatusCode)
	}
	for range 100 {
		answer := send("a", "Content-Length: 8000000", `{"model":"m","pad":"`+strings.Repeat("x", 1000))
		assert.Equal(t, 429, answer.StatusCode)
		assert.True(t, answer.Close)
	}
	answer := send("a", "Expect: 100-continue\r\nContent-Length: 8000000", "")
	assert.Equal(t, 429, answer.StatusCode, "no 100 is first")
	assert.Equal(t, 429, send("a", "Content-Length: 9000000", "").StatusCode, "nor a look at its length")
	assert.Equal(t, 100, send("b", "Expect: 100-continue\r\nContent-Length: 8000000", "").StatusCode)
	// Two bodies of up to 8 MiB have room, and a third does not.
	part := `{"model":"m","pad":"` + strings.Repeat("x", 6<<20)
	for _, key := range []string{"c", "d"} {
		c, err := net.Dial("tcp", s.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		_, err = io.WriteString(c, "POST "+chat+" HTTP/1.1\r\nHost: a\r\nAuthorization: "+key+"\r\nContent-Length: 8000000\r\n\r\n"+part)
		require.NoError(t, err)
	}
	full := func() bool { return send("e", "Content-Length: 8000000", part).StatusCode == 503 }
	assert.Eventually(t, full, 20*time.Second, time.Millisecond)
	assert.Equal(t, 200, send("e", fmt.Sprint("Content-Length: ", len(prompt)), prompt).StatusCode)
}

func TestAStreamHoldsNothingOfItsRequest(t *testing.T) {
	s := startWith(t, ofPage(t), upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		event(w, `{"choices":[{"delta":{"content":"hello"}}]}`)
		<-r.Context().Done()
	}), nil, serving.NewMemory(20<<20))
	body := `{"model":"m","stream":true,"pad":"` + strings.Repeat("x", 4<<20) + `"}`
	used := heap()
	for i := range 20 {
		r, err := http.NewRequest("POST", s.url+chat, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Authorization", fmt.Sprint("Bearer ", i))
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		require.Equal(t, 200, answer.StatusCode)
	}
	assert.Less(t, heap()-used, int64(32<<20))
}

// A reservation that reads no body has its body read after the limits, to ask for the usage. Counts wrap
// the body that was read in another body.
func TestAReservationWithoutFieldsAsksForItsUsageToo(t *testing.T) {
	for name, cost := range map[string]string{"fixed": "reserve: 500, settle: usage", "counts": "reserve: {json: max_tokens, missing: 500}, settle: usage}, counts: \"!5xx\", soft: {at: 80%"} {
		t.Run(name, func(t *testing.T) {
			b := metered(t, cost, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, completed) })
			assert.Equal(t, 200, b.post(chat, `{"stream":true}`).StatusCode)
			assert.Contains(t, b.text[0], "include_usage")
			b.used(42)
			assert.Equal(t, 413, b.post(chat, `{"pad":"`+strings.Repeat("x", 8<<20)+`"}`).StatusCode)
			b.used(42)
		})
	}
}
