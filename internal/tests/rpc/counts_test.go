package rpc

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

const (
	signIn = "/auth.Auth/SignIn"
	follow = "/auth.Auth/Follow"
)

// An auth has a sign-in that says yes to the password "right", and a stream that asks for it too.
type auth struct {
	listener *bufconn.Listener
	http     *http.Client
	limits   *middleware.RateLimit
	list     bans.List
	guesses  int  // that reached the service
	says     bool // what its answers count as
	wraps    bool // its writers
}

func (a *auth) try(ctx context.Context, password string) error {
	a.guesses++
	if password == "right" {
		return nil
	}
	if a.says {
		if err := middleware.CountAs(ctx, http.StatusUnauthorized); err != nil {
			return err
		}
	}
	return connect.NewError(connect.CodeUnauthenticated, errors.New("wrong"))
}

// connectHandler returns the methods as connect-go has them, in three protocols.
func (a *auth) connectHandler() http.Handler {
	mux := http.NewServeMux()
	wrap := func(h http.Handler) http.Handler { return h }
	if a.wraps {
		wrap = wrapped
	}
	mux.Handle("POST "+signIn, wrap(connect.NewUnaryHandler(signIn, func(ctx context.Context, r *connect.Request[wrapperspb.StringValue]) (*connect.Response[emptypb.Empty], error) {
		answer := connect.NewResponse(&emptypb.Empty{})
		if a.says && r.Msg.Value == "right" {
			if err := middleware.CountAs(ctx, http.StatusOK); err != nil {
				return nil, err
			}
		}
		return answer, a.try(ctx, r.Msg.Value)
	})))
	mux.Handle("POST "+follow, connect.NewServerStreamHandler(follow, func(ctx context.Context, r *connect.Request[wrapperspb.StringValue], s *connect.ServerStream[emptypb.Empty]) error {
		if err := s.Send(&emptypb.Empty{}); err != nil {
			return err
		}
		return a.try(ctx, r.Msg.Value)
	}))
	return mux
}

// grpcHandler returns the sign-in as grpc-go has it.
func (a *auth) grpcHandler() http.Handler {
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "auth.Auth", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "SignIn",
		Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			var password wrapperspb.StringValue
			if err := decode(&password); err != nil {
				return nil, err
			}
			if a.try(ctx, password.Value) != nil {
				return nil, status.Error(codes.PermissionDenied, "wrong")
			}
			return &emptypb.Empty{}, nil
		},
	}}}, nil)
	mux := http.NewServeMux()
	mux.Handle("POST "+signIn, server)
	return mux
}

// serve lets each client fail five times a minute, and bans a client that fails eight times.
func (a *auth) serve(t *testing.T, handler http.Handler, counts middleware.Counts, gateway bool) {
	a.list = bans.Must(bans.New(bans.Options{}))
	a.limits = middleware.Must(middleware.New(middleware.Config{
		Bans: middleware.Bans{List: a.list},
		Rules: []middleware.Rule{{
			Name: "sign-in", Key: keyfunc.APIKey("X-Client"), Match: middleware.Route("/auth.Auth/*"), Counts: counts,
			Limit:    limiter.PerMinute(5).With(limiter.FixedWindow),
			Escalate: bans.Escalation{After: 8, Within: time.Hour, Ban: time.Hour, Outcomes: true},
		}},
	}))
	limited := a.limits.Handler(handler)
	if gateway {
		limited = a.limits.Gateway(handler, false)
	}
	if a.wraps {
		limited = wrapped(limited)
	}
	a.listener, a.http = listen(t, limited)
}

// listen serves HTTP/2 without a network.
func listen(t *testing.T, handler http.Handler) (*bufconn.Listener, *http.Client) {
	listener := bufconn.Listen(1 << 16)
	server := &http.Server{Handler: handler, Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	server.Protocols.SetHTTP1(true)
	go func() { _ = server.Serve(listener) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return listener.DialContext(ctx) }}
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
	})
	return listener, &http.Client{Transport: transport}
}

