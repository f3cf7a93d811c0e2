package grpclimit_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/weirgo/weir/adapters/grpclimit"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// seen calls an interceptor with a context, and returns the request as a rule sees it, and the error.
func seen(t *testing.T, ctx context.Context, method string) (seen http.Request, err error) {
	t.Helper()
	l := limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "some", Limit: limiter.PerHour(1), NoKey: middleware.NoKeySkip,
		Key: func(r *http.Request) (string, error) {
			seen = *r.Clone(r.Context())
			return "k", nil
		}}}})
	_, err = grpclimit.Unary(l)(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, nil })
	return seen, err
}

func TestMetadataAreFields(t *testing.T) {
	ctx := metadata.NewIncomingContext(t.Context(), metadata.MD{
		":authority": {"Cart.example:50051"}, ":path": {"/forged"}, ":method": {"GET"}, "host": {"forged.example"}, "content-type": {"text/plain"},
		"x-api-key": {"k"}, "X-Api-Key": {"k2"}, "trace-bin": {"\x00\xff"}, "x-forwarded-uri": {"/"}, "x-envoy-auth-partial-body": {"true"},
		"user-agent": {"grpc-go/1"}, "": {"empty"},
	})
	r, err := seen(t, ctx, add)
	require.NoError(t, err)
	require.Equal(t, "POST", r.Method)
	require.Equal(t, "/shop.Cart/Add", r.URL.Path)
	require.Equal(t, "Cart.example:50051", r.Host)
	require.ElementsMatch(t, []string{"k", "k2"}, r.Header["X-Api-Key"], "two keys are ambiguous, in whatever spelling")
	delete(r.Header, "X-Api-Key")
	require.Equal(t, http.Header{"User-Agent": {"grpc-go/1"}, "Content-Type": {"application/grpc"}, "": {"empty"}}, r.Header)
	md, _ := metadata.FromIncomingContext(ctx)
	require.Len(t, md["user-agent"], 1)
}

func TestAnAuthorityThatIsAPathIsNoHost(t *testing.T) {
	for authority, host := range map[string]string{"": "", "carts%2Feu": "", "a/b": "", "localhost": "localhost", "[::1]:80": "[::1]:80"} {
		r, err := seen(t, metadata.NewIncomingContext(t.Context(), metadata.Pairs(":authority", authority)), add)
		require.NoError(t, err)
		require.Equal(t, host, r.Host)
	}
	for _, md := range []metadata.MD{{":authority": {"a", "b"}}, {":authority": {"a:b:c"}}, {"connection": {"x-key"}, "x-key": {"k"}}} {
		_, err := seen(t, metadata.NewIncomingContext(t.Context(), md), add)
		require.Equal(t, codes.InvalidArgument, status.Code(err), md)
	}
}

// A server that has an UnknownServiceHandler passes on what a client wrote.
func TestAMethodThatIsNoPathIsRefused(t *testing.T) {
	for method, want := range map[string]codes.Code{
		add: codes.OK, "shop.Cart/Add": codes.InvalidArgument, "": codes.InvalidArgument, "/a/../b": codes.InvalidArgument, "/a/\x00": codes.InvalidArgument, "*": codes.InvalidArgument,
	} {
		_, err := seen(t, t.Context(), method)
		require.Equal(t, want, status.Code(err), method)
	}
	l := limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "add", Key: keyfunc.Global, Limit: limiter.PerHour(1), Match: middleware.Route("POST " + add)}}})
	for i, method := range []string{add, "//shop.Cart/Add", "/shop.Cart/Add/", "/shop.Cart//Add", "/shop.Cart/Add;x", `\shop.Cart\Add`, "/shop.Cart\\Add"} {
		_, err := grpclimit.Unary(l)(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, nil })
		require.Equal(t, i > 0, err != nil, method)
	}
}

// An odd address has no address in it.
type odd string

func (odd) Network() string  { return "odd" }
func (o odd) String() string { return string(o) }

