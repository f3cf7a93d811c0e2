// Package pace tests transports of several processes that share a Redis.
package pace_test

import (
	"net/http"
	"net/http/httptest"
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

const api = "https://api.example.org/things"

var fast = limiter.PerSecond(1_000_000).WithBurst(1000)

type round func(*http.Request) (*http.Response, error)

func (f round) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A server answers, and counts what it answered.
type server struct {
	answer func() *http.Response
	n      atomic.Int64
}

func (s *server) RoundTrip(*http.Request) (*http.Response, error) {
	s.n.Add(1)
	return s.answer(), nil
}

// respond is a response with these fields, name and value in turns.
func respond(status int, fields ...string) *http.Response {
	r := httptest.NewRecorder()
	for i := 0; i < len(fields); i += 2 {
		r.Header().Set(fields[i], fields[i+1])
	}
	r.WriteHeader(status)
	return r.Result()
}

func get(t testing.TB, transport *pace.Transport, token string) error {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", api, nil)
	require.NoError(t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := transport.RoundTrip(r)
	if err == nil {
		err = resp.Body.Close()
	}
	return err
}

// onRedis are the transports of processes that share a Redis.
func onRedis(t *testing.T, n int, base http.RoundTripper, o pace.Options) (all []*pace.Transport, lists []*redisbans.List) {
	t.Helper()
	shared := redistest.Start(t)
	for range n {
		client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: shared.Addr}))
		list, err := redisbans.New(t.Context(), client, redisbans.Options{})
		require.NoError(t, err)
		redistest.Await(t, "the list of cooldowns", func() bool {
			_, err := list.All(t.Context())
			return err == nil
		})
		store := redisstore.New(client, redisstore.Options{Failover: failover.Options{Deadline: time.Minute}}) // on a busy machine
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		o.Store, o.Cooldowns = store, list
		all, lists = append(all, pace.Must(pace.NewTransport(base, o))), append(lists, list)
	}
	return all, lists
}

// What one process was told, all keep to; and no token is stored.
func TestACooldownIsKnownToAllProcesses(t *testing.T) {
	t.Parallel()
	s := &server{answer: func() *http.Response { return respond(429, "Retry-After", "600") }}
	all, lists := onRedis(t, 3, s, pace.Options{Rules: []pace.Rule{{Host: "api.example.org", Limit: fast, Key: pace.Token}}})
	require.NoError(t, get(t, all[0], "a"))
	for i := range all {
		redistest.Await(t, "the cooldown", func() bool { return !lists[i].Empty() })
		var tooLong *pace.WaitError
		require.ErrorAs(t, get(t, all[i], "a"), &tooLong)
		require.True(t, tooLong.Cooldown)
		require.InDelta(t, 600*time.Second, tooLong.Wait, float64(redistest.Patience))
	}
	require.EqualValues(t, 1, s.n.Load())
	require.NoError(t, get(t, all[1], "b"))
	require.EqualValues(t, 2, s.n.Load(), "another key is not cooled down")
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
		for end := time.Now().Add(redistest.Patience / 2); most.Load() < 2 && time.Now().Before(end); {
			time.Sleep(time.Millisecond) // so that another comes meanwhile
		}
		time.Sleep(10 * time.Millisecond) // and a third one, if it may
		inFlight.Add(-1)
		return respond(200), nil
	})
	all, _ := onRedis(t, 3, base, pace.Options{Rules: []pace.Rule{{Host: "api.example.org", Limit: limiter.AtOnce(2)}}, MaxWait: redistest.Patience})
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			assert.NoError(t, get(t, all[i%len(all)], ""), "who waits gets a slot that another process has released")
		})
	}
	wg.Wait()
	assert.EqualValues(t, 2, most.Load(), "in flight at once, of all processes")
}

// In an outage of Redis requests are paced on, and the cooldown that is known holds.
func TestPacingOutlivesRedis(t *testing.T) {
	t.Parallel()
	shared := redistest.Start(t)
	client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: shared.Addr}))
	list, err := redisbans.New(t.Context(), client, redisbans.Options{})
	require.NoError(t, err)
	store := redisstore.New(client, redisstore.Options{})
	t.Cleanup(func() { _ = store.Close() })
	refuse := false
	s := &server{answer: func() *http.Response {
		if refuse {
			return respond(429, "Retry-After", "600")
		}
		return respond(200)
	}}
	transport := pace.Must(pace.NewTransport(s, pace.Options{
		Rules: []pace.Rule{{Host: "api.example.org", Limit: fast}}, Store: store, Cooldowns: list,
	}))
	require.NoError(t, get(t, transport, ""))
	shared.Kill()
	for range 10 {
		require.NoError(t, get(t, transport, ""))
	}
	refuse = true
	require.NoError(t, get(t, transport, ""))
	var tooLong *pace.WaitError
	require.ErrorAs(t, get(t, transport, ""), &tooLong)
	require.True(t, tooLong.Cooldown)
	require.EqualValues(t, 12, s.n.Load())
}