// A caller signs in, and returns the code of the error.
type caller func(password string) connect.Code

func (a *auth) connect(t *testing.T, client, method string, options ...connect.ClientOption) caller {
	c := connect.NewClient[wrapperspb.StringValue, emptypb.Empty](a.http, "http://auth"+method, options...)
	return func(password string) connect.Code {
		r := connect.NewRequest(wrapperspb.String(password))
		r.Header().Set("X-Client", client)
		err := error(nil)
		if method == signIn {
			_, err = c.CallUnary(t.Context(), r)
		} else if s, failed := c.CallServerStream(t.Context(), r); failed != nil {
			err = failed
		} else {
			for s.Receive() {
			}
			err = s.Err()
			_ = s.Close()
		}
		synctest.Wait() // until the handler has returned
		if err == nil {
			return 0
		}
		return connect.CodeOf(err)
	}
}

func (a *auth) grpcGo(t *testing.T, client string) caller {
	conn, err := grpc.NewClient("passthrough:///auth", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return a.listener.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return func(password string) connect.Code {
		err := conn.Invoke(t.Context(), signIn, wrapperspb.String(password), &emptypb.Empty{}, grpc.PerRPCCredentials(fields{"x-client": client}))
		synctest.Wait()
		return connect.Code(status.Code(err))
	}
}

// fields are sent with a call.
type fields map[string]string

func (f fields) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return f, nil
}
func (fields) RequireTransportSecurity() bool { return false }

func grpcWeb() []connect.ClientOption { return []connect.ClientOption{connect.WithGRPCWeb()} }

// All protocols of one route have one limit: a client cannot guess in another one without end.
func TestFailuresOfEachProtocolCount(t *testing.T) {
	callers := map[string]func(*testing.T, *auth) caller{
		"Connect":         func(t *testing.T, a *auth) caller { return a.connect(t, "ann", signIn) },
		"Connect in JSON": func(t *testing.T, a *auth) caller { return a.connect(t, "ann", signIn, connect.WithProtoJSON()) },
		"gRPC":            func(t *testing.T, a *auth) caller { return a.connect(t, "ann", signIn, connect.WithGRPC()) },
		"gRPC-Web":        func(t *testing.T, a *auth) caller { return a.connect(t, "ann", signIn, grpcWeb()...) },
		"grpc-go":         func(t *testing.T, a *auth) caller { return a.grpcGo(t, "ann") },
	}
	for name, call := range callers {
		for _, service := range []string{"connect-go", "grpc-go", "a gateway", "wrapped writers"} {
			if service == "grpc-go" && name != "gRPC" && name != "grpc-go" {
				continue
			}
			t.Run(name+" to "+service, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := &auth{}
					a.wraps = service == "wrapped writers"
					handler := a.connectHandler()
					switch service {
					case "grpc-go":
						handler = a.grpcHandler()
					case "a gateway":
						_, client := listen(t, handler)
						proxy := &httputil.ReverseProxy{Transport: client.Transport, Rewrite: func(r *httputil.ProxyRequest) {
							r.SetURL(&url.URL{Scheme: "http", Host: "behind"})
						}}
						t.Cleanup(client.CloseIdleConnections)
						handler = proxy
					}
					a.serve(t, handler, middleware.Statuses(401, 403), service == "a gateway")
					try := call(t, a)
					if name != "gRPC-Web" { // whose successes show their code in the body
						for range 10 {
							require.Zero(t, try("right"), "a success does not count")
						}
					}
					a.guesses = 0
					for range 100 {
						require.NotZero(t, try("wrong"))
					}
					assert.Equal(t, 5, a.guesses)
					assert.NotZero(t, try("right"), "nor does the sixth pass if it is right")
					time.Sleep(time.Minute)
					for range 100 {
						require.NotZero(t, try("wrong"))
					}
					assert.Equal(t, 8, a.guesses)
					_, banned := a.list.Find("apikey:ann")
					assert.True(t, banned, "for eight answers that count")
				})
			})
		}
	}
}

