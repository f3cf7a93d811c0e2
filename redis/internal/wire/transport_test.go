package wire

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
)

func correction(keys ...string) *Request {
	r := NewRequest(NewScript("return redis.call('INCR', KEYS[1])"), keys, []byte("an argument"))
	r.WithSource, r.Once = true, true
	return r
}

// Two keys' slot is being moved. The node that has it has neither key, and the other one the first.
func TestCorrectionsFollowAMovingSlotAndCountOnce(t *testing.T) {
	nodes := redistest.StartCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes), MaxRedirects: 1000})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	require.NoError(t, client.Set(t.Context(), "{t}one", "0", 0).Err())
	to := nodes[0]
	if redistest.Owner(nodes, "{t}") == to {
		to = nodes[1]
	}
	transport, finish := NewTransport(client), redistest.BeginMove(nodes, "{t}one", to)

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

	// Keys on two nodes are tried until they are on one.
	r := correction("{t}one", "{t}two")
	r.Alone = true
	done := make(chan struct{})
	go func() {
		defer close(done)
		transport.Send(t.Context(), []*Request{r})
	}()
	redistest.Await(t, "Redis to ask for another try", func() bool {
		said, _ := to.Do("INFO", "errorstats")
		return strings.Contains(said, "TRYAGAIN")
	})
	finish()
	<-done
	require.NoError(t, r.Err())
	n, err := r.answer.Int()
	require.NoError(t, err)
	assert.Equal(t, len(requests)+1, n, "once")
}
