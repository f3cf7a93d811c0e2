package wire

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
)

// moving is a Cluster in which the slot of two keys is being moved: the node that has it has neither
// key, the other one has the first.
func moving(t *testing.T) (_ *Transport, to *redistest.Server, finish func()) {
	nodes := redistest.StartCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes), MaxRedirects: 1000})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	require.NoError(t, client.Set(t.Context(), "{t}one", "0", 0).Err())
	to = nodes[0]
	if redistest.Owner(nodes, "{t}") == to {
		to = nodes[1]
	}
	return NewTransport(client), to, redistest.BeginMove(nodes, "{t}one", to)
}

func correction(keys ...string) *Request {
	r := NewRequest(NewScript("return redis.call('INCR', KEYS[1])"), keys, []byte("an argument"))
	r.WithSource, r.Once = true, true
	return r
}

func TestCorrectionsThatGoAloneFollowAMovingSlot(t *testing.T) {
	transport, _, finish := moving(t)
	defer finish()
	requests := []*Request{correction("{t}one"), correction("{t}one")}
	for _, r := range requests {
		r.Alone = true // as Redis asked for them to be tried again
	}
	transport.Send(t.Context(), requests)
	for i, r := range requests {
		require.NoError(t, r.Err(), "Redis said where to ask, so it did not run it")
		n, err := r.answer.Int()
		require.NoError(t, err)
		assert.Equal(t, i+1, n)
	}
}

func TestACorrectionWhoseKeysAreOnTwoNodesIsTriedUntilTheyAreOnOne(t *testing.T) {
	transport, to, finish := moving(t)
	r := correction("{t}one", "{t}two")
	r.Alone = true
	done := make(chan struct{})
	go func() {
		defer close(done)
		transport.Send(t.Context(), []*Request{r})
	}()
	require.Eventually(t, func() bool {
		select {
		case <-done:
			return true
		default:
		}
		said, _ := to.Do("INFO", "errorstats")
		return strings.Contains(said, "TRYAGAIN")
	}, time.Minute, time.Millisecond)
	finish()
	<-done
	require.NoError(t, r.Err())
	n, err := r.answer.Int()
	require.NoError(t, err)
	assert.Equal(t, 1, n, "once")
}
