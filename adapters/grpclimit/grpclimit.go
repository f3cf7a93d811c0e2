// Package grpclimit is Weir's interceptors for servers of grpc-go:
//
//	grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpclimit.Unary(limits)),
//		grpc.ChainStreamInterceptor(grpclimit.Stream(limits)),
//	)
//
// Pass the same limits to the HTTP API, and a client has one counter for both. Set both interceptors: a server without
// the second does not limit its streams. A handler of connect-go is an [http.Handler], and needs
// [middleware.RateLimit.Handler] alone.
//
// # Calls
//
// To rules a call is an [http.Request]. [middleware.Route] matches one method by "POST /pkg.Service/Method", and all of
// a service by "/pkg.Service/*". Calls are routed as by [middleware.RateLimit.Gateway], and a call that it answers 400
// is INVALID_ARGUMENT. grpc-go answers UNIMPLEMENTED to calls of unknown methods before interceptors see them, so they
// are not counted.
//
// The request's context is the call's: an interceptor in front sets the user, the tier and limits of customers by
// [middleware.WithTier] and the like. Metadata are header fields, so keyfunc.APIKey("X-Api-Key") reads x-api-key. Binary
// metadata (-bin) are left out. RemoteAddr is the peer's, TLS its state, and Host the :authority, unless that is a
// path with / or %. A peer without an address, as of bufconn, has the key of a unix socket, which all share, but is
// trusted for no client's address. There are no query and no body. Behind a proxy, name it: see [keyfunc.TrustProxies].
//
// A key function, a Match or an Observer must not keep the request: another call may get its memory.
//
// # Refusals
//
// The code is RESOURCE_EXHAUSTED for 429, UNAVAILABLE for 503, UNAUTHENTICATED for 401, PERMISSION_DENIED for 403,
// INVALID_ARGUMENT for 400, and RESOURCE_EXHAUSTED for any other status of a [middleware.Refusal]. If waiting helps, a
// RetryInfo says how long. A call whose context ends while it waits has the context's code. Header fields of package
// middleware are metadata of the trailer, in lower case: x-ratelimit-remaining, retry-after. So is
// grpc-retry-pushback-ms, which clients with a retryPolicy obey; it is negative if a retry does not help. They are in
// the trailer because clients do not retry a call whose answer has begun with a header.
//
// # Outcomes
//
// For [middleware.Counts] a call has the status of HTTP that its code stands for: 3, 9, 11 are 400; 16: 401; 7: 403;
// 5: 404; 6, 10: 409; 8: 429; 1: 499; 2, 13, 15 and a panic: 500; 12: 501; 14: 503; 4: 504. If the client has canceled
// the call, or it has a deadline and ends with DEADLINE_EXCEEDED, it counts whatever c says. A stream is one call, which
// holds its slots of [limiter.AtOnce] until its handler returns. Config.Overload does not measure how long streams take.
package grpclimit

import (
	"cmp"
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirgo/weir/middleware"
)

// Unary returns an interceptor that limits unary calls. It panics if limits is nil.
func Unary(limits *middleware.RateLimit) grpc.UnaryServerInterceptor {
	gateway := gatewayOf(limits)
	return func(ctx context.Context, message any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		c := newCall(ctx, info.FullMethod)
		c.message, c.unary = message, handler
		return c.serve(gateway)
	}
}

// Stream returns an interceptor that limits streams. It panics if limits is nil.
func Stream(limits *middleware.RateLimit) grpc.StreamServerInterceptor {
	gateway := gatewayOf(limits)
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		c := newCall(stream.Context(), info.FullMethod)
		c.message, c.stream, c.streaming = server, stream, handler
		_, err := c.serve(gateway)
		return err
	}
}

// Routes returns the methods of a server as routes. Give them to the limiter when the server's services are registered,
// and it logs a warning for a rule whose route is misspelt:
//
//	limits.KnowRoutes(grpclimit.Routes(server))
//
// The warning also names a rule for methods with a parameter, such as /{service}/Get, which applies.
func Routes(server interface {
	GetServiceInfo() map[string]grpc.ServiceInfo
}) (routes []string) {
	for service, info := range server.GetServiceInfo() {
		for _, method := range info.Methods {
			routes = append(routes, "POST /"+service+"/"+method.Name)
		}
	}
	return routes
}

func gatewayOf(limits *middleware.RateLimit) http.Handler {
	if limits == nil {
		panic("grpclimit: Unary and Stream need limits")
	}
	return limits.Gateway(http.HandlerFunc(handle), false)
}

// A call is on its way through an interceptor. It is the http.ResponseWriter of its request.
type call struct {
	unary     grpc.UnaryHandler
	streaming grpc.StreamHandler
	stream    grpc.ServerStream // nil: the call is unary
	message   any               // the request and then the response of a unary call, or the server of a stream
	err       error             // of the handler

	request  http.Request // as rules see the call
	url      url.URL
	answer   http.Header // its fields become the trailer
	further  bool        // an interceptor further out has the same answer, and sends it
	status   int         // of a refusal
	body     []byte      // of a refusal
	admitted bool
	kept     bool // something may read the request after the call
	returned bool // the handler has not panicked

	reused
}

