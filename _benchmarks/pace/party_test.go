package pace

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// burst is how many requests a third party takes ahead of its rate: even pacing meets a
// network's jitter, of milliseconds.
const burst = 20

// A party is a third party. It keeps count of what arrives, whatever senders say.
type party interface {
	url() string

	// arrivals are those since a time, in their order.
	arrivals(since time.Time) ([]arrival, error)

	close()
}

type arrival struct {
	at     time.Time
	status int // that it was answered with
}

// A server is a third party in this process.
type server struct {
	http     *http.Server
	listener net.Listener

	mu   sync.Mutex
	came []arrival
}

func serve(h http.Handler) (*server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{listener: listener}
	s.http = &http.Server{Handler: s.note(h)}
	go s.http.Serve(listener)
	return s, nil
}

func (s *server) url() string { return "http://" + s.listener.Addr().String() + "/" }
func (s *server) close()      { _ = s.http.Close() }

func (s *server) note(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := arrival{at: time.Now()}
		seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		h.ServeHTTP(seen, r)
		a.status = seen.status
		s.mu.Lock()
		defer s.mu.Unlock()
		s.came = append(s.came, a)
	})
}

// arrivals forgets those before.
func (s *server) arrivals(since time.Time) (came []arrival, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.came {
		if !a.at.Before(since) {
			came = append(came, a)
		}
	}
	s.came = nil
	return came, nil
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// weirParty limits all clients together, as nginx does.
func weirParty(_ context.Context, limit int64) (party, error) {
	limits, err := middleware.New(middleware.Config{
		Rules: []middleware.Rule{{Name: "all", Key: keyfunc.Global, Limit: limiter.PerSecond(limit).WithBurst(burst)}},
	})
	if err != nil {
		return nil, err
	}
	return serve(limits.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
}

// deadParty answers, but not with what was asked for.
func deadParty(context.Context, int64) (party, error) {
	return serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
}

// A closedPort takes no connections, and so knows of no arrivals.
type closedPort struct{ addr string }

func closedParty(context.Context, int64) (party, error) {
	addr, err := freeAddr()
	return closedPort{addr}, err
}

func (p closedPort) url() string                           { return "http://" + p.addr + "/" }
func (p closedPort) arrivals(time.Time) ([]arrival, error) { return nil, nil }
func (p closedPort) close()                                {}

// freeAddr is one that nothing listens at.
func freeAddr() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// A coolParty has no limit. It answers a single request with a 429, which asks for cooldown,
// and so tells one caller of one process.
type coolParty struct {
	*server
	mu      sync.Mutex
	due     time.Time // for the refusal; zero: none is
	refused time.Time // when it was about to be written
}

// cooldown is what the one refusal asks for.
const cooldown = 2 * time.Second

func newCoolParty() (*coolParty, error) {
	p := &coolParty{}
	var err error
	p.server, err = serve(p)
	return p, err
}

// refuseAt has the first request from then on refused.
func (p *coolParty) refuseAt(due time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due, p.refused = due, time.Time{}
}

// refusal is when the one was answered.
func (p *coolParty) refusal() (time.Time, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused.IsZero() {
		return p.refused, fmt.Errorf("nothing was refused: no request came after the time for it")
	}
	return p.refused, nil
}

func (p *coolParty) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.due.IsZero() || time.Now().Before(p.due) {
		return
	}
	p.due, p.refused = time.Time{}, time.Now()
	w.Header().Set("Retry-After", strconv.Itoa(int(cooldown/time.Second)))
	w.WriteHeader(http.StatusTooManyRequests)
}
