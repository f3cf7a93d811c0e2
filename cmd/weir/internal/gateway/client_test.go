package gateway_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirgo/weir/cmd/weir/internal/gateway"
)

// dial connects to the gateway, for half a minute at most.
func (s *started) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	return c
}

// dial2 connects to the gateway by HTTP/2. The client may have received window bytes of each answer.
func (s *started) dial2(t *testing.T, window uint32) (net.Conn, *http2.Framer) {
	t.Helper()
	c := s.dial(t)
	_, err := io.WriteString(c, http2.ClientPreface)
	require.NoError(t, err)
	framer := http2.NewFramer(c, c)
	require.NoError(t, framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
	return c, framer
}

// block2 returns the fields of a request of HTTP/2, names and values in turns. It is the same each time.
func block2(t *testing.T, fields ...string) []byte {
	t.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		require.NoError(t, encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1], Sensitive: true}))
	}
	return block.Bytes()
}

// begin2 begins a request of HTTP/2.
func begin2(t *testing.T, framer *http2.Framer, method, path string, ends bool, more ...string) {
	t.Helper()
	block := block2(t, append([]string{":method", method, ":scheme", "http", ":authority", "a", ":path", path}, more...)...)
	require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndStream: ends, EndHeaders: true}))
}

// nginx sends its whole request, as nginx does by default, and then reads the answer.
func (s *started) nginx(t *testing.T, target string, size int) *http.Response {
	t.Helper()
	c := s.dial(t)
	_, err := fmt.Fprintf(c, "POST %s HTTP/1.0\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", target, size, strings.Repeat("x", size))
	require.NoError(t, err, target)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err, target)
	_, err = io.Copy(io.Discard, answer.Body)
	require.NoError(t, err, target)
	return answer
}

// nobody listens at this address. One that was free a moment ago may be another test's by now.
const nobody = "127.0.0.1:1"

func TestAnEarlyAnswerReachesAClientThatSendsItsWholeBodyFirst(t *testing.T) {
	t.Parallel()
	const text = "version: 1\nendpoints:\n  \"POST /refused\": {mode: deny}\ndefault: 100/h\n"
	g := start(t, text, upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // or it would wait for a small body
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		_ = http.NewResponseController(w).Flush()
	}), nil)
	dead := start(t, text, "http://"+nobody, nil)
	for _, size := range []int{100 << 10, 1 << 20, 20 << 20} {
		assert.Equal(t, 403, g.nginx(t, "/refused", size).StatusCode, "the limiter's")
		assert.Equal(t, 400, g.nginx(t, "//refused", size).StatusCode, "the gateway's")
		assert.Equal(t, 413, g.nginx(t, "/", size).StatusCode, "the service's")
		assert.Equal(t, 502, dead.nginx(t, "/", size).StatusCode)
	}
	for _, target := range []string{"/refused", "//refused", "/"} {
		c := g.dial(t)
		_, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nx", target)
		require.NoError(t, err)
		read := bufio.NewReader(c)
		answer, err := http.ReadResponse(read, nil)
		require.NoError(t, err, "it does not wait for a body that is held back")
		assert.GreaterOrEqual(t, answer.StatusCode, 400)
		_, _ = io.Copy(io.Discard, answer.Body)
		_, err = io.Copy(io.Discard, read)
		assert.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the connection is closed")
	}
}

