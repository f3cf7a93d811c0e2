package tokens_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/tokens"
)

// proxy returns the URL of a ReverseProxy in front of a provider, and the reports of its answers.
func proxy(t *testing.T, o tokens.Options, provider http.HandlerFunc) (string, <-chan tokens.Report) {
	behind := httptest.NewServer(provider)
	t.Cleanup(behind.Close)
	target, err := url.Parse(behind.URL)
	require.NoError(t, err)
	reports := make(chan tokens.Report, 2)
	front := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(res *http.Response) error {
			tokens.Watch(res, o, func(r tokens.Report) { reports <- r })
			return nil
		},
	})
	t.Cleanup(front.Close)
	return front.URL, reports
}

func TestAReverseProxySendsEachEventAtOnce(t *testing.T) {
	for _, o := range []tokens.Options{{}, {Asked: true}} {
		t.Run(fmt.Sprint(o), func(t *testing.T) {
			more := make(chan string)
			front, reports := proxy(t, o, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", asEvents)
				for text := range more {
					_, _ = io.WriteString(w, text)
					_ = http.NewResponseController(w).Flush()
				}
			})
			go func() { more <- event(`{"choices":[{"delta":{"content":"a"}}]}`) }()
			res, err := http.Get(front)
			require.NoError(t, err)
			defer res.Body.Close()
			lines := bufio.NewScanner(res.Body)
			for _, text := range []string{"b", "c", ""} { // each is sent when the one before has come
				require.True(t, lines.Scan())
				require.True(t, lines.Scan(), "an empty line")
				if text != "" {
					more <- event(`{"choices":[{"delta":{"content":"` + text + `"}}]}`)
				}
			}
			more <- event(`{"choices":[],"usage":{"completion_tokens":3}}`) + event("[DONE]")
			close(more)
			var rest []string
			for lines.Scan() {
				rest = append(rest, lines.Text())
			}
			require.NoError(t, lines.Err())
			want := []string{`data: {"choices":[],"usage":{"completion_tokens":3}}`, "", "data: [DONE]", ""}
			if o.Asked {
				want = want[2:]
			}
			assert.Equal(t, want, rest)
			assert.Equal(t, tokens.Report{Usage: tokens.Usage{Output: 3}, Final: true}, <-reports)
			assert.Empty(t, reports)
		})
	}
}

func TestAClientThatLeavesIsReportedAndEndsTheAnswer(t *testing.T) {
	for _, contentType := range []string{asEvents, asJSON} {
		t.Run(contentType, func(t *testing.T) {
			ended := make(chan struct{})
			front, reports := proxy(t, tokens.Options{Asked: true}, func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				w.Header().Set("Content-Type", contentType)
				text := `{"choices":[{"delta":{"content":"12345678"}}],`
				if contentType == asEvents {
					text = event(text + `"usage":null}`)
				}
				_, _ = io.WriteString(w, text)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})
			res, err := http.Get(front)
			require.NoError(t, err)
			_, err = io.ReadFull(res.Body, make([]byte, 20))
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			<-ended
			assert.Equal(t, tokens.Report{Usage: tokens.Usage{Output: 2}}, <-reports)
			assert.Empty(t, reports)
		})
	}
}

func BenchmarkWatch(b *testing.B) {
	chunk := event(`{"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}],"usage":null}`)
	body := strings.Repeat(chunk, 500)
	for _, o := range []tokens.Options{{}, {Asked: true}} {
		b.Run(fmt.Sprint(o), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			buffer := make([]byte, 32<<10)
			for b.Loop() {
				res := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {asEvents}}, Body: io.NopCloser(strings.NewReader(body))}
				tokens.Watch(res, o, func(tokens.Report) {})
				_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, res.Body, buffer)
			}
		})
	}
}