func TestThePeerIsTheAddress(t *testing.T) {
	var none *net.TCPAddr
	trusting := keyfunc.IP(keyfunc.TrustProxies(), keyfunc.TrustUnixSocket())
	for name, test := range map[string]struct {
		peer   *peer.Peer
		remote string
		key    string // of keyfunc.IP
		trusts bool   // TrustUnixSocket reads X-Forwarded-For
	}{
		"IPv4":           {&peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1).To4(), Port: 4}}, "192.0.2.1:4", "192.0.2.1", false},
		"IPv4 in 16":     {&peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 4}}, "192.0.2.1:4", "192.0.2.1", false},
		"IPv6":           {&peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 4}}, "[2001:db8::1]:4", "2001:db8::/64", false},
		"IPv6, a zone":   {&peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP("fe80::1"), Port: 4, Zone: "eth0"}}, "[fe80::1%eth0]:4", "fe80::/64", false},
		"a unix socket":  {&peer.Peer{Addr: &net.UnixAddr{Name: "/run/s"}}, "/run/s", "no-ip", true},
		"unnamed":        {&peer.Peer{Addr: &net.UnixAddr{}}, "@", "no-ip", true},
		"net/http's":     {&peer.Peer{Addr: odd("192.0.2.1:4")}, "192.0.2.1:4", "192.0.2.1", false},
		"bufconn":        {&peer.Peer{Addr: odd("bufconn")}, "bufconn", "no-ip", false},
		"empty":          {&peer.Peer{Addr: odd("")}, "unknown", "no-ip", false},
		"no address":     {&peer.Peer{}, "unknown", "no-ip", false},
		"a nil address":  {&peer.Peer{Addr: none}, "<nil>", "no-ip", false},
		"no peer at all": {nil, "unknown", "no-ip", false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("x-forwarded-for", "198.51.100.7"))
			if test.peer != nil {
				ctx = peer.NewContext(ctx, test.peer)
			}
			for range 2 {
				r, err := seen(t, ctx, add)
				require.NoError(t, err)
				require.Equal(t, test.remote, r.RemoteAddr)
				key, err := keyfunc.IP()(&r)
				require.NoError(t, err)
				text, _ := keyfunc.Classify(key)
				require.Equal(t, test.key, text, "X-Forwarded-For from no trusted proxy makes no client")
				key, err = trusting(&r)
				require.NoError(t, err)
				text, _ = keyfunc.Classify(key)
				require.Equal(t, test.trusts, text == "198.51.100.7")
			}
		})
	}
}

func TestAKeyFromACertificate(t *testing.T) {
	state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{{SerialNumber: nil}}}
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: odd(""), AuthInfo: credentials.TLSInfo{State: state}})
	r, err := seen(t, ctx, add)
	require.NoError(t, err)
	require.Len(t, r.TLS.PeerCertificates, 1)
	r, err = seen(t, t.Context(), add)
	require.NoError(t, err)
	require.Nil(t, r.TLS, "the next call has none")
}

func TestTheContextHasTheUserTheTierAndOwnLimits(t *testing.T) {
	l := limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "plan", Key: keyfunc.User, NoKey: middleware.NoKeyUnauthorized,
		Limit: limiter.PerHour(1), Tiers: middleware.Tiers{"premium": limiter.PerHour(2)}}}})
	signIn := func(ctx context.Context) context.Context {
		md, _ := metadata.FromIncomingContext(ctx)
		for _, user := range md["user"] {
			ctx = keyfunc.WithUser(ctx, user)
		}
		for _, tier := range md["tier"] {
			ctx = middleware.WithTier(ctx, tier)
		}
		if len(md["own"]) > 0 {
			ctx, _ = middleware.WithLimit(ctx, "plan", limiter.PerHour(3))
		}
		return ctx
	}
	conn, _ := (&cart{}).serveWith(t, "{}",
		grpc.ChainUnaryInterceptor(func(ctx context.Context, m any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			return h(signIn(ctx), m)
		}, grpclimit.Unary(l)))
	for _, test := range []struct {
		md    []string
		limit string
		code  codes.Code
	}{
		{nil, "", codes.Unauthenticated}, {[]string{"user", "a"}, "1", codes.OK}, {[]string{"user", "a"}, "1", codes.ResourceExhausted},
		{[]string{"user", "b", "tier", "premium"}, "2", codes.OK}, {[]string{"user", "c", "own", "1"}, "3", codes.OK},
	} {
		trailer, err := call(t.Context(), conn, add, test.md...)
		require.Equal(t, test.code, status.Code(err), test.md)
		require.Equal(t, test.limit, strings.Join(trailer["x-ratelimit-limit"], ","), test.md)
	}
}