// wrapped hides what net/http's writer can do, except to flush.
func wrapped(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(wrapper{w}, r) })
}

type wrapper struct{ http.ResponseWriter }

func (w wrapper) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

// What is at the end of a body Weir does not read.
func TestAnAnswerThatDoesNotShowItsErrorCounts(t *testing.T) {
	for name, call := range map[string]func(*testing.T, *auth) caller{
		"a stream":           func(t *testing.T, a *auth) caller { return a.connect(t, "ann", follow) },
		"a stream, gRPC-Web": func(t *testing.T, a *auth) caller { return a.connect(t, "ann", follow, grpcWeb()...) },
	} {
		for _, counts := range []middleware.Counts{middleware.Statuses(401, 403), middleware.Not(middleware.StatusClass(2))} {
			t.Run(name+" "+counts.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := &auth{}
					a.serve(t, a.connectHandler(), counts, false)
					try := call(t, a)
					for range 3 {
						a.guesses = 0
						for range 100 {
							require.NotZero(t, try("wrong"))
						}
						assert.Equal(t, 5, a.guesses)
						time.Sleep(time.Minute)
					}
					_, banned := a.list.Find("apikey:ann")
					assert.False(t, banned, "for answers that may have been right")
				})
			})
		}
	}
}

func TestAHandlerSaysWhatItsAnswersCountAs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &auth{says: true}
		a.serve(t, a.connectHandler(), middleware.Statuses(401, 403), false)
		try := a.connect(t, "ann", signIn, grpcWeb()...)
		for range 10 {
			require.Zero(t, try("right"))
		}
		a.guesses = 0
		for range 100 {
			require.NotZero(t, try("wrong"))
		}
		assert.Equal(t, 5, a.guesses)
		time.Sleep(time.Minute)
		for range 100 {
			require.NotZero(t, try("wrong"))
		}
		assert.Equal(t, 8, a.guesses, "and is banned")
	})
}

// A call whose client chose a deadline, and a stream that it breaks off, cost what others cost.
func TestFailuresAreRefundedAndDeadlinesOfClientsAreNot(t *testing.T) {
	for name, test := range map[string]struct {
		code    connect.Code
		timeout time.Duration
		left    int64
	}{
		"internal":     {connect.CodeInternal, 0, 5},
		"unavailable":  {connect.CodeUnavailable, time.Hour, 5},
		"not found":    {connect.CodeNotFound, 0, 4},
		"a deadline":   {connect.CodeDeadlineExceeded, time.Hour, 4},
		"the server's": {connect.CodeDeadlineExceeded, 0, 5},
	} {
		for protocol, option := range map[string]connect.ClientOption{"Connect": connect.WithProtoJSON(), "gRPC": connect.WithGRPC()} {
			t.Run(name+" "+protocol, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := &auth{}
					mux := http.NewServeMux()
					mux.Handle("POST "+signIn, connect.NewUnaryHandler(signIn, func(context.Context, *connect.Request[wrapperspb.StringValue]) (*connect.Response[emptypb.Empty], error) {
						return nil, connect.NewError(test.code, errors.New("on purpose"))
					}))
					a.serve(t, mux, middleware.Not(middleware.StatusClass(5)), false)
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if test.timeout > 0 {
						ctx, cancel = context.WithTimeout(ctx, test.timeout)
					}
					defer cancel()
					r := connect.NewRequest(wrapperspb.String("x"))
					r.Header().Set("X-Client", "ann")
					_, err := connect.NewClient[wrapperspb.StringValue, emptypb.Empty](a.http, "http://auth"+signIn, option).CallUnary(ctx, r)
					require.Equal(t, test.code, connect.CodeOf(err))
					synctest.Wait()
					found, err := a.limits.Peek(t.Context(), "sign-in", "apikey:ann")
					require.NoError(t, err)
					assert.Equal(t, test.left, found[0].Remaining)
				})
			})
		}
	}
}