// A reused is the memory for the next call.
type reused struct {
	fields, own http.Header // of the request and, unless an interceptor further out has one, of the answer
	trailer     metadata.MD
	peer        *net.TCPAddr
	address     string // of peer
}

// mostReused bounds the fields of a call whose memory is reused: a client chooses how many it sends.
const mostReused = 64

var calls = sync.Pool{New: func() any {
	return &call{reused: reused{fields: http.Header{}, own: http.Header{}, trailer: metadata.MD{}}}
}}

// newCall returns a call as rules see it.
func newCall(ctx context.Context, method string) *call {
	c := calls.Get().(*call)
	c.answer = c.own
	if in, ok := ctx.Value(insideKey{}).(*inside); ok {
		if outer := in.call.Load(); outer != nil {
			c.answer, c.further = outer.answer, true
		}
	}
	c.url.Path = method
	r := http.Request{Method: http.MethodPost, URL: &c.url, RequestURI: method, Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: c.fields, Body: noBody{}, ContentLength: -1, RemoteAddr: unknown}
	for name, values := range incoming(ctx) {
		switch {
		case name == ":authority":
			// Some resolvers make it of a path, such as carts%2Feu. That is no host.
			if host := strings.Join(values, ","); !strings.ContainsAny(host, "/%") {
				r.Host = host
			}
		case isField(name):
			name = http.CanonicalHeaderKey(name)
			if more := c.fields[name]; more != nil {
				values = append(more, values...)
			}
			c.fields[name] = values[:len(values):len(values)]
		}
	}
	c.fields["Content-Type"] = contentType
	if p, ok := peer.FromContext(ctx); ok {
		r.RemoteAddr = c.addressOf(p.Addr)
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			state := info.State // allocated for TLS alone
			r.TLS = &state
		}
	}
	c.request = *r.WithContext(ctx)
	return c
}

var contentType = []string{"application/grpc"} // to which package middleware answers by gRPC

// unknown is the RemoteAddr of a call whose peer is unknown. It is no unix socket, which rules may trust.
const unknown = "unknown"

// addressOf returns the RemoteAddr of a peer, as net/http has it.
func (c *call) addressOf(peer net.Addr) string {
	switch peer := peer.(type) {
	case nil:
		return unknown
	case *net.TCPAddr:
		if c.peer == nil || c.peer != peer { // all calls of a connection have one
			c.peer, c.address = peer, peer.String()
		}
		return c.address
	case *net.UnixAddr:
		return cmp.Or(peer.String(), "@")
	}
	return cmp.Or(peer.String(), unknown)
}

// isField reports whether metadata of that name is a field of the request. Pseudo-fields and the host are not, bytes
// have no spelling of their own in a field, and a proxy that asks about a request marks it with the last two.
func isField(name string) bool {
	return !strings.HasPrefix(name, ":") && !strings.HasSuffix(name, "-bin") &&
		name != "host" && name != "content-type" && name != "x-forwarded-uri" && name != "x-envoy-auth-partial-body"
}

// incoming returns the metadata of a call, which must not be changed. FromIncomingContext would copy it.
func incoming(ctx context.Context) metadata.MD {
	if md, ok := ctx.Value(incomingKey).(metadata.MD); ok {
		return md
	}
	md, _ := metadata.FromIncomingContext(ctx)
	return md
}

// incomingKey is the key of metadata in contexts, which package metadata does not export.
var incomingKey = func() any {
	asked := &asked{Context: context.Background()}
	metadata.FromIncomingContext(asked)
	return asked.key
}()

type asked struct {
	context.Context
	key any
}

func (a *asked) Value(key any) any {
	a.key = key
	return nil
}

type noBody struct{} // is not http.NoBody: a call has a message

func (noBody) Read([]byte) (int, error) { return 0, io.EOF }
func (noBody) Close() error             { return nil }

// serve takes the call through the gateway.
func (c *call) serve(gateway http.Handler) (message any, err error) {
	defer c.end()
	gateway.ServeHTTP(c, &c.request)
	c.returned = true
	if !c.admitted {
		return nil, c.refusal()
	}
	return c.message, c.err
}

// end sends the trailer, also if the handler has panicked.
func (c *call) end() {
	if !c.further && len(c.answer) > 0 {
		c.sendTrailer()
	}
	if c.returned && !c.kept && len(c.fields) <= mostReused {
		clear(c.fields)
		clear(c.own)
		*c = call{reused: c.reused}
		calls.Put(c)
	}
}

// sendTrailer sends the fields of the answer. In metadata of the header they would end a client's retries.
func (c *call) sendTrailer() {
	trailer := c.trailer // grpc-go copies it
	if c.stream != nil {
		trailer = metadata.MD{} // for a stream of another interceptor, which may keep it
	}
	clear(trailer)
	for name, values := range c.answer {
		if name != "Content-Type" && name != "Grpc-Status" && len(values) > 0 {
			trailer[lower(name)] = values
		}
	}
	if c.stream != nil {
		c.stream.SetTrailer(trailer)
	} else {
		_ = grpc.SetTrailer(c.request.Context(), trailer) // fails without a server, as in a test
	}
}