// Whoever answers early, what the client sends afterwards on the connection is neither a request nor lost with the answer.
func TestWhatFollowsAnEarlyAnswerIsNoRequest(t *testing.T) {
	const text = "version: 1\nproxies: {trusted: [127.0.0.1]}\nendpoints:\n  \"/refused\": {mode: deny}\n  \"/now\": {limit: 1/h}\n  \"/keyed\": {limit: 1/h, key: \"apikey:X-Key\", no_key: unauthorized}\n" +
		"  \"/maintained\": {mode: deny, refusal: {status: 503}}\ndefault: 100000/h\n"
	var smuggled atomic.Int64
	t.Cleanup(func() { assert.Zero(t, smuggled.Load()) })
	g := start(t, text, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/smuggled":
			smuggled.Add(1)
		case "/early":
			_ = http.NewResponseController(w).EnableFullDuplex()
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		case "/streams":
			_ = http.NewResponseController(w).EnableFullDuplex()
			_ = http.NewResponseController(w).Flush()
			_, _ = io.Copy(w, r.Body)
		}
	}), func(o *gateway.Options) { o.UserHeader = "X-User" })
	dead := start(t, text, "http://"+nobody, nil)
	g.status("GET", "/now")
	const body = "a body GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
	length := fmt.Sprintf("Content-Length: %d\r\n", len(body))
	for _, test := range []struct {
		by      *started
		target  string
		fields  string
		status  int
		already int // bytes of the body that come with the head
	}{
		{g, "/refused", length, 403, 6},
		{g, "/refused", length, 403, len(body)},
		{g, "/refused", length + "Expect: 100-continue\r\n", 403, 0},
		{g, "/refused", length + "Expect: 100-continue\r\n", 403, 6},
		{g, "/maintained", length, 503, 6},
		{g, "/now", length, 429, 6},
		{g, "/keyed", length, 401, 6},
		{g, "//refused", length, 400, 6},
		{g, "/x/../refused", length, 400, 6},
		{g, "/", length + "X-User: a\r\nX-User: b\r\n", 400, 6},
		{g, "/early", length, 413, 6},
		{g, "/streams", length, 200, 6},
		{dead, "/", length, 502, 6},
		{g, "/", "Connection: Upgrade\r\nUpgrade: websocket\r\n", 200, 0},
		{g, "/", "Connection: Upgrade\r\nUpgrade: websocket\r\n" + length, 200, len(body)},
		{g, "/refused", "Connection: Upgrade\r\nUpgrade: h2c\r\n", 403, 0},
	} {
		for _, version := range []string{"1.1", "1.0"} {
			if version == "1.0" && strings.Contains(test.fields, "Expect") {
				continue // HTTP/1.0 has no Expect
			}
			t.Run(test.target+" "+version+" "+test.fields, func(t *testing.T) {
				t.Parallel()
				c := test.by.dial(t)
				fields := test.fields
				if !strings.Contains(fields, "Upgrade") {
					fields += "Connection: keep-alive\r\n"
				}
				_, err := fmt.Fprintf(c, "POST %s HTTP/%s\r\nHost: a\r\n%s\r\n%s", test.target, version, fields, body[:test.already])
				require.NoError(t, err)
				read := bufio.NewReader(c)
				answer, err := http.ReadResponse(read, nil)
				require.NoError(t, err)
				assert.Equal(t, test.status, answer.StatusCode)
				assert.True(t, answer.Close, "Connection: close")
				_, err = io.WriteString(c, body[test.already:]+strings.Repeat("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n", 1000)) // more than net/http reads ahead
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, answer.Body)
				require.NoError(t, err)
				rest, err := io.ReadAll(read)
				require.NoError(t, err, "the connection is not reset")
				assert.Empty(t, rest)
			})
		}
	}
	c := g.dial(t)
	read := bufio.NewReader(c)
	for range 3 {
		_, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\n%s\r\n%s", length, body)
		require.NoError(t, err)
		answer, err := http.ReadResponse(read, nil)
		require.NoError(t, err)
		assert.False(t, answer.Close, "the whole body was read")
	}
}

// A proxy may take the length of a body, or chunks in HTTP/1.0, where Weir does not.
func TestAConnectionWithAFramingInDoubtIsNotKept(t *testing.T) {
	g := start(t, "version: 1\ndefault: 100/h\n", upstream(t, func(http.ResponseWriter, *http.Request) {}), nil)
	for _, head := range []string{
		"HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
		"HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n",
		"HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n",
		"HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n",
		"HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 5\r\n",
	} {
		answer := g.raw("POST / " + head + "Host: a\r\n\r\n0\r\n\r\n")
		assert.True(t, answer.Close, head)
	}
}

// slow is a file that lets one request pass at a time.
const slow = "version: 1\nglobal: {concurrency: 1, key: global}\n"

func impatient(o *gateway.Options) { o.ClientTimeout = time.Second }

