package gateway_test

import (
	"cmp"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/weirgo/weir/cmd/weir/internal/gateway"
)

// settled waits until no more than a few goroutines are left beside those before.
func settled(t *testing.T, before int) {
	t.Helper()
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+10 }, 30*time.Second, 10*time.Millisecond,
		"%d goroutines before", before)
}

// heap is the memory in use by the heap and the stacks.
func heap() int64 {
	runtime.GC()
	runtime.GC() // the pools too
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// This is the attack of CVE-2023-44487: a client opens streams and resets each at once, so it never
// has too many open.
func TestAClientThatResetsItsStreamsHoldsLittleAndHarmsNoOther(t *testing.T) {
	var active, most atomic.Int64
	g := start(t, "version: 1\ndefault: 1000000/s\n", upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/hang" {
			return
		}
		now := active.Add(1)
		defer active.Add(-1)
		for {
			if old := most.Load(); now <= old || most.CompareAndSwap(old, now) {
				break
			}
		}
		<-r.Context().Done()
	}), nil)
	require.Equal(t, 200, g.status("GET", "/"))
	before := runtime.NumGoroutine()

	c, framer := g.dial2(t, 1<<16)
	require.NoError(t, c.SetDeadline(time.Time{}))
	go func() { _, _ = io.Copy(io.Discard, c) }()
	block := block2(t, ":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/hang")
	const streams = 10_000
	sent := 0
	for ; sent < streams; sent++ {
		id := uint32(2*sent + 1)
		if framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndStream: true, EndHeaders: true}) != nil ||
			framer.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
			break // the server has closed the connection, as it may
		}
		if sent%1000 == 500 {
			assert.Equal(t, 200, g.status("GET", "/"), "another client is served")
		}
	}
	assert.Greater(t, sent, 500)
	assert.LessOrEqual(t, most.Load(), int64(250), "no more than the streams of a connection")
	_ = c.Close()
	require.Eventually(t, func() bool { return active.Load() == 0 }, 30*time.Second, time.Millisecond)
	settled(t, before)
	assert.Equal(t, 200, g.status("GET", "/"))
}

// An upstream that reads nothing gets none of the bodies, and the gateway keeps none.
func TestAnUpstreamThatHangsHoldsNoMemory(t *testing.T) {
	hanging, err := net.Listen("tcp", "127.0.0.1:0") // connections are made, and nobody reads
	require.NoError(t, err)
	t.Cleanup(func() { _ = hanging.Close() })
	g := start(t, "version: 1\ndefault: 1000000/s\n", "http://"+hanging.Addr().String(), func(o *gateway.Options) { o.Timeout = time.Second })
	const clients, body = 50, 16 << 20
	before, used := runtime.NumGoroutine(), heap()
	var all sync.WaitGroup
	var sent, answered atomic.Int64
	for i := range clients {
		all.Go(func() {
			c, err := net.Dial("tcp", g.Addr().String())
			if !assert.NoError(t, err) {
				return
			}
			defer c.Close()
			length := 0
			if i%2 == 0 {
				length = body
			}
			_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: "+strconv.Itoa(length)+"\r\n\r\n")
			go func() {
				n, _ := io.CopyN(c, zeros{}, int64(length))
				sent.Add(n)
			}()
			answer := make([]byte, len("HTTP/1.1 504"))
			if _, err := io.ReadFull(c, answer); assert.NoError(t, err) && assert.Equal(t, "HTTP/1.1 504", string(answer)) {
				answered.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, clients, answered.Load())
	settled(t, before)
	assert.Less(t, heap()-used, int64(8<<20), "the bodies have %d bytes", clients/2*body)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// WEIR_IDLE has another number of connections, such as 9000. The page says what one needs.
func TestAnIdleConnectionNeedsLittle(t *testing.T) {
	connections, err := strconv.Atoi(cmp.Or(os.Getenv("WEIR_IDLE"), "1000"))
	require.NoError(t, err)
	g := start(t, "version: 1\ndefault: 1000000/s\n", upstream(t, func(http.ResponseWriter, *http.Request) {}), nil)
	require.Equal(t, 200, g.status("GET", "/"))
	used := heap()
	all := make([]net.Conn, connections)
	answer := make([]byte, 4096)
	for i := range all {
		all[i], err = net.Dial("tcp", g.Addr().String())
		require.NoError(t, err)
		defer all[i].Close()
		_, err = io.WriteString(all[i], "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		require.NoError(t, err)
		n, err := all[i].Read(answer)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(answer[:n]), "HTTP/1.1 200"))
	}
	each := (heap() - used) / int64(connections)
	t.Logf("%d connections: %d bytes each, the client's end included", connections, each)
	assert.Less(t, each, int64(32<<10))
}
