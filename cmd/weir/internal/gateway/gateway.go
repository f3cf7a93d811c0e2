// Package gateway is a reverse proxy that limits requests to one upstream by a rules file.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/serving"
	"github.com/weirgo/weir/internal/seldom"
	"github.com/weirgo/weir/middleware/rules"
)

// Options are the options of New.
type Options struct {
	// Proxy has the address to listen on and the upstream's URL: ":8080=http://127.0.0.1:3000".
	Proxy string

	// Paths is an argument of serving.Limits.Gateway, which serving.CheckPaths has checked.
	Paths string

	// Timeout bounds how long the upstream takes to begin its response, and to read each part of a
	// request.
	Timeout time.Duration

	// ClientTimeout bounds how long one read of a request's body, and one write of its answer, may wait
	// for the client while the request holds a slot. gRPC may wait longer.
	ClientTimeout time.Duration

	// UserHeader and TierHeader name the request fields that have the user and the tier. The gateway
	// removes the fields, unless a proxy that the rules file trusts sends them. Empty: no field.
	UserHeader, TierHeader string

	Certificates *serving.Certificates // nil: no TLS
	Log          *serving.Log          // nil: requests are not logged
}

// A Gateway is a serving.Service.
type Gateway struct {
	options  Options
	listen   string
	upstream *url.URL
	h2c      bool     // the upstream speaks HTTP/2 without TLS
	asserted []string // the fields of UserHeader and TierHeader

	serving.Limits
	server    *serving.Server // nil before Start
	transport *http.Transport
	failures  seldom.Log
}

// New returns a gateway, or an error that names the flag.
func New(o Options) (*Gateway, error) {
	g := &Gateway{options: o}
	listen, target, ok := strings.Cut(o.Proxy, "=")
	if !ok {
		return nil, fmt.Errorf("--proxy %q: want ADDRESS=URL, such as :8080=http://127.0.0.1:3000", listen)
	}
	if _, _, err := net.SplitHostPort(listen); err != nil {
		return nil, fmt.Errorf("--proxy: %q is not an address to listen on, such as :8080", listen)
	}
	upstream, err := url.Parse(target)
	if err == nil && upstream.Scheme == "h2c" {
		g.h2c, upstream.Scheme = true, "http"
	}
	if err != nil || upstream.Scheme != "http" && upstream.Scheme != "https" || upstream.Hostname() == "" || upstream.RawQuery != "" || upstream.Fragment != "" || upstream.User != nil {
		return nil, fmt.Errorf("--proxy: the service behind %s is not a URL such as http://127.0.0.1:3000, or with https or h2c", listen)
	}
	if o.Timeout <= 0 {
		return nil, fmt.Errorf("--upstream-timeout is %v: want more than 0", o.Timeout)
	}
	if o.ClientTimeout <= 0 {
		return nil, fmt.Errorf("--client-timeout is %v: want more than 0", o.ClientTimeout)
	}
	for flag, name := range map[string]string{"--user-header": o.UserHeader, "--tier-header": o.TierHeader} {
		if strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return nil, fmt.Errorf("%s is %q: want the name of a header of letters, digits and -", flag, name)
		}
		if name != "" {
			g.asserted = append(g.asserted, http.CanonicalHeaderKey(name))
		}
	}
	g.listen, g.upstream = listen, upstream
	return g, nil
}

// Lacks implements serving.Service.
func (g *Gateway) Lacks(proxies *rules.Proxies, need rules.Need) string {
	switch {
	case need.Of == "user" && g.options.UserHeader == "":
		return "needs a user: say with --user-header which header field has it"
	case need.Of == "tier" && g.options.TierHeader == "":
		return "needs a tier: say with --tier-header which header field has it"
	case need.Of == "router":
		return "has a parameter or a * in a part of a segment: a gateway routes by whole segments, such as {id}"
	case need.Of == "settled":
		return "has cost.settle: true, and a service behind a gateway cannot call weir.Settle: write settle: usage, or {header: X-Cost}"
	}
	if name, ok := strings.CutPrefix(need.Of, "header:"); ok {
		return g.lacksField(proxies, name)
	}
	return ""
}

