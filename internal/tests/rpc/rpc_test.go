package rpc

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

const (
	add   = "/shop.Cart/Add"
	watch = "/shop.Cart/Watch"
)

// A service has methods behind a limiter, and no network.
type service struct {
	listener *bufconn.Listener
	http     *http.Client
	calls    int // of handlers
}

// serve serves methods that allow one call a minute, together, or refuse as the rule says.
func serve(t *testing.T, rule middleware.Rule) *service {
	s := &service{listener: bufconn.Listen(1 << 16)}
	mux := http.NewServeMux()
	mux.Handle("POST "+add, connect.NewUnaryHandler(add, func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		s.calls++
		return connect.NewResponse(&emptypb.Empty{}), nil
	}, connect.WithIdempotency(connect.IdempotencyNoSideEffects)))
	mux.Handle("GET "+add, connect.NewUnaryHandler(add, func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		s.calls++
		return connect.NewResponse(&emptypb.Empty{}), nil
	}, connect.WithIdempotency(connect.IdempotencyNoSideEffects)))
	mux.Handle("POST "+watch, connect.NewServerStreamHandler(watch, func(context.Context, *connect.Request[emptypb.Empty], *connect.ServerStream[emptypb.Empty]) error {
		s.calls++
		return nil
	}))
	rule.Name, rule.Key = "cart", keyfunc.Global
	if rule.Mode != middleware.Deny {
		rule.Limit = limiter.PerMinute(1).With(limiter.TokenBucket)
	}
	rule.Match = middleware.Route("/shop.Cart/*")
	limits := middleware.Must(middleware.New(middleware.Config{Rules: []middleware.Rule{rule}}))
	server := &http.Server{Handler: limits.Handler(mux), Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	server.Protocols.SetHTTP1(true)
	go func() { _ = server.Serve(s.listener) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.listener.DialContext(ctx) }}
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetUnencryptedHTTP2(true)
	s.http = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
	})
	return s
}

// dial returns a client of grpc-go, which retries a call as its policy says.
func (s *service) dial(t *testing.T, policy string) *grpc.ClientConn {
	conn, err := grpc.NewClient("passthrough:///cart", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(policy),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.listener.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func invoke(t *testing.T, conn *grpc.ClientConn) error {
	return conn.Invoke(t.Context(), add, &emptypb.Empty{}, &emptypb.Empty{})
}

func TestAClientOfGRPCReadsARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, middleware.Rule{})
		conn := s.dial(t, "{}")
		require.NoError(t, invoke(t, conn))
		time.Sleep(10 * time.Second)
		refusal := status.Convert(invoke(t, conn))
		assert.Equal(t, codes.ResourceExhausted, refusal.Code())
		assert.Equal(t, "Too many requests. Try again in 50 seconds.", refusal.Message())
		require.Len(t, refusal.Details(), 1)
		assert.Equal(t, 50*time.Second, refusal.Details()[0].(*errdetails.RetryInfo).RetryDelay.AsDuration())

		stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, watch)
		require.NoError(t, err)
		assert.Equal(t, codes.ResourceExhausted, status.Code(stream.RecvMsg(&emptypb.Empty{})))
		assert.Equal(t, 1, s.calls)
	})
}

func TestAClientOfGRPCRetriesNoSoonerThanTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, middleware.Rule{})
		conn := s.dial(t, `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.1s", "maxBackoff": "1s",
			"backoffMultiplier": 2, "retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]}}]}`)
		require.NoError(t, invoke(t, conn))
		began := time.Now()
		require.NoError(t, invoke(t, conn))
		assert.Equal(t, time.Minute, time.Since(began), "one retry, as soon as it may pass")
		assert.Equal(t, 2, s.calls)
	})
}

func TestARefusalForWhichARetryDoesNotHelpIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for status503, code := range map[int]codes.Code{503: codes.Unavailable, 403: codes.PermissionDenied} {
			s := serve(t, middleware.Rule{Mode: middleware.Deny, Refusal: middleware.Refusal{Status: status503}})
			conn := s.dial(t, `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "1s", "maxBackoff": "9s",
				"backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE", "PERMISSION_DENIED"]}}]}`)
			began := time.Now()
			assert.Equal(t, code, status.Code(invoke(t, conn)))
			assert.Zero(t, time.Since(began))
		}
	})
}

func TestAClientOfConnectReadsARefusal(t *testing.T) {
	type client = connect.Client[emptypb.Empty, emptypb.Empty]
	unary := func(t *testing.T, c *client) error {
		_, err := c.CallUnary(t.Context(), connect.NewRequest(&emptypb.Empty{}))
		return err
	}
	stream := func(t *testing.T, c *client) error {
		s, err := c.CallServerStream(t.Context(), connect.NewRequest(&emptypb.Empty{}))
		if err != nil {
			return err
		}
		defer s.Close()
		if s.Receive() {
			return io.ErrUnexpectedEOF
		}
		return s.Err()
	}
	get := []connect.ClientOption{connect.WithHTTPGet(), connect.WithIdempotency(connect.IdempotencyNoSideEffects)}
	for name, c := range map[string]struct {
		method  string
		options []connect.ClientOption
		call    func(*testing.T, *client) error
		code    connect.Code
	}{
		"unary":         {add, nil, unary, connect.CodeResourceExhausted},
		"unary in JSON": {add, []connect.ClientOption{connect.WithProtoJSON()}, unary, connect.CodeResourceExhausted},
		"GET":           {add, get, unary, connect.CodeResourceExhausted},
		"stream":        {watch, nil, stream, connect.CodeResourceExhausted},
		"in JSON":       {watch, []connect.ClientOption{connect.WithProtoJSON()}, stream, connect.CodeResourceExhausted},
		"gRPC":          {add, []connect.ClientOption{connect.WithGRPC()}, unary, connect.CodeResourceExhausted},
		"gRPC stream":   {watch, []connect.ClientOption{connect.WithGRPC()}, stream, connect.CodeResourceExhausted},
		"gRPC-Web":      {add, []connect.ClientOption{connect.WithGRPCWeb()}, unary, connect.CodeUnavailable}, // by the plain 429
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, middleware.Rule{})
				caller := connect.NewClient[emptypb.Empty, emptypb.Empty](s.http, "http://cart"+c.method, c.options...)
				require.NoError(t, c.call(t, caller))
				time.Sleep(10 * time.Second)
				var refusal *connect.Error
				require.True(t, errors.As(c.call(t, caller), &refusal))
				assert.Equal(t, c.code, refusal.Code())
				assert.Equal(t, 1, s.calls)
				if c.code == connect.CodeUnavailable {
					return
				}
				assert.Equal(t, "Too many requests. Try again in 50 seconds.", refusal.Message())
				require.Len(t, refusal.Details(), 1)
				info, err := refusal.Details()[0].Value()
				require.NoError(t, err)
				assert.Equal(t, 50*time.Second, info.(*errdetails.RetryInfo).RetryDelay.AsDuration())
			})
		})
	}
}