// lower returns the name of a field as metadata spells it. Weir's own take no allocation.
func lower(name string) string {
	switch name {
	case "X-Ratelimit-Limit":
		return "x-ratelimit-limit"
	case "X-Ratelimit-Remaining":
		return "x-ratelimit-remaining"
	case "X-Ratelimit-Reset":
		return "x-ratelimit-reset"
	}
	return strings.ToLower(name)
}

// handle calls the handler of a call that is admitted.
func handle(w http.ResponseWriter, r *http.Request) {
	c, ctx := callOf(w), r.Context()
	c.admitted, c.kept = true, r != &c.request
	if !c.further && (c.kept || len(c.answer) > 0) {
		in := &inside{Context: ctx}
		in.call.Store(c)
		defer in.call.Store(nil)
		ctx = in
	}
	code := codes.Internal // of a panic
	if c.kept {
		defer func() { c.sayCode(code) }()
	}
	if c.stream == nil {
		c.message, c.err = c.unary(ctx, c.message)
	} else {
		if w != http.ResponseWriter(c) {
			_ = http.NewResponseController(w).Flush() // a stream's length says nothing about the load
		}
		c.err = c.streaming(c.message, &streamIn{c.stream, ctx})
	}
	code = codeOf(c.err)
}

// sayCode says how the call has ended, as an answer of gRPC over HTTP does.
func (c *call) sayCode(code codes.Code) {
	c.answer["Content-Type"], c.answer["Grpc-Status"] = contentType, []string{strconv.Itoa(int(code))}
	if _, ok := c.request.Context().Deadline(); ok && code == codes.DeadlineExceeded {
		c.fields["Grpc-Timeout"] = []string{"1n"} // grpc-go has removed it: the client may have chosen the deadline
	}
}

// codeOf returns the code of a handler's error, as grpc-go sends it.
func codeOf(err error) codes.Code {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	return s.Code()
}

// An inside is the context of a handler. Interceptors further in find the call by it.
type inside struct {
	context.Context
	call atomic.Pointer[call] // nil: it has ended
}

type insideKey struct{}

func (in *inside) Value(key any) any {
	if key == (insideKey{}) {
		return in
	}
	return in.Context.Value(key)
}

type streamIn struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *streamIn) Context() context.Context { return s.ctx }

// callOf returns the call that w, or a writer behind it, is.
func callOf(w http.ResponseWriter) *call {
	for {
		if c, ok := w.(*call); ok {
			return c
		}
		w = w.(interface{ Unwrap() http.ResponseWriter }).Unwrap()
	}
}

func (c *call) Header() http.Header    { return c.answer }
func (c *call) WriteHeader(status int) { c.status = cmp.Or(c.status, status) }
func (c *call) Flush()                 {}

func (c *call) Write(b []byte) (int, error) {
	c.WriteHeader(http.StatusOK)
	c.body = append(c.body, b[:min(len(b), longestMessage-len(c.body))]...)
	return len(b), nil
}

// longestMessage bounds what a status has of the answer of a Refusal.Answer, in bytes.
const longestMessage = 1024

// refusal returns the status of a call that is refused, and leaves the fields for the trailer.
func (c *call) refusal() error {
	h, answered := c.answer, &statuspb.Status{}
	details, err := base64.RawStdEncoding.DecodeString(h.Get("Grpc-Status-Details-Bin"))
	for _, name := range [...]string{"Cache-Control", "Content-Length", "Content-Type", "Grpc-Message", "Grpc-Status",
		"Grpc-Status-Details-Bin", "X-Content-Type-Options"} {
		delete(h, name)
	}
	if ended := c.request.Context().Err(); ended != nil {
		return status.FromContextError(ended).Err() // nobody waits for more
	}
	if err == nil && len(details) > 0 && proto.Unmarshal(details, answered) == nil {
		return status.ErrorProto(answered)
	}
	// The call has no route, or Refusal.Answer has answered.
	text := strings.ToValidUTF8(strings.TrimSpace(string(c.body)), "")
	code, pushback := cmp.Or(refusals[c.status], codes.ResourceExhausted), "-1"
	s := status.New(code, cmp.Or(text, http.StatusText(c.status)))
	if seconds, err := strconv.ParseInt(h.Get("Retry-After"), 10, 32); err == nil {
		wait := time.Duration(seconds) * time.Second
		s, _ = s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}) // fails only for OK
		if h.Get("X-Should-Retry") != "false" {
			pushback = strconv.FormatInt(wait.Milliseconds(), 10)
		}
	}
	h.Set("Grpc-Retry-Pushback-Ms", pushback)
	return s.Err()
}

// refusals has the codes of refusals by their status.
var refusals = map[int]codes.Code{
	http.StatusBadRequest: codes.InvalidArgument, http.StatusUnauthorized: codes.Unauthenticated,
	http.StatusForbidden: codes.PermissionDenied, http.StatusServiceUnavailable: codes.Unavailable,
}