func TestHTTPAndGRPCShareOneCounter(t *testing.T) {
	var log bytes.Buffer
	l := limited(t, middleware.Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), Results: true, Rules: []middleware.Rule{
		{Name: "key", Key: keyfunc.APIKey("X-Api-Key"), Limit: limiter.PerHour(4).With(limiter.SlidingLog)},
		{Name: "add", Match: middleware.Route("POST " + add), Key: keyfunc.Global, Limit: limiter.PerHour(100)},
		{Name: "carts", Match: middleware.Route("GET /carts/{id}"), Key: keyfunc.Global, Limit: limiter.PerHour(100)},
	}})
	conn, server := (&cart{}).serve(t, "{}", l)
	l.KnowRoutes(grpclimit.Routes(server))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /carts/{id}", func(http.ResponseWriter, *http.Request) {})
	handler := l.Handler(mux)
	get := func() int {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/carts/1", nil)
		r.Header.Set("X-Api-Key", "k")
		handler.ServeHTTP(w, r)
		return w.Code
	}
	for range 2 {
		require.Equal(t, 200, get())
		_, err := call(t.Context(), conn, add, "x-api-key", "k")
		require.NoError(t, err)
	}
	require.Equal(t, 429, get())
	_, err := call(t.Context(), conn, add, "x-api-key", "k")
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	_, err = call(t.Context(), conn, add, "x-api-key", "another")
	require.NoError(t, err)
	require.Empty(t, log.String(), "sharing is meant")
}

func TestARuleForAMethodThatDoesNotExistIsLogged(t *testing.T) {
	var log bytes.Buffer
	l := limited(t, middleware.Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), Rules: []middleware.Rule{
		{Name: "add", Match: middleware.Route("POST "+add, "/shop.Cart/*"), Key: keyfunc.Global, Limit: limiter.PerHour(9)},
		{Name: "typo", Match: middleware.Route("POST /shop.Cart/Adds"), Key: keyfunc.Global, Limit: limiter.PerHour(9)},
	}})
	conn, server := (&cart{}).serve(t, "{}", l)
	require.ElementsMatch(t, []string{"POST " + add, "POST " + remove, "POST " + watch}, grpclimit.Routes(server))
	l.KnowRoutes(grpclimit.Routes(server))
	for range 2 {
		_, err := call(t.Context(), conn, add)
		require.NoError(t, err)
	}
	require.Equal(t, 1, strings.Count(log.String(), "weir-no-such-route"), log.String())
	require.Contains(t, log.String(), "rule=typo")
}

func TestNilLimitsPanicAtOnce(t *testing.T) {
	require.Panics(t, func() { grpclimit.Unary(nil) })
	require.Panics(t, func() { grpclimit.Stream(nil) })
}

// A slot of an Overload that says what it learns.
type slot struct{ streams, left *int }

func (s slot) Admit(*http.Request) (middleware.Slot, time.Duration) { return s, 0 }
func (s slot) Streams(bool)                                         { *s.streams++ }
func (s slot) Waits(bool)                                           {}
func (s slot) Leave()                                               { *s.left++ }

