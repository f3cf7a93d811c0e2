package grpclimit_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weirgo/weir/adapters/grpclimit"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// A transport is grpc-go's, as far as interceptors see it.
type transport struct{ trailer metadata.MD }

func (*transport) Method() string               { return "" }
func (*transport) SetHeader(metadata.MD) error  { return nil }
func (*transport) SendHeader(metadata.MD) error { return nil }
func (t *transport) SetTrailer(md metadata.MD) error {
	t.trailer = metadata.Join(t.trailer, md)
	return nil
}

func incoming(ctx context.Context, md metadata.MD) context.Context {
	ctx = peer.NewContext(ctx, &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1).To4(), Port: 40_000}})
	return metadata.NewIncomingContext(ctx, md)
}

func BenchmarkUnary(b *testing.B) {
	limits := middleware.Must(middleware.New(middleware.Config{Headers: middleware.Headers{Send: middleware.HeadersLegacy}, Rules: []middleware.Rule{
		{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerSecond(1_000_000)}}}))
	handler := func(context.Context, any) (any, error) { return nil, nil }
	info := &grpc.UnaryServerInfo{FullMethod: "/shop.Cart/Add"}
	md := metadata.MD{":authority": {"localhost:50051"}, "content-type": {"application/grpc"}, "user-agent": {"grpc-go/1.70.0"}}
	ctx := incoming(b.Context(), md)
	for name, interceptor := range map[string]grpc.UnaryServerInterceptor{
		"bare": func(ctx context.Context, m any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			return h(ctx, m)
		},
		"weir": grpclimit.Unary(limits),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				t := &transport{}
				ctx := grpc.NewContextWithServerTransportStream(ctx, t)
				_, _ = interceptor(ctx, nil, info, handler)
			}
		})
	}
}
