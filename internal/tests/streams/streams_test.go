package streams_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/tests/browser"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

const patience = time.Minute // of a busy machine

// page opens event streams, and counts their messages.
const page = `<!DOCTYPE html><link rel="icon" href="data:,"><script>
const open = (path) => {
	const s = new EventSource(path)
	s.messages = s.errors = 0
	s.onmessage = () => s.messages++
	s.onerror = () => s.errors++
	return s
}
</script>`

// site has a page, and an event stream for each limit.
func site(t *testing.T, rules map[string]middleware.Rule) string {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page) })
	for path, rule := range rules {
		rule.Name, rule.Match, rule.Key = path, middleware.Route("GET "+path), keyfunc.Global
		limits := middleware.Must(middleware.New(middleware.Config{Rules: []middleware.Rule{rule}}))
		mux.Handle("GET "+path, limits.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "retry: 100\ndata: hello\n\n")
			_ = http.NewResponseController(w).Flush()
			if !r.URL.Query().Has("ends") {
				<-r.Context().Done()
			}
		})))
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

func TestAnEventSourceSurvivesARefusal(t *testing.T) {
	const connecting, closed = 0, 2
	one := func(per time.Duration, stream bool) middleware.Rule {
		return middleware.Rule{
			Limit:   limiter.Limit{Events: 1, Per: per, Algorithm: limiter.SlidingLog},
			Refusal: middleware.Refusal{Stream: stream},
		}
	}
	b := browser.Open(t, site(t, map[string]middleware.Rule{
		"/plain": one(time.Minute, false), "/kept": one(time.Minute, true), "/soon": one(time.Second, true), "/late": one(2*time.Minute, true),
		"/plain-again": one(time.Minute, false), "/kept-again": one(time.Minute, true),
	}), 400, 300, false)
	for path, state := range map[string]int{"/plain": closed, "/kept": connecting, "/late": closed} {
		b.Run(fmt.Sprintf("window.first = open(%q)", path))
		b.Await(patience, "first.messages == 1")
		b.Run(fmt.Sprintf("window.second = open(%q)", path))
		b.Await(patience, "second.errors == 1")
		require.Equal(t, state, browser.Eval[int](b, "second.readyState"), path)
		b.Run("first.close(), second.close()")
	}
	for path, state := range map[string]int{"/plain-again": closed, "/kept-again": connecting} { // the first error is the stream's end
		b.Run(fmt.Sprintf("window.s = open(%q)", path+"?ends"))
		b.Await(patience, "s.errors == 2")
		require.Equal(t, state, browser.Eval[int](b, "s.readyState"), path)
		b.Run("s.close()")
	}
	for i := range 3 { // each waits a second for the one before
		b.Run(`window.s = open("/soon")`)
		b.Await(patience, "s.messages == 1 && s.readyState == 1")
		t.Logf("stream %d after %s errors", i, b.Run("s.errors"))
		b.Run("s.close()")
	}
}