// download answers with more than all buffers between a service and its client have room for.
func download(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if r.URL.Path != "/download" {
		return
	}
	for range 64 {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			return
		}
	}
}

func TestAClientThatBlocksLosesItsSlot(t *testing.T) {
	t.Parallel()
	for name, blocks := range map[string]func(*testing.T, *started){
		"a body of HTTP/1": func(t *testing.T, g *started) {
			_, err := io.WriteString(g.dial(t), "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nx")
			require.NoError(t, err)
		},
		"chunks": func(t *testing.T, g *started) {
			_, err := io.WriteString(g.dial(t), "POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nx")
			require.NoError(t, err)
		},
		"a body after a 100": func(t *testing.T, g *started) {
			_, err := io.WriteString(g.dial(t), "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n")
			require.NoError(t, err)
		},
		"no gRPC": func(t *testing.T, g *started) {
			_, framer := g.dial2(t, 1<<16)
			begin2(t, framer, "POST", "/upload", false, "content-type", "application/grpc")
		},
		"a body of HTTP/2": func(t *testing.T, g *started) {
			_, framer := g.dial2(t, 1<<16)
			begin2(t, framer, "POST", "/upload", false)
			require.NoError(t, framer.WriteData(1, false, []byte("x")))
		},
		"an answer of HTTP/1": func(t *testing.T, g *started) {
			_, err := io.WriteString(g.dial(t), "GET /download HTTP/1.1\r\nHost: a\r\n\r\n")
			require.NoError(t, err)
		},
		"a stream of HTTP/2": func(t *testing.T, g *started) {
			c, framer := g.dial2(t, 10_000)
			begin2(t, framer, "GET", "/download", true)
			go func() { _, _ = io.Copy(io.Discard, c) }()
		},
		"a connection of HTTP/2": func(t *testing.T, g *started) {
			_, framer := g.dial2(t, 1<<30)
			require.NoError(t, framer.WriteWindowUpdate(0, 1<<30))
			begin2(t, framer, "GET", "/download", true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived := make(chan bool, 1)
			g := start(t, slow, upstream(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/" {
					arrived <- true
				}
				download(w, r)
			}), impatient)
			blocks(t, g)
			<-arrived
			require.Eventually(t, func() bool { return g.status("GET", "/") == 200 }, 30*time.Second, 10*time.Millisecond, "the slot is released")
		})
	}
	t.Run("and gets an answer", func(t *testing.T) {
		t.Parallel()
		g := start(t, slow, upstream(t, download), impatient)
		c := g.dial(t)
		_, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nx")
		require.NoError(t, err)
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		assert.Equal(t, 408, answer.StatusCode)
		assert.True(t, answer.Close)
	})
}

