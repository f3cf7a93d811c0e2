package redistest_test

import (
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
)

func TestAServerAnswersUntilItIsKilledAndComesBackEmpty(t *testing.T) {
	s := redistest.Start(t)
	assert.Equal(t, "OK", s.MustDo("SET", "key", "a value\r\nof two lines"))
	assert.Equal(t, "a value\r\nof two lines", s.MustDo("GET", "key"))
	s.Kill()
	_, err := s.Do("PING")
	require.Error(t, err)

	s.Restart()
	assert.Equal(t, "PONG", s.MustDo("PING"))
	assert.Equal(t, "0", s.MustDo("EXISTS", "key"))
}

func TestMain(m *testing.M) { redistest.Main(m) }

func TestAServerIsUsedAgainEmptyUnlessATestHasChangedMoreThanKeys(t *testing.T) {
	var addr string
	for _, command := range [][]string{nil, {"SET", "key", "value"}, {"CONFIG", "SET", "maxmemory", "3mb"}} {
		t.Run("", func(t *testing.T) {
			s := redistest.Start(t)
			assert.True(t, addr == "" || addr == s.Addr, "it was started anew")
			addr = s.Addr
			assert.Equal(t, "0", s.MustDo("DBSIZE"))
			if command != nil {
				s.MustDo(command...)
			}
		})
	}
	t.Run("", func(t *testing.T) { assert.NotEqual(t, addr, redistest.Start(t).Addr) })
}

func TestAPausedServerAnswersOnlyWhenResumed(t *testing.T) {
	s := redistest.Start(t)
	s.Pause()
	conn, err := net.Dial("tcp", s.Addr)
	require.NoError(t, err, "a hung server's connections stay open")
	defer conn.Close()
	_, err = conn.Write([]byte("PING\r\n"))
	require.NoError(t, err)
	answer := make([]byte, 16)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	_, err = conn.Read(answer)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)

	s.Resume()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	n, err := conn.Read(answer)
	require.NoError(t, err)
	assert.Equal(t, "+PONG\r\n", string(answer[:n]))
}

func TestASlotMovesWithItsKeys(t *testing.T) {
	nodes := redistest.StartCluster(t)
	from := redistest.Owner(nodes, "{slot}0")
	for i := range 25 {
		from.MustDo("SET", fmt.Sprintf("{slot}%d", i), "value")
	}
	to := nodes[0]
	if to == from {
		to = nodes[1]
	}
	redistest.MoveSlot(nodes, "{slot}0", to)
	assert.Same(t, to, redistest.Owner(nodes, "{slot}0"))
	for i := range 25 {
		assert.Equal(t, "value", to.MustDo("GET", fmt.Sprintf("{slot}%d", i)))
	}
	_, err := from.Do("GET", "{slot}0")
	assert.ErrorContains(t, err, "MOVED")
	redistest.MoveSlot(nodes, "{slot}0", to) // where it is already
	assert.Equal(t, "value", to.MustDo("GET", "{slot}0"))
}