// Timeouts beside Options.Timeout.
const (
	dialPatience = 5 * time.Second

	// idlePatience is shorter than the idle timeout of common servers: a request with a body is lost
	// if the upstream closes the connection at the same time.
	idlePatience = 4 * time.Second
)

// mostAnswerHeader bounds the header of the upstream's response, with those of responses such as 103.
const mostAnswerHeader = 256 << 10

// Start implements serving.Service.
func (g *Gateway) Start(l serving.Limits, failed func(error)) error {
	g.Limits = l
	g.transport = &http.Transport{
		DialContext:           g.dial,
		TLSHandshakeTimeout:   dialPatience,
		ResponseHeaderTimeout: g.options.Timeout,
		IdleConnTimeout:       idlePatience,
		MaxIdleConnsPerHost:   1024,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true, // or the transport would decompress responses

		MaxResponseHeaderBytes: mostAnswerHeader,
	}
	if g.h2c {
		g.transport.Protocols = new(http.Protocols)
		g.transport.Protocols.SetUnencryptedHTTP2(true)
	}
	proxy := &httputil.ReverseProxy{
		Transport:      g.transport,
		Rewrite:        g.rewrite,
		ModifyResponse: modify,
		ErrorHandler:   g.unanswered,
		BufferPool:     &buffers{},
		ErrorLog:       slog.NewLogLogger(l.Logger.Handler(), slog.LevelDebug),
	}
	limited := l.Gateway(g.answered(proxy), g.options.Paths)
	server, err := serving.Listen("--proxy", g.listen, g.options.Log.Handler(g.checked(limited)), l.Logger)
	if err != nil {
		return err
	}
	server.Bodies = l.Bodies
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	if g.options.Certificates != nil {
		server.TLSConfig = g.options.Certificates.Config()
		server.Protocols.SetHTTP2(true)
	} else {
		server.Protocols.SetUnencryptedHTTP2(true)
	}
	g.server = server
	server.Start(failed)
	return nil
}

// dial connects to the upstream.
func (g *Gateway) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: min(dialPatience, g.options.Timeout)}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return upstreamConn{c, g.options.Timeout}, nil
}

// An upstreamConn fails if the upstream reads nothing for its timeout. Transport's
// ResponseHeaderTimeout begins when the request is written, so it does not end a request whose body
// the upstream does not read.
type upstreamConn struct {
	net.Conn
	timeout time.Duration
}

func (c upstreamConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// Addr is the address that the gateway listens on. It must have been started.
func (g *Gateway) Addr() net.Addr { return g.server.Addr() }

// Drain implements serving.Service.
func (g *Gateway) Drain(ctx context.Context, grace time.Duration) {
	g.server.Drain(ctx, grace)
	if g.transport != nil {
		g.transport.CloseIdleConnections()
	}
}

// checked refuses requests that must not reach the upstream, and removes fields that only a trusted
// proxy may send.
func (g *Gateway) checked(limited http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			http.Error(w, "This is no tunnel.", http.StatusMethodNotAllowed)
			return
		}
		if r.Host == "" { // as the upstream will see it
			r.Host = g.upstream.Host
		}
		if r, ok := g.identified(w, r); ok {
			limited.ServeHTTP(w, r)
		}
	})
}

// unanswered answers 502 or 504 if the upstream did not answer, and 408 if the client held its body back. The text
// does not reveal the upstream's address.
func (g *Gateway) unanswered(w http.ResponseWriter, r *http.Request, err error) {
	if serving.IsBodyLate(r.Context()) {
		http.Error(w, "The rest of the request did not come.", http.StatusRequestTimeout)
		return
	}
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		billOf(r.Context()).nothing() // the service has seen nothing
	}
	status := http.StatusBadGateway
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		status = http.StatusGatewayTimeout
	}
	if r.Context().Err() == nil { // the client is still there
		if failures := g.failures.Add(time.Second); failures > 0 {
			g.Logger.Warn("weir: the service behind the gateway did not answer", slog.String("service", g.upstream.Host), slog.String("error", err.Error()), slog.Uint64("others", failures-1))
		}
	}
	http.Error(w, http.StatusText(status), status)
}

// buffers is the pool of ReverseProxy's copy buffers.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

func (b *buffers) Get() []byte {
	if buffer, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return buffer[:]
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(buffer []byte) { b.pool.Put((*[bufferSize]byte)(buffer)) }
