package rls

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weirgo/weir/cmd/weir/internal/serving"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

// A client of the service over gRPC sees a reload, the health, and the end.
func TestEnvoyAsksOverGRPC(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write := func(limit string) {
		require.NoError(t, os.WriteFile(path, []byte("version: 1\ndescriptors: {domain: shop, entries: {key: user}, name: users, limit: "+limit+"}\n"), 0o600))
	}
	write("1/1h token_bucket")
	memory := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
	watcher, err := rules.Watch(t.Context(), path, rules.Options{
		Config: middleware.Config{Store: memory}, Poll: 100 * time.Millisecond, OnReload: func(rules.Reload) {},
	})
	require.NoError(t, err)
	defer watcher.Close()
	s := New("127.0.0.1:0", nil)
	require.NoError(t, s.Start(serving.Limits{RateLimit: watcher.RateLimit, Watcher: watcher, Store: memory, Logger: slog.New(slog.DiscardHandler)}, func(err error) { t.Error(err) }))
	conn, err := grpc.NewClient(s.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	client, health := pb.NewRateLimitServiceClient(conn), grpc_health_v1.NewHealthClient(conn)
	ask := func() pb.RateLimitResponse_Code {
		r, err := client.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "shop", Descriptors: []*common.RateLimitDescriptor{of("user", "ann")}})
		require.NoError(t, err)
		return r.OverallCode
	}
	assert.Equal(t, pb.RateLimitResponse_OK, ask())
	assert.Equal(t, pb.RateLimitResponse_OVER_LIMIT, ask())
	is, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	assert.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, is.Status)

	var long []*common.RateLimitDescriptor // Envoy admits a request after an error
	for range 10 {
		long = append(long, of("user", strings.Repeat("x", 100<<10)))
	}
	r, err := client.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "shop", Descriptors: long})
	require.NoError(t, err)
	assert.Equal(t, pb.RateLimitResponse_OVER_LIMIT, r.OverallCode, "ten units of a limit of one")

	write("3/1h token_bucket")
	require.Eventually(t, func() bool { loaded, _, _, _ := watcher.Reloads(); return loaded == 2 }, 30*time.Second, 10*time.Millisecond)
	assert.Equal(t, []pb.RateLimitResponse_Code{pb.RateLimitResponse_OK, pb.RateLimitResponse_OK, pb.RateLimitResponse_OVER_LIMIT}, []pb.RateLimitResponse_Code{ask(), ask(), ask()})

	ctx, cancel := context.WithCancel(t.Context())
	drained := make(chan struct{})
	go func() { s.Drain(ctx, time.Hour); close(drained) }()
	require.Eventually(t, func() bool {
		is, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		return err == nil && is.Status == grpc_health_v1.HealthCheckResponse_NOT_SERVING
	}, 30*time.Second, 10*time.Millisecond)
	assert.Equal(t, pb.RateLimitResponse_OVER_LIMIT, ask(), "it still answers")
	cancel()
	<-drained
	_, err = client.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "shop"})
	assert.Error(t, err)
}

// picky counts for no quota above a thousand.
type picky struct{ limiter.Store }

func (picky) Check(q *limiter.Quota) error {
	if q.Capacity() > 1000 {
		return assert.AnError
	}
	return nil
}

func TestDescriptorsThatTheStoreCannotCountAreNotInForce(t *testing.T) {
	store := picky{limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))}
	_, err := newTable(read(t, "version: 1\ndescriptors: {domain: shop, entries: {key: user}, limit: 1001/1h token_bucket}"), store)
	assert.ErrorIs(t, err, assert.AnError)
	assert.ErrorContains(t, err, `descriptors: "shop/user"`)
}

func TestBeforeThereAreRulesTheServiceIsUnavailable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	memory := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
	watcher, err := rules.Watch(t.Context(), path, rules.Options{
		Config: middleware.Config{Store: memory}, Poll: 100 * time.Millisecond, OnReload: func(rules.Reload) {}, Fallback: []byte("version: 1\ndefault: 1/h\n"),
	})
	require.NoError(t, err)
	defer watcher.Close()
	limits := serving.Limits{RateLimit: watcher.RateLimit, Watcher: watcher, Store: memory, Logger: slog.New(slog.DiscardHandler)}
	s := New("127.0.0.1:0", nil)
	require.ErrorContains(t, s.Start(limits, nil), "the rules have no descriptors", "rules without descriptors are not awaited")
	limits.Waiting = true
	require.NoError(t, s.Start(limits, func(err error) { t.Error(err) }))
	defer s.Drain(t.Context(), 0)
	conn, err := grpc.NewClient(s.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	ask := func() error {
		_, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "shop", Descriptors: []*common.RateLimitDescriptor{of("user", "ann")}})
		return err
	}
	health := func() grpc_health_v1.HealthCheckResponse_ServingStatus {
		is, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		require.NoError(t, err)
		return is.Status
	}
	require.Equal(t, codes.Unavailable, status.Code(ask()))
	require.Equal(t, grpc_health_v1.HealthCheckResponse_NOT_SERVING, health(), "Envoy admits requests that the service cannot decide")
	require.NoError(t, os.WriteFile(path, []byte("version: 1\ndescriptors: {domain: shop, entries: {key: user}, limit: 1/h}\n"), 0o600))
	require.Eventually(t, func() bool { return health() == grpc_health_v1.HealthCheckResponse_SERVING }, 30*time.Second, 10*time.Millisecond,
		"also if nobody asks the service meanwhile")
	require.NoError(t, ask())
}
