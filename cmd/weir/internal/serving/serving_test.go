package serving_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirgo/weir/cmd/weir/internal/serving"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

func listen(t *testing.T, handler http.HandlerFunc) *serving.Server {
	t.Helper()
	s, err := serving.Listen("--proxy", "127.0.0.1:0", handler, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	s.Start(func(err error) { t.Error(err) })
	return s
}

// ask sends a request, and returns what reads the answer.
func ask(t *testing.T, s *serving.Server, fields string) func() *http.Response {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n"+fields+"\r\n")
	require.NoError(t, err)
	return func() *http.Response {
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		return answer
	}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestADrainLosesNoRequestThatWasSent(t *testing.T) {
	for range 20 {
		s, err := serving.Listen("--proxy", "127.0.0.1:0", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		accepted, note := make(chan bool, 2), s.ConnState
		s.ConnState = func(c net.Conn, state http.ConnState) {
			note(c, state)
			if state == http.StateNew {
				accepted <- true
			}
		}
		s.Start(func(err error) { t.Error(err) })
		answers := []func() *http.Response{ask(t, s, ""), ask(t, s, "")}
		<-accepted
		<-accepted
		s.Drain(within(t), 0)
		for _, answer := range answers {
			require.Equal(t, 200, answer().StatusCode)
		}
	}
}

func TestADrainWaitsForRequestsAndForUpgradedConnections(t *testing.T) {
	begun, end := make(chan bool), make(chan bool)
	s := listen(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			c, _, _ := http.NewResponseController(w).Hijack()
			defer c.Close()
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
		}
		begun <- true
		<-end
	})
	plain, upgraded := ask(t, s, ""), ask(t, s, "Connection: Upgrade\r\nUpgrade: websocket\r\n")
	<-begun
	<-begun
	drained := make(chan bool)
	go func() { s.Drain(within(t), 0); close(drained) }()
	require.Equal(t, 101, upgraded().StatusCode)
	for range 2 {
		select {
		case <-drained:
			t.Fatal("it is drained, and a request is in progress")
		default:
			end <- true
		}
	}
	require.Equal(t, 200, plain().StatusCode)
	<-drained
}

func TestWhatDoesNotEndIsBrokenOff(t *testing.T) {
	begun := make(chan bool)
	s := listen(t, func(_ http.ResponseWriter, r *http.Request) {
		begun <- true
		<-r.Context().Done()
	})
	ask(t, s, "")
	<-begun
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s.Drain(ended, time.Hour)
}

func TestClientsAreAskedToLeaveDuringTheGrace(t *testing.T) {
	s := listen(t, func(http.ResponseWriter, *http.Request) {})
	require.False(t, ask(t, s, "")().Close)
	ctx, cancel := context.WithCancel(t.Context())
	drained := make(chan bool)
	go func() { s.Drain(ctx, time.Hour); close(drained) }()
	require.Eventually(t, func() bool { return ask(t, s, "")().Close }, 30*time.Second, time.Millisecond)
	cancel()
	<-drained
}

// A client may send requests while GOAWAY is on its way to it. They would be refused.
func TestAConnectionOfHTTP2StaysDuringTheGrace(t *testing.T) {
	s, err := serving.Listen("--proxy", "127.0.0.1:0", http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	s.Start(func(err error) { t.Error(err) })
	ctx, cancel := context.WithCancel(t.Context())
	drained := make(chan bool)
	go func() { s.Drain(ctx, time.Hour); close(drained) }()
	require.Eventually(t, func() bool { return ask(t, s, "")().Close }, 30*time.Second, time.Millisecond)

	c, err := net.Dial("tcp", s.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, http2.ClientPreface)
	require.NoError(t, err)
	framer := http2.NewFramer(c, c)
	require.NoError(t, framer.WriteSettings())
	var fields bytes.Buffer
	encoder := hpack.NewEncoder(&fields)
	for _, field := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/"}} {
		require.NoError(t, encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1], Sensitive: true}))
	}
	next := func(kind http2.FrameType) {
		for {
			frame, err := framer.ReadFrame()
			require.NoError(t, err)
			require.NotEqual(t, http2.FrameGoAway, frame.Header().Type)
			if frame.Header().Type == kind {
				return
			}
		}
	}
	for id := uint32(1); id < 6; id += 2 {
		require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: fields.Bytes(), EndStream: true, EndHeaders: true}))
		next(http2.FrameHeaders)
		require.NoError(t, framer.WritePing(false, [8]byte{}))
		next(http2.FramePing)
	}
	cancel()
	<-drained
}

func TestAnAddressInUseIsNamed(t *testing.T) {
	s := listen(t, nil)
	defer s.Drain(within(t), 0)
	_, err := serving.Listen("--ask", s.Addr().String(), nil, slog.New(slog.DiscardHandler))
	require.EqualError(t, err, "--ask: cannot listen on "+s.Addr().String()+": address already in use")
}

func TestAClientThatSendsItsHeaderSlowlyIsLeft(t *testing.T) {
	s, err := serving.Listen("--proxy", "127.0.0.1:0", http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.Equal(t, 10*time.Second, s.ReadHeaderTimeout)
	require.Equal(t, 64<<10, s.MaxHeaderBytes)
	s.ReadHeaderTimeout = 20 * time.Millisecond
	s.Start(func(err error) { t.Error(err) })
	defer s.Drain(within(t), 0)
	c, err := net.Dial("tcp", s.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ")
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = io.ReadAll(c)
	require.NoError(t, err, "the server closes the connection")
}

func TestTheLogHasTheDigestOfABannedKey(t *testing.T) {
	var out bytes.Buffer
	log := serving.NewLog(&out, nil)
	for _, ban := range []bans.Ban{{Key: "203.0.113.7"}, {}} { // a rules file bans without a key
		log.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			log.Observe(&middleware.Observation{Request: r, Outcome: middleware.OutcomeBanned, Ban: ban})
		})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	}
	banned, other, _ := strings.Cut(out.String(), "\n")
	require.Contains(t, banned, `"weir_outcome":"banned","weir_key":"`+keyfunc.NewDigester(nil).Digest("203.0.113.7").String()+`"`)
	require.NotContains(t, other, "weir_key")
}
