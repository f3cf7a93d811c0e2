package redisstore_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/redis/redisstore"
)

// A shelf keeps what is written while it is open, as the socket of a server that has stopped does, also
// after the client has closed the connection.
type shelf struct {
	mu     sync.Mutex
	isOpen bool
	kept   []*shelved
}

type shelved struct {
	net.Conn
	on      *shelf
	written bytes.Buffer // not sent yet
}

func (s *shelf) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &shelved{Conn: conn, on: s}, err
}

func (c *shelved) Write(b []byte) (int, error) {
	c.on.mu.Lock()
	defer c.on.mu.Unlock()
	if !c.on.isOpen {
		return c.Conn.Write(b)
	}
	if c.written.Len() == 0 {
		c.on.kept = append(c.on.kept, c)
	}
	return c.written.Write(b)
}

func (c *shelved) Close() error {
	c.on.mu.Lock()
	defer c.on.mu.Unlock()
	if c.written.Len() > 0 {
		return nil // its bytes have arrived
	}
	return c.Conn.Close()
}

func (s *shelf) set(isOpen bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isOpen = isOpen
}

// send sends what was kept.
func (s *shelf) send(t *testing.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NotEmpty(t, s.kept)
	for _, c := range s.kept {
		_, err := c.Conn.Write(c.written.Bytes())
		assert.NoError(t, err)
		c.written.Reset()
		defer c.Conn.Close()
	}
}

// The bytes of a settlement whose time is up may lie in a Redis that has stopped. They take effect after
// decisions that came later on another connection, once.
func TestASettlementWithoutAnAnswerMayTakeEffectLate(t *testing.T) {
	server, s := redistest.Start(t), &shelf{}
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Dialer: s.dial})
	redistest.CloseAfter(t, client)
	store := redisstore.New(client, redisstore.Options{ForgetRefusals: true, Failover: failover.Options{
		Deadline: time.Second, Failures: 1000, OnDegraded: func(failover.Event) {},
	}})
	l := limiter.Must(limiter.New(limiter.Config{Name: "rule", Store: store, Limit: limiter.PerDay(100).With(limiter.TokenBucket), OnOutage: limiter.FailClosed}))
	d, err := l.AllowN(t.Context(), "key", 90)
	require.NoError(t, err)
	require.EqualValues(t, 10, d.Remaining)

	s.set(true)
	require.NoError(t, l.Refund(t.Context(), "key", 50, d))
	redistest.Await(t, "the settlement to be given up", func() bool { return store.Stats().Unsettled == 1 })
	s.set(false)
	next, err := l.AllowN(t.Context(), "key", 20)
	require.NoError(t, err)
	assert.False(t, next.Allowed, "the refund has not taken effect")

	s.send(t)
	redistest.Await(t, "the refund", func() bool {
		d, err := l.Look(t.Context(), "key", 1)
		return err == nil && d.Remaining == 60
	})
	assert.EqualValues(t, 1, store.Stats().Unsettled)
}
