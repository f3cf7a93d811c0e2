package redisstore_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
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

const lease = 10 * time.Second

// threeAtOnce is a semaphore of three slots.
func threeAtOnce(t *testing.T, client redis.UniversalClient, deadline time.Duration) *limiter.Semaphore {
	store := redisstore.New(client, redisstore.Options{Failover: failover.Options{Deadline: deadline, Failures: 1000}})
	s, err := limiter.NewSemaphore(limiter.SemaphoreConfig{Name: "exports", Store: store, Limit: limiter.AtOnce(3), OnOutage: limiter.FailClosed})
	require.NoError(t, err)
	return s
}

// TestHolder is the program of another process, which holds three slots until its input ends.
func TestHolder(t *testing.T) {
	addr := os.Getenv("WEIR_TEST_HOLDER")
	if addr == "" {
		return
	}
	s := threeAtOnce(t, redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: addr})), redistest.Patience)
	for range 3 {
		_, d, err := s.Acquire(t.Context(), "key")
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	_, _ = os.Stdout.WriteString("holds three\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// hold starts a process that holds three slots.
func hold(t *testing.T, server *redistest.Server) *os.Process {
	cmd := exec.Command(os.Args[0], "-test.run=^TestHolder$")
	cmd.Env = append(os.Environ(), "WEIR_TEST_HOLDER="+server.Addr)
	_, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "holds three\n", line)
	return cmd.Process
}

// now is the server's time.
func now(t *testing.T, server *redistest.Server) time.Time {
	seconds, micros, _ := strings.Cut(server.MustDo("TIME"), "\n")
	return time.Unix(number(t, seconds), number(t, micros)*1000)
}

func number(t *testing.T, text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	return n
}

// expiry is when the last token of the semaphore's key expires.
func expiry(t *testing.T, server *redistest.Server) time.Time {
	said := server.MustDo("ZRANGE", server.MustDo("KEYS", "*places*"), "-1", "-1", "WITHSCORES") // a token is any bytes
	micros, err := strconv.ParseFloat(said[strings.LastIndex(said, "\n")+1:], 64)
	require.NoError(t, err)
	return time.UnixMicro(int64(micros))
}

// free acquires and releases three slots, or as many as are free.
func free(t *testing.T, s *limiter.Semaphore) (n int) {
	for range 4 {
		release, d, err := s.Acquire(t.Context(), "key")
		require.NoError(t, err)
		if d.Allowed {
			n++
			defer release()
		}
	}
	return n
}

func TestSlotsOfAProcessThatIsKilledAreFreeWithinALease(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	holder, s := hold(t, server), threeAtOnce(t, redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr})), redistest.Patience)
	require.Zero(t, free(t, s))
	require.NoError(t, holder.Kill())
	killed := now(t, server)
	expires := expiry(t, server)
	assert.LessOrEqual(t, expires.Sub(killed), lease)
	redistest.Await(t, "a free slot", func() bool { return free(t, s) > 0 })
	assert.True(t, now(t, server).After(expires), "never above the limit: the process may have been alive")
	redistest.Await(t, "all slots", func() bool { return free(t, s) == 3 })
}

func TestAProcessThatWasPausedForLongHasItsSlotsAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	holder, s := hold(t, server), threeAtOnce(t, redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr})), redistest.Patience)
	require.NoError(t, holder.Signal(syscall.SIGSTOP))
	expires := expiry(t, server)
	var release func()
	redistest.Await(t, "a free slot", func() bool {
		var d limiter.Decision
		var err error
		release, d, err = s.Acquire(t.Context(), "key")
		require.NoError(t, err)
		return d.Allowed
	})
	assert.True(t, now(t, server).After(expires))
	require.NoError(t, holder.Signal(syscall.SIGCONT))
	redistest.Await(t, "four of three to be in use", func() bool { return free(t, s) == 0 })
	release()
	assert.Zero(t, free(t, s), "three of three are in use")
	require.NoError(t, holder.Kill())
	redistest.Await(t, "all slots", func() bool { return free(t, s) == 3 })
}

// A mute connection takes what is written, and never answers.
type mute struct {
	net.Conn
	isMute *atomic.Bool
}

func (c mute) Write(b []byte) (int, error) {
	if c.isMute.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// A firewall that has lost its state drops what comes on connections that it does not know.
func TestSlotsAreRenewedWhenConnectionsFallSilent(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var former atomic.Pointer[atomic.Bool]
	former.Store(new(atomic.Bool))
	s := threeAtOnce(t, redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return mute{conn, former.Load()}, err
	}})), 50*time.Millisecond)
	var release func()
	redistest.Await(t, "a slot", func() bool {
		var err error
		release, _, err = s.Acquire(t.Context(), "key")
		return err == nil
	})
	former.Swap(new(atomic.Bool)).Store(true)
	before := expiry(t, server)
	redistest.Await(t, "the slot to be renewed", func() bool { return expiry(t, server).After(before) })
	assert.True(t, now(t, server).Before(before), "in time")
	release()
}
