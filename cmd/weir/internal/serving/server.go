package serving

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A Server is an http.Server with a listener that shuts down without losing a request. Its bounds limit
// what a client can hold open.
type Server struct {
	http.Server
	Bodies   *Memory // for bodies that are read ahead; nil: no bound. It is set before Start
	listener net.Listener
	end      context.CancelFunc // cancels the context of all requests
	leaving  atomic.Bool
	active   atomic.Int64 // requests in progress, and connections that were upgraded
	fresh    sync.Map     // the keys are accepted connections that have sent no request yet
}

// The bounds of every Server.
const (
	headerPatience = 10 * time.Second
	idlePatience   = 2 * time.Minute
	mostHeader     = 64 << 10
)

// Open listens on addr, the value of flag, and logs the address.
func Open(flag, addr string, logger *slog.Logger) (net.Listener, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		var call *os.SyscallError
		if errors.As(err, &call) {
			err = call.Err // the message has the address already
		}
		return nil, fmt.Errorf("%s: cannot listen on %s: %w", flag, addr, err)
	}
	logger.Info("weir: listening", slog.String("flag", flag), slog.String("address", listener.Addr().String()))
	return listener, nil
}

// Listen returns a server for handler that listens on addr, the value of flag.
func Listen(flag, addr string, handler http.Handler, logger *slog.Logger) (*Server, error) {
	listener, err := Open(flag, addr, logger)
	if err != nil {
		return nil, err
	}
	s := &Server{listener: listener}
	all, end := context.WithCancel(context.Background())
	s.end = end
	s.BaseContext = func(net.Listener) context.Context { return all }
	s.ReadHeaderTimeout, s.IdleTimeout, s.MaxHeaderBytes = headerPatience, idlePatience, mostHeader
	s.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelDebug) // mostly mistakes of clients
	s.ConnState = s.note
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.leaving.Load() && r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
		}
		s.active.Add(1)
		defer s.active.Add(-1)
		serve(handler, w, r, s.Bodies)
	})
	return s, nil
}

type connKey struct{}

// Conn returns the client's connection, for the request with that context.
func Conn(ctx context.Context) net.Conn {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	return c
}

// Addr is the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Start serves in the background, with TLS if the server has a TLSConfig.
func (s *Server) Start(failed func(error)) {
	go func() {
		serve := func() error { return s.Serve(s.listener) }
		if s.TLSConfig != nil {
			serve = func() error { return s.ServeTLS(s.listener, "", "") }
		}
		if err := serve(); !s.leaving.Load() {
			failed(err)
		}
	}()
}

// note keeps track of fresh connections.
func (s *Server) note(c net.Conn, state http.ConnState) {
	if state == http.StateNew {
		s.fresh.Store(c, nil)
	} else {
		s.fresh.Delete(c)
	}
}

func (s *Server) hasFresh() (has bool) {
	s.fresh.Range(func(any, any) bool {
		has = true
		return false
	})
	return has
}

// freshPatience is how long Drain waits for the first request of a fresh connection.
const freshPatience = time.Second

// Drain implements Service. While grace lasts, the server accepts connections, and closes each of HTTP/1 after
// its next response. A connection of HTTP/2 stays: a client may send requests while GOAWAY is on its way, and
// they would be lost. Then Drain closes the listener a moment before http.Server.Shutdown, which would
// close fresh connections whose first request is about to arrive.
func (s *Server) Drain(ctx context.Context, grace time.Duration) {
	if s == nil {
		return
	}
	defer s.end()
	s.leaving.Store(true)
	wait(ctx, grace, func() bool { return false })
	_ = s.listener.Close()
	wait(ctx, freshPatience, func() bool { return !s.hasFresh() })
	if s.Shutdown(ctx) != nil {
		_ = s.Close()
	}
	wait(ctx, time.Hour, func() bool { return s.active.Load() == 0 }) // Shutdown does not wait for websockets
}

// wait returns when done reports true, after most, or when ctx ends.
func wait(ctx context.Context, most time.Duration, done func() bool) {
	over := time.NewTimer(most)
	defer over.Stop()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return
		case <-over.C:
			return
		case <-look.C:
		}
	}
}
