package grpclimit_test

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/weirgo/weir/adapters/grpclimit"
	"github.com/weirgo/weir/internal/leak"
	"github.com/weirgo/weir/middleware"
)

func TestMain(m *testing.M) { leak.VerifyMain(m) }

const add, remove, watch = "/shop.Cart/Add", "/shop.Cart/Remove", "/shop.Cart/Watch"

// A cart has the handlers of a server. Nil ones succeed.
type cart struct {
	unary  func(context.Context) error
	stream func(grpc.ServerStream) error
}

func (c *cart) method(name string) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(
		server any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor,
	) (any, error) {
		message := &emptypb.Empty{}
		if err := decode(message); err != nil {
			return nil, err
		}
		handler := func(ctx context.Context, message any) (any, error) {
			if c.unary != nil {
				if err := c.unary(ctx); err != nil {
					return nil, err
				}
			}
			return message, nil
		}
		if interceptor == nil {
			return handler(ctx, message)
		}
		return interceptor(ctx, message, &grpc.UnaryServerInfo{Server: server, FullMethod: "/shop.Cart/" + name}, handler)
	}}
}

func (c *cart) service() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "shop.Cart", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{c.method("Add"), c.method("Remove")},
		Streams: []grpc.StreamDesc{{StreamName: "Watch", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, s grpc.ServerStream) error {
				if c.stream == nil {
					return nil
				}
				return c.stream(s)
			}}},
	}
}

// serve serves the cart behind the limiters, the outermost first, until the test ends. It returns a client.
func (c *cart) serve(t testing.TB, policy string, limits ...*middleware.RateLimit) (*grpc.ClientConn, *grpc.Server) {
	var options []grpc.ServerOption
	for _, l := range limits {
		options = append(options, grpc.ChainUnaryInterceptor(grpclimit.Unary(l)), grpc.ChainStreamInterceptor(grpclimit.Stream(l)))
	}
	return c.serveWith(t, policy, options...)
}

func (c *cart) serveWith(t testing.TB, policy string, options ...grpc.ServerOption) (*grpc.ClientConn, *grpc.Server) {
	t.Helper()
	server, listener := grpc.NewServer(options...), bufconn.Listen(1<<16)
	server.RegisterService(c.service(), nil)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///cart", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(policy),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-ended
	})
	return conn, server
}

// call calls a unary method with metadata, and returns the trailer.
func call(ctx context.Context, conn *grpc.ClientConn, method string, md ...string) (trailer metadata.MD, err error) {
	ctx = metadata.AppendToOutgoingContext(ctx, md...)
	err = conn.Invoke(ctx, method, &emptypb.Empty{}, &emptypb.Empty{}, grpc.Trailer(&trailer))
	return trailer, err
}

// receive reads a stream to its end, and returns the trailer.
func receive(ctx context.Context, conn *grpc.ClientConn) (metadata.MD, error) {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, watch)
	if err != nil {
		return nil, err
	}
	for err == nil {
		err = stream.RecvMsg(&emptypb.Empty{})
	}
	if err == io.EOF {
		err = nil
	}
	return stream.Trailer(), err
}

func limited(t testing.TB, config middleware.Config) *middleware.RateLimit {
	t.Helper()
	l, err := middleware.New(config)
	require.NoError(t, err)
	return l
}