// Its time is real, as a bubble has no network. Nothing bounds it from above but the client's patience.
func TestAClientThatGoesOnKeepsItsSlotHoweverSlowItIs(t *testing.T) {
	t.Parallel()
	const parts = 15 // one each 200 ms takes longer than a client may block
	const long = parts * 200 * time.Millisecond
	pause := func() { time.Sleep(long / parts) }
	patient := func(o *gateway.Options) { o.ClientTimeout = 2 * time.Second } // a busy machine may pause too
	service := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/upload", "/grpc":
			body, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %v", body, err)
		case "/poll":
			time.Sleep(long)
			_, _ = io.WriteString(w, "news")
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(long)
			_, _ = io.WriteString(w, "event")
		case "/socket":
			c, both, _ := http.NewResponseController(w).Hijack()
			defer c.Close()
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			line, _ := both.ReadString('\n')
			_, _ = io.WriteString(c, line)
		default:
			download(w, r)
		}
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(service))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	g := start(t, "version: 1\nglobal: {concurrency: 100, key: global}\n", server.URL, patient)
	get := func(t *testing.T, path string) string {
		answer, err := http.Get(g.url + path)
		require.NoError(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return string(body)
	}
	t.Run("an upload", func(t *testing.T) {
		t.Parallel()
		c := g.dial(t)
		_, err := fmt.Fprintf(c, "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", parts)
		for range parts {
			require.NoError(t, err)
			pause()
			_, err = io.WriteString(c, "x")
		}
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		body, _ := io.ReadAll(answer.Body)
		assert.Equal(t, strings.Repeat("x", parts)+" <nil>", string(body))
	})
	t.Run("a download", func(t *testing.T) {
		t.Parallel()
		c := g.dial(t)
		_, err := io.WriteString(c, "GET /download HTTP/1.1\r\nHost: a\r\n\r\n")
		require.NoError(t, err)
		read := bufio.NewReaderSize(c, 4<<20)
		for range parts {
			pause()
			_, err := read.Peek(4 << 20)
			require.NoError(t, err)
			_, err = read.Discard(4 << 20)
			require.NoError(t, err)
		}
	})
	t.Run("a long poll", func(t *testing.T) { t.Parallel(); assert.Equal(t, "news", get(t, "/poll")) })
	t.Run("an event stream", func(t *testing.T) { t.Parallel(); assert.Equal(t, "event", get(t, "/events")) })
	t.Run("a WebSocket", func(t *testing.T) {
		t.Parallel()
		c := g.dial(t)
		_, err := io.WriteString(c, "GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		require.NoError(t, err)
		read := bufio.NewReader(c)
		answer, err := http.ReadResponse(read, nil)
		require.NoError(t, err)
		require.Equal(t, 101, answer.StatusCode)
		time.Sleep(long)
		_, err = io.WriteString(c, "late\n")
		require.NoError(t, err)
		line, err := read.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, "late\n", line)
	})
	t.Run("gRPC", func(t *testing.T) {
		t.Parallel()
		g := start(t, slow, "h2c"+strings.TrimPrefix(server.URL, "http"), patient)
		_, framer := g.dial2(t, 1<<16)
		begin2(t, framer, "POST", "/grpc", false, "content-type", "application/grpc", "te", "trailers")
		time.Sleep(long)
		require.NoError(t, framer.WriteData(1, true, []byte("late")))
		for {
			frame, err := framer.ReadFrame()
			require.NoError(t, err)
			if data, ok := frame.(*http2.DataFrame); ok && len(data.Data()) > 0 {
				assert.Equal(t, "late <nil>", string(data.Data()))
				return
			}
		}
	})
}

// RFC 9110, 15.2: a client of HTTP/1.0 would take a 103 for the answer.
func TestAnInformationalAnswerReachesOnlyClientsThatKnowIt(t *testing.T) {
	g := start(t, "version: 1\nheaders: {send: both}\ndefault: 100/h\n", upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusContinue)
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusProcessing)
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}), nil)
	for _, test := range []struct {
		request string
		want    []string
	}{
		{"GET / HTTP/1.0\r\nHost: a\r\n\r\n", []string{"200"}},
		{"POST / HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi", []string{"200"}},
		{"GET / HTTP/1.0\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", []string{"200"}},
		{"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", []string{"102", "103", "200"}},
		{"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi", []string{"100", "102", "103", "200"}},
	} {
		c := g.dial(t)
		_, err := io.WriteString(c, test.request)
		require.NoError(t, err)
		all, err := io.ReadAll(c)
		require.NoError(t, err)
		var got []string
		for line := range strings.SplitSeq(string(all), "\r\n") {
			if strings.HasPrefix(line, "HTTP/1.") {
				got = append(got, line[9:12])
			}
		}
		assert.ElementsMatch(t, test.want, got, test.request)
		assert.Contains(t, string(all), "X-Ratelimit-Limit:", "the limiter's fields are on the answer")
		assert.Contains(t, string(all), "\nRatelimit:", "the limiter's fields are on the answer")
	}
}

func TestAHeaderWithoutEndNeedsNoMemory(t *testing.T) {
	g := start(t, "version: 1\ndefault: 100/h\n", upstream(t, func(w http.ResponseWriter, r *http.Request) {
		size := 100 << 10
		if r.URL.Path == "/large" {
			size = 1 << 20
		}
		w.Header().Set("X-Large", strings.Repeat("x", size))
	}), nil)
	assert.Equal(t, 200, g.status("GET", "/"))
	assert.Equal(t, 502, g.status("GET", "/large"))
}
