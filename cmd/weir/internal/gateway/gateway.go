// Package gateway is a reverse proxy that limits requests to one upstream by a rules file.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/serving"
	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/middleware/rules"
)

// Options are what New takes.
type Options struct {
	// Proxy is where the gateway listens and where the upstream is: ":8080=http://127.0.0.1:3000".
	Proxy string

	// Paths says what happens to a path that servers may read as another one: PathsStrict, PathsFold
	// or PathsAsIs.
	Paths string

	// Timeout is how long the upstream has to begin its answer.
	Timeout time.Duration
}

// What Options.Paths can be.
const (
	PathsStrict = "strict" // such a path is answered 400
	PathsFold   = "fold"   // and upper and lower case are the same
	PathsAsIs   = "as-is"  // such a path is passed on
)

// A Gateway is a serving.Service.
type Gateway struct {
	options  Options
	listen   string
	upstream *url.URL
	server   *serving.Server // nil before Start
}

// New checks the options.
func New(o Options) (*Gateway, error) {
	listen, target, ok := strings.Cut(o.Proxy, "=")
	if !ok {
		return nil, fmt.Errorf("--proxy %q: want ADDRESS=URL, such as :8080=http://127.0.0.1:3000", o.Proxy)
	}
	upstream, err := url.Parse(target)
	if err != nil || upstream.Scheme != "http" && upstream.Scheme != "https" || upstream.Host == "" || upstream.RawQuery != "" || upstream.Fragment != "" || upstream.User != nil {
		return nil, fmt.Errorf("--proxy: the upstream of %s is no URL such as http://127.0.0.1:3000", listen)
	}
	if _, _, err := net.SplitHostPort(listen); err != nil {
		return nil, fmt.Errorf("--proxy: %q is no address to listen on, such as :8080", listen)
	}
	switch o.Paths {
	case PathsStrict, PathsFold, PathsAsIs:
	default:
		return nil, fmt.Errorf("--paths %q: want %s, %s or %s", o.Paths, PathsStrict, PathsFold, PathsAsIs)
	}
	if o.Timeout <= 0 {
		return nil, fmt.Errorf("--upstream-timeout %v: want more than 0", o.Timeout)
	}
	return &Gateway{options: o, listen: listen, upstream: upstream}, nil
}

// Lacks implements serving.Service.
func (g *Gateway) Lacks(need rules.Need) string {
	switch need.Of {
	case "user", "tier":
		return "needs a " + need.Of + ", which the gateway does not know"
	case "settled":
		return "settles what a request cost, which a service behind the gateway cannot say"
	}
	return ""
}

// Start implements serving.Service.
func (g *Gateway) Start(l serving.Limits, failed func(error)) error {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy, transport.ResponseHeaderTimeout, transport.MaxIdleConnsPerHost = nil, g.options.Timeout, 256
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(g.upstream)
			r.Out.Host = r.In.Host
			r.SetXForwarded()
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			status := http.StatusBadGateway
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				status = http.StatusGatewayTimeout
			}
			http.Error(w, http.StatusText(status), status)
		},
	}
	limited := l.RateLimit.Gateway(proxy, g.options.Paths == PathsFold)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.options.Paths != PathsAsIs && route.IsAmbiguous(r.URL) {
			http.Error(w, "The path can be read in more than one way.", http.StatusBadRequest)
			return
		}
		limited.ServeHTTP(w, r)
	})
	server, err := serving.Listen("--proxy", g.listen, handler, l.Logger)
	if err != nil {
		return err
	}
	g.server = server
	server.Start(failed)
	return nil
}

// Drain implements serving.Service.
func (g *Gateway) Drain(ctx context.Context, grace time.Duration) {
	if g.server != nil {
		g.server.Drain(ctx, grace)
	}
}

// Reread implements serving.Service.
func (g *Gateway) Reread() error { return nil }
