package pace_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/pace"
	"github.com/weirgo/weir/redis/redisbans"
	"github.com/weirgo/weir/redis/redisstore"
)

func TestMain(m *testing.M) {
	redis.SetLogger(redistest.Silent{})
	redistest.Main(m)
}

// onRedis are the transports of processes that share a Redis.
func onRedis(t *testing.T, n int, base http.RoundTripper, o pace.Options) (all []*pace.Transport, lists []*redisbans.List) {
	t.Helper()
	server := redistest.Start(t)
	for range n {
		client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr}))
		list, err := redisbans.New(t.Context(), client, redisbans.Options{})
		require.NoError(t, err)
		redistest.Await(t, "the list of cooldowns", func() bool {
			_, err := list.All(t.Context())
			return err == nil
		})
		store := redisstore.New(client, redisstore.Options{Failover: failover.Options{Deadline: time.Minute}}) // on a busy machine
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		o.Store, o.Cooldowns = store, list
		all, lists = append(all, newTransport(t, base, o)), append(lists, list)
	}
	return all, lists
}

// What one process was told, all keep to; and no token is stored.
func TestACooldownIsKnownToAllProcesses(t *testing.T) {
	t.Parallel()
	s := newServer(func(*http.Request, int) *http.Response { return respond(429, "Retry-After", "600") })
	all, lists := onRedis(t, 3, s, pace.Options{Rules: []pace.Rule{{Host: "api.example.org", Limit: fast, Key: pace.Token}}})
	send := func(process *pace.Transport, token string) error {
		r := request(t, "GET", api)
		r.Header.Set("Authorization", "Bearer "+token)
		_, err := do(process, r)
		return err
	}
	require.NoError(t, send(all[0], "a"))
	for i := range all {
		redistest.Await(t, "the cooldown", func() bool { return !lists[i].Empty() })
		var tooLong *pace.WaitError
		require.ErrorAs(t, send(all[i], "a"), &tooLong)
		require.True(t, tooLong.Cooldown)
		require.InDelta(t, 600*time.Second, tooLong.Wait, float64(redistest.Patience))
	}
	require.Equal(t, 1, s.count())
	require.NoError(t, send(all[1], "b"))
	require.Equal(t, 2, s.count(), "another key is not cooled down")
}

func TestProcessesShareTheSlotsOfARule(t *testing.T) {
	t.Parallel()
	var inFlight, most atomic.Int64
	base := round(func(*http.Request) (*http.Response, error) {
		for now := inFlight.Add(1); ; {
			if seen := most.Load(); now <= seen || most.CompareAndSwap(seen, now) {
				break
			}
		}
		time.Sleep(10 * time.Millisecond) // so that others come meanwhile
		inFlight.Add(-1)
		return respond(200), nil
	})
	all, _ := onRedis(t, 3, base, pace.Options{Rules: []pace.Rule{{Host: "api.example.org", Limit: limiter.AtOnce(2)}}, MaxWait: redistest.Patience})
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			_, err := get(t, all[i%len(all)], api)
			assert.NoError(t, err, "who waits gets a slot that another process has released")
		})
	}
	wg.Wait()
	assert.EqualValues(t, 2, most.Load(), "in flight at once, of all processes")
}

// In an outage of Redis requests are paced on, and the cooldown that is known holds.
func TestPacingOutlivesRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr}))
	list, err := redisbans.New(t.Context(), client, redisbans.Options{})
	require.NoError(t, err)
	store := redisstore.New(client, redisstore.Options{})
	t.Cleanup(func() { _ = store.Close() })
	refuse := false
	s := newServer(func(*http.Request, int) *http.Response {
		if refuse {
			return respond(429, "Retry-After", "600")
		}
		return respond(200)
	})
	transport := newTransport(t, s, pace.Options{Rules: rules(fast), Store: store, Cooldowns: list})
	mustGet(t, transport)
	server.Kill()
	for range 10 {
		mustGet(t, transport)
	}
	refuse = true
	mustGet(t, transport)
	_, err = get(t, transport, api)
	var tooLong *pace.WaitError
	require.ErrorAs(t, err, &tooLong)
	require.True(t, tooLong.Cooldown)
	require.Equal(t, 12, s.count())
}
