package rls

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weirgo/weir/cmd/weir/internal/serving"
	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/redis/redisstore"
)

// ofEnvoyproxy has the limits of envoyproxy/ratelimit's integration tests.
const ofEnvoyproxy = `
version: 1
descriptors:
  - {domain: basic, entries: {key: key1}, limit: 50/s fixed_window}
  - {domain: another, entries: {key: key2}, limit: 20/m fixed_window}
  - {domain: another, entries: {key: key3}, limit: 10/h fixed_window}
  - {domain: another, entries: {key: key4}, limit: 20/1d fixed_window}
`

// These are the cases of envoyproxy/ratelimit's integration tests. Its option
// STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT is how Weir always decides.
func TestTheCasesOfEnvoyproxyRatelimitHold(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		store := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
		made, err := newTable(read(t, ofEnvoyproxy), store)
		require.NoError(t, err)
		d := &Decider{store: store, table: func() *table { return made }}
		ask := func(domain string, all ...*common.RateLimitDescriptor) *pb.RateLimitResponse {
			r, err := d.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: domain, Descriptors: all, HitsAddend: 1})
			require.NoError(t, err)
			return r
		}
		check := func(s *pb.RateLimitResponse_DescriptorStatus, isOver bool, limit uint32, unit pb.RateLimitResponse_RateLimit_Unit, remaining int) {
			t.Helper()
			assert.Equal(t, isOver, s.Code == pb.RateLimitResponse_OVER_LIMIT)
			assert.Equal(t, limit, s.CurrentLimit.GetRequestsPerUnit())
			assert.Equal(t, unit, s.CurrentLimit.GetUnit())
			assert.Equal(t, uint32(max(0, remaining)), s.LimitRemaining)
			assert.Positive(t, s.DurationUntilReset.AsDuration())
		}
		r := ask("foo", of("hello", "world"))
		assert.Equal(t, pb.RateLimitResponse_OK, r.OverallCode)
		require.Len(t, r.Statuses, 1)
		assert.Nil(t, r.Statuses[0].CurrentLimit)
		check(ask("basic", of("key1", "foo")).Statuses[0], false, 50, pb.RateLimitResponse_RateLimit_SECOND, 49)
		for i := range 25 {
			check(ask("another", of("key2", "123")).Statuses[0], i >= 20, 20, pb.RateLimitResponse_RateLimit_MINUTE, 19-i)
		}
		for i := range 15 {
			r := ask("another", of("key2", "456"), of("key3", "456"))
			assert.Equal(t, i >= 10, r.OverallCode == pb.RateLimitResponse_OVER_LIMIT)
			check(r.Statuses[0], false, 20, pb.RateLimitResponse_RateLimit_MINUTE, max(10, 19-i))
			check(r.Statuses[1], i >= 10, 10, pb.RateLimitResponse_RateLimit_HOUR, 9-i)
		}
		first := ask("another", of("key4", "durTest")).Statuses[0].DurationUntilReset.AsDuration()
		assert.LessOrEqual(t, first, 24*time.Hour)
		time.Sleep(time.Microsecond)
		if second := ask("another", of("key4", "durTest")).Statuses[0]; second.LimitRemaining == 18 { // else a day began
			assert.Equal(t, first-time.Microsecond, second.DurationUntilReset.AsDuration())
		}
	})
}

// served starts the service for rules, and returns a client and the Watcher.
func served(t *testing.T, path string, store limiter.Store) (pb.RateLimitServiceClient, *rules.Watcher) {
	t.Helper()
	watcher, err := rules.Watch(t.Context(), path, rules.Options{Config: middleware.Config{Store: store}, OnReload: func(rules.Reload) {}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = watcher.Close() })
	s := New("127.0.0.1:0", nil)
	require.NoError(t, s.Start(serving.Limits{RateLimit: watcher.RateLimit, Watcher: watcher, Store: store, Logger: slog.New(slog.DiscardHandler)}, func(err error) { t.Error(err) }))
	t.Cleanup(s.server.Stop)
	conn, err := grpc.NewClient(s.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return pb.NewRateLimitServiceClient(conn), watcher
}

// A hanging Redis answers nothing, and keeps its connections.
func TestAHangingRedisIsAnsweredForByEachLimitsPolicy(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	redistest.CloseAfter(t, client)
	path := filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(path, []byte(shop+"  - {domain: shop, entries: {key: open}, name: open, limit: 1/1h token_bucket, on_outage: open}\n"), 0o600))
	rls, _ := served(t, path, redisstore.New(client, redisstore.Options{Failover: failover.Options{
		Deadline: Deadline, ProbeEvery: 10 * time.Millisecond, OnDegraded: func(failover.Event) {},
	}}))
	ask := func(key, value string) (pb.RateLimitResponse_Code, error) {
		r, err := rls.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "shop", Descriptors: []*common.RateLimitDescriptor{of(key, value)}})
		return r.GetOverallCode(), err
	}
	redistest.Await(t, "Redis decides", func() bool { _, err := ask("closed", "first"); return err == nil })
	server.Pause()
	defer server.Resume()
	var admitted atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5 {
				code, err := ask("user", "ann")
				assert.NoError(t, err)
				if code == pb.RateLimitResponse_OK {
					admitted.Add(1)
				}
				_, err = ask("closed", "ann")
				assert.Equal(t, codes.Unavailable, status.Code(err))
				code, err = ask("open", "ann")
				assert.NoError(t, err)
				assert.Equal(t, pb.RateLimitResponse_OK, code)
			}
		})
	}
	all.Wait()
	assert.Equal(t, int32(3), admitted.Load(), "the process counts by itself")
	server.Resume()
	redistest.Await(t, "Redis decides again", func() bool { _, err := ask("closed", "later"); return err == nil })
}

func TestReloadsLoseNoRequestAndForgetNoCounter(t *testing.T) {
	store := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write := func(i int) {
		text := fmt.Sprintf("version: 1\ndescriptors:\n  - {domain: shop, entries: {key: user}, name: users, limit: 100/1d token_bucket}\n  - {domain: shop, entries: {key: other}, limit: %d/1h}\n", i)
		require.NoError(t, os.WriteFile(path+".new", []byte(text), 0o600))
		require.NoError(t, os.Rename(path+".new", path))
	}
	write(1)
	client, watcher := served(t, path, store)
	var admitted, asked atomic.Int32
	var all sync.WaitGroup
	end := make(chan struct{})
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				r, err := client.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "shop", Descriptors: []*common.RateLimitDescriptor{of("user", "ann")}})
				asked.Add(1)
				if assert.NoError(t, err) && r.OverallCode == pb.RateLimitResponse_OK {
					admitted.Add(1)
				}
			}
		})
	}
	for i := range 100 {
		write(i + 2)
		watcher.Reread()
		redistest.Await(t, "the reload", func() bool { loaded, _, _, _ := watcher.Reloads(); return loaded >= uint64(i+2) })
	}
	redistest.Await(t, "more than the limit", func() bool { return asked.Load() > 200 })
	close(end)
	all.Wait()
	assert.Equal(t, int32(100), admitted.Load())

	require.NoError(t, os.WriteFile(path, []byte("version: 1\ndefault: 5/s\n"), 0o600))
	watcher.Reread()
	redistest.Await(t, "the reload", func() bool { loaded, _, _, _ := watcher.Reloads(); return loaded == 102 })
	r, err := client.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "shop", Descriptors: []*common.RateLimitDescriptor{of("user", "ann")}})
	require.NoError(t, err)
	assert.Equal(t, pb.RateLimitResponse_OVER_LIMIT, r.OverallCode, "a file without descriptors does not lift the limits")
}
