package rls

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirgo/weir/cmd/weir/internal/serving"
	"github.com/weirgo/weir/middleware/rules"
)

// Deadline is the store's deadline for a decision: Envoy gives up after 20 ms.
const Deadline = 15 * time.Millisecond

// A Service is the serving.Service of --rls.
type Service struct {
	listen       string
	certificates *serving.Certificates // nil: no TLS

	listener net.Listener // nil before Start, like the fields below

	server *grpc.Server
	health *health.Server
	end    context.CancelFunc // ends await
}

// Addr is the address that the service listens on.
func (s *Service) Addr() net.Addr { return s.listener.Addr() }

// New returns a service for the value of --rls. Without certificates it speaks plain text.
func New(listen string, certificates *serving.Certificates) *Service {
	return &Service{listen: listen, certificates: certificates}
}

// Lacks implements serving.Service. The service does not use rules for HTTP requests.
func (s *Service) Lacks(*rules.Proxies, rules.Need) string { return "" }

// Start implements serving.Service.
func (s *Service) Start(l serving.Limits, failed func(error)) (err error) {
	current := &tables{limits: l}
	first := l.Watcher.Rules()
	if l.Waiting {
		current.refused = first
	} else if current.inForce, err = newTable(first, l.Store); err != nil {
		return err
	}
	if s.listener, err = serving.Open("--rls", s.listen, l.Logger); err != nil {
		return err
	}
	var options []grpc.ServerOption
	if s.certificates != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(s.certificates.Config())))
	}
	// Envoy admits a request whose descriptors are too long for gRPC, and clients can send long fields: gRPC's
	// default bound, 4 MiB, is far more than Envoy accepts from a client.
	s.server, s.health = grpc.NewServer(options...), health.NewServer()
	pb.RegisterRateLimitServiceServer(s.server, &Decider{store: l.Store, table: current.get, logger: l.Logger})
	grpc_health_v1.RegisterHealthServer(s.server, s.health)
	if current.inForce == nil {
		s.health.SetServingStatus("", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	}
	ctx, end := context.WithCancel(context.Background())
	s.end = end
	go s.await(ctx, current)
	go func() {
		if err := s.server.Serve(s.listener); err != nil {
			failed(fmt.Errorf("--rls: %w", err))
		}
	}()
	return nil
}

// awaitEvery is the time between two looks at the rules, while there are none.
const awaitEvery = 100 * time.Millisecond

// await reports that the service is healthy once there are rules. Until then it cannot decide, and Envoy would
// admit every request.
func (s *Service) await(ctx context.Context, current *tables) {
	look := time.NewTicker(awaitEvery)
	defer look.Stop()
	for current.get() == nil {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
	s.health.SetServingStatus("", grpc_health_v1.HealthCheckResponse_SERVING) // no effect after Drain
}

// Drain implements serving.Service.
func (s *Service) Drain(ctx context.Context, grace time.Duration) {
	if s.server == nil {
		return
	}
	s.end()
	s.health.Shutdown() // answers NOT_SERVING from now on
	select {
	case <-time.After(grace):
	case <-ctx.Done():
	}
	defer context.AfterFunc(ctx, s.server.Stop)()
	s.server.GracefulStop()
}

// tables has the table of the rules in force.
type tables struct {
	limits serving.Limits

	mu      sync.Mutex
	inForce *table       // nil: there are no descriptors yet
	refused *rules.Rules // the rules that the store cannot count for; nil: none
}

// get returns the table of the rules in force, or the earlier table if the store cannot count for them. It
// returns nil if there was none.
func (t *tables) get() *table {
	now := t.limits.Watcher.Rules()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refused == now || t.inForce != nil && t.inForce.rules == now {
		return t.inForce
	}
	next, err := newTable(now, t.limits.Store)
	if err != nil {
		t.refused = now
		t.limits.Logger.Error("weir: the descriptors in force stay, as the new ones cannot be used",
			slog.String("code", "weir-descriptors-refused"), slog.Any("error", err))
		return t.inForce
	}
	t.inForce, t.refused = next, nil
	return next
}
