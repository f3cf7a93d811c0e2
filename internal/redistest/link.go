package redistest

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// A Link simulates a network with a long round trip. Making a connection takes a round trip, and so
// does a write.
type Link struct {
	RoundTrip time.Duration

	// Lose, if set, reports whether to lose an answer that has arrived, and its connection.
	Lose func() bool

	dials atomic.Int64
}

// Dials returns how many connections were begun.
func (l *Link) Dials() int { return int(l.dials.Load()) }

// Dial is a Dialer for clients of go-redis.
func (l *Link) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l.dials.Add(1)
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		_ = conn.Close()
		return nil, ctx.Err()
	case <-time.After(l.RoundTrip):
	}
	if l.RoundTrip > 0 {
		conn = &far{Conn: conn, roundTrip: l.RoundTrip}
	}
	if l.Lose != nil {
		conn = losing{conn, l.Lose}
	}
	return conn, nil
}

// A far connection's writes arrive late.
type far struct {
	net.Conn
	roundTrip time.Duration
	written   time.Time
}

func (c *far) Write(b []byte) (int, error) {
	if time.Since(c.written) > c.roundTrip/4 { // else it travels with the write before
		time.Sleep(c.roundTrip)
	}
	c.written = time.Now()
	return c.Conn.Write(b)
}

// A losing connection closes when it loses an answer.
type losing struct {
	net.Conn
	lose func() bool
}

func (c losing) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.lose() {
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}