func TestAnOverloadMeasuresNoStreams(t *testing.T) {
	s := slot{new(int), new(int)}
	l := limited(t, middleware.Config{Overload: s})
	info := &grpc.UnaryServerInfo{FullMethod: add}
	_, err := grpclimit.Unary(l)(t.Context(), nil, info, func(context.Context, any) (any, error) { return nil, nil })
	require.NoError(t, err)
	require.Equal(t, [2]int{0, 1}, [2]int{*s.streams, *s.left})
	err = grpclimit.Stream(l)(nil, &fakeStream{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: watch},
		func(any, grpc.ServerStream) error {
			require.Equal(t, [2]int{1, 1}, [2]int{*s.streams, *s.left})
			return nil
		})
	require.NoError(t, err)
	require.Equal(t, 2, *s.left)
}

type fakeStream struct {
	grpc.ServerStream
	ctx     context.Context
	trailer metadata.MD
}

func (f *fakeStream) Context() context.Context  { return f.ctx }
func (f *fakeStream) SetTrailer(md metadata.MD) { f.trailer = md }

// Many clients at once: each call has its own fields and its own answer.
func TestCallsDoNotMix(t *testing.T) {
	slots := middleware.Rule{Name: "slots", Key: keyfunc.User, Limit: limiter.AtOnce(1000), NoKey: middleware.NoKeySkip}
	keys := middleware.Rule{Name: "keys", Limit: limiter.PerHour(1_000_000),
		Key:  func(r *http.Request) (string, error) { return r.Header.Get("X-Api-Key"), nil },
		Cost: middleware.CostOf(func(r *http.Request) int64 { return int64(len(r.Header.Get("X-Api-Key"))) })}
	l := limited(t, middleware.Config{Rules: []middleware.Rule{slots, keys}})
	unary, stream := grpclimit.Unary(l), grpclimit.Stream(l)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 300 {
				key := strings.Repeat("k", i+1)
				ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("x-api-key", key, fmt.Sprint("x-", i, "-", n), "v"))
				ctx = peer.NewContext(ctx, &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, byte(i)), Port: n}})
				if n%2 == 0 {
					ctx = keyfunc.WithUser(ctx, key)
				}
				fake := &fakeStream{ctx: ctx}
				if n%3 == 0 {
					_ = stream(nil, fake, &grpc.StreamServerInfo{FullMethod: watch}, func(_ any, s grpc.ServerStream) error {
						if md, _ := metadata.FromIncomingContext(s.Context()); md["x-api-key"][0] != key {
							t.Error("another call's context")
						}
						return nil
					})
				} else {
					if _, err := unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: add}, func(ctx context.Context, _ any) (any, error) { return nil, ctx.Err() }); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	for i := range 8 {
		found, err := l.Peek(t.Context(), "keys", strings.Repeat("k", i+1))
		require.NoError(t, err)
		require.EqualValues(t, 1_000_000-300*(i+1), found[0].Remaining)
	}
}

func TestAbortedStreamsLeaveNothing(t *testing.T) {
	streams := 10_000
	if testing.Short() {
		streams = 1_000
	}
	l := limited(t, middleware.Config{Rules: []middleware.Rule{
		{Name: "slots", Key: keyfunc.Header("Client"), Limit: limiter.AtOnce(4).Queue(20, time.Minute)},
		{Name: "ends", Key: keyfunc.Header("Client"), Limit: limiter.PerHour(1_000_000), Counts: middleware.Statuses(200)},
	}})
	conn, server := (&cart{stream: func(s grpc.ServerStream) error {
		if err := s.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
		return s.SendMsg(&emptypb.Empty{})
	}}).serve(t, "{}", l)
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range streams / 64 {
				ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), "client", fmt.Sprint(rand.N(8))))
				stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, watch)
				if err == nil && rand.N(2) == 0 {
					_ = stream.SendMsg(&emptypb.Empty{})
					if rand.N(2) == 0 {
						_ = stream.RecvMsg(&emptypb.Empty{})
					}
				}
				cancel()
			}
		})
	}
	all.Wait()
	_ = conn.Close()
	server.GracefulStop()
	in := l.InProgress()[0]
	require.Equal(t, [2]int64{}, [2]int64{in.Requests, in.Waiting})
}
