package shed

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware"
)

// Clients that keep their requests waiting: they hold a place only while a handler works.

func TestClientsThatHoldTheirBodiesBackDoNotStopTheService(t *testing.T) {
	for _, idle := range []int{initialLimit, 64, 100} {
		s := serviceOf(t, false)
		for range idle {
			s.dial(t, "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nx")
		}
		s.others(t, idle)
	}
}

func TestClientsThatDoNotReadTheirAnswersDoNotStopTheService(t *testing.T) {
	s := serviceOf(t, false)
	for range initialLimit {
		s.dial(t, "GET /download HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	s.others(t, initialLimit)
}

func TestOneConnectionOfManyStreamsDoesNotStopTheService(t *testing.T) {
	s := serviceOf(t, true)
	const streams = 100
	for range streams {
		body, send := io.Pipe()
		t.Cleanup(func() { _ = send.Close() })
		go func() { _, _ = send.Write([]byte("x")) }()
		go func() {
			if response, err := s.Client().Post(s.URL+"/upload", "text/plain", body); err == nil {
				t.Errorf("a stream was answered %s", response.Status)
			}
		}()
	}
	s.others(t, streams)
}

// A service has a Limiter that knows nothing yet. Its handlers wait for their clients.
type service struct {
	*httptest.Server
	began chan struct{} // one for each that waits, or is going to
}

func serviceOf(t *testing.T, http2 bool) *service {
	s := &service{began: make(chan struct{}, 1000)}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /upload", func(_ http.ResponseWriter, r *http.Request) {
		s.began <- struct{}{}
		_, _ = io.ReadAll(r.Body)
		panic(http.ErrAbortHandler) // its client has gone
	})
	mux.HandleFunc("GET /download", func(w http.ResponseWriter, _ *http.Request) {
		s.began <- struct{}{}
		for range 1000 {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	})
	limits := middleware.Must(middleware.New(middleware.Config{Overload: Must(New(Options{}))}))
	s.Server = httptest.NewUnstartedServer(limits.Handler(mux))
	if s.EnableHTTP2 = http2; http2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s
}

// dial sends text on a connection of its own, of which nothing is ever read.
func (s *service) dial(t *testing.T, text string) {
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, text)
	require.NoError(t, err)
}

// others requires that so many are held up, and that all others are served.
func (s *service) others(t *testing.T, heldUp int) {
	for range heldUp {
		<-s.began
	}
	for range 20 {
		response, err := s.Client().Get(s.URL)
		require.NoError(t, err)
		_ = response.Body.Close()
		require.Equal(t, 200, response.StatusCode)
	}
}

func TestARequestCountsWhileItsHandlerWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := premium()
		p, _ := l.Admit(tiered(""))
		counted := func(want int, why string) {
			t.Helper()
			synctest.Wait()
			s := l.Stats()[0]
			assert.Equal(t, [2]int{want, 1 - want}, [2]int{s.InFlight, s.Streams}, why)
		}
		p.Waits(true)
		time.Sleep(slowTime / 2)
		counted(1, "that is not long")
		p.Waits(false)
		time.Sleep(time.Minute)
		counted(1, "it works")
		p.Waits(true)
		time.Sleep(slowTime/2 + sweepEvery)
		counted(0, "its client has kept it waiting for long, in all")
		p.Waits(false)
		counted(1, "it works, whenever its client has come")
		p.Waits(true)
		counted(0, "its client is known to be slow")
		p.Waits(true) // another goroutine
		p.Waits(false)
		counted(0, "one of two waits")
		p.Waits(false)
		p.Streams(false)
		time.Sleep(time.Minute)
		counted(0, "a stream does not count")
		p.Waits(true)
		p.Waits(false)
		counted(0, "nor when it has sent something")
		p.Leave()
		assert.Zero(t, l.Stats()[0].InFlight+l.Stats()[0].Streams)
	})
}

// A client that is slow is no slow service.
func TestLatencyIsWithoutTheTimeThatAHandlerWaitsForItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Must(New(Options{}))
		for range 20 * cohortSize {
			p, _ := l.Admit(tiered(""))
			go func() {
				p.Waits(true)
				time.Sleep(2 * time.Second)
				p.Waits(false)
				time.Sleep(50 * time.Millisecond)
				p.Leave()
			}()
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		assert.InDelta(t, 0.05, l.Stats()[0].Latency.Seconds(), sweepEvery.Seconds())
	})
}

func TestClientsThatDripHoldNoPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Must(New(Options{}))
		var all sync.WaitGroup
		for range mostSlow * initialLimit {
			p, _ := l.Admit(tiered(""))
			require.NotNil(t, p)
			all.Go(func() {
				for range 100 {
					p.Waits(true)
					time.Sleep(90 * time.Millisecond) // for the next byte
					p.Waits(false)
				}
				p.Leave()
			})
		}
		time.Sleep(slowTime + sweepEvery)
		synctest.Wait()
		assert.Zero(t, l.Stats()[0].InFlight)
		all.Wait()
	})
}

func TestSlowClientsThatComeBackTogetherAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const apart = mostSlow * initialLimit
		l := Must(New(Options{}))
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var held []middleware.Place
		for range 20 {
			for range initialLimit {
				go func() {
					if p, _ := l.Admit(tiered("").WithContext(ctx)); p != nil {
						p.Waits(true)
						mu.Lock()
						held = append(held, p)
						mu.Unlock()
					}
				}()
			}
			time.Sleep(slowTime + 2*sweepEvery)
		}
		stands := func(inFlight, apart int, why string) {
			t.Helper()
			synctest.Wait()
			s := l.Stats()[0]
			assert.Equal(t, [2]int{inFlight, apart}, [2]int{s.InFlight, s.Streams}, why)
		}
		stands(initialLimit, apart, "the last ones are slow too, and count")
		cancel()
		for _, p := range held[:10] {
			p.Leave()
		}
		held = held[10:]
		time.Sleep(2 * sweepEvery)
		stands(initialLimit-10, apart, "others have their room")
		for _, p := range held {
			p.Waits(false)
		}
		stands(initialLimit-10+apart, 0, "all have sent the last byte")
		for _, p := range held {
			p.Waits(true)
		}
		stands(initialLimit-10, apart, "they wait once more")
		time.Sleep(slowTime + 2*sweepEvery)
		for _, p := range held[:30] {
			p.Streams(true)
		}
		time.Sleep(2 * sweepEvery)
		stands(0, len(held), "streams leave their room to others")
		for _, p := range held {
			p.Leave()
		}
		stands(0, 0, "all have gone")
		assert.Zero(t, l.all.slow)
	})
}
