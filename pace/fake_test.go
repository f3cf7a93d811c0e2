package pace_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/leak"
	"github.com/weirgo/weir/pace"
)

func TestMain(m *testing.M) { leak.VerifyMain(m) }

// A server is a third party in fake time. It is the RoundTripper itself.
type server struct {
	answer func(r *http.Request, n int) *http.Response // n counts from 1; nil: 200

	mu   sync.Mutex
	sent []time.Duration // when requests came, since the bubble began
	zero time.Time
	took time.Duration // to answer
}

func newServer(answer func(r *http.Request, n int) *http.Response) *server {
	return &server{answer: answer, zero: time.Now()}
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	s.mu.Lock()
	s.sent = append(s.sent, time.Since(s.zero))
	n := len(s.sent)
	s.mu.Unlock()
	if s.took > 0 {
		select {
		case <-time.After(s.took):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	resp := respond(200)
	if s.answer != nil {
		resp = s.answer(r, n)
	}
	if resp == nil {
		return nil, io.ErrUnexpectedEOF
	}
	resp.Request = r
	if resp.Header.Get("Date") == "" {
		resp.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	}
	return resp, nil
}

func (s *server) times() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Duration(nil), s.sent...)
}

func (s *server) count() int { return len(s.times()) }

// respond is a response with these fields, name and value in turns.
func respond(status int, fields ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(fields); i += 2 {
		h.Set(fields[i], fields[i+1])
	}
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h,
		Body: io.NopCloser(strings.NewReader("body")),
	}
}

func newTransport(t testing.TB, base http.RoundTripper, o pace.Options) *pace.Transport {
	t.Helper()
	transport := pace.Must(pace.NewTransport(base, o))
	return transport
}

func request(t testing.TB, method, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, url, nil)
	require.NoError(t, err)
	return r
}

// get sends a GET and returns the status, with the body read and closed.
func get(t testing.TB, transport http.RoundTripper, url string) (int, error) {
	t.Helper()
	return do(transport, request(t, "GET", url))
}

// mustGet sends a GET to api that has to be answered.
func mustGet(t testing.TB, transport http.RoundTripper) {
	t.Helper()
	_, err := get(t, transport, api)
	require.NoError(t, err)
}

func do(transport http.RoundTripper, r *http.Request) (int, error) {
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}

// refuseFirst answers the first request with 429 and these fields.
func refuseFirst(fields ...string) func(*http.Request, int) *http.Response {
	return func(_ *http.Request, n int) *http.Response {
		if n == 1 {
			return respond(429, fields...)
		}
		return respond(200)
	}
}

// observed keeps what it was told.
type observed struct {
	mu   sync.Mutex
	seen []pace.Observation
}

func (s *observed) ObserveAttempt(o *pace.Observation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, *o)
}

func (s *observed) all() []pace.Observation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]pace.Observation(nil), s.seen...)
}
