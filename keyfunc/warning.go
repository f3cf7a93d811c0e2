package keyfunc

import (
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
)

// forwardingHeaders are what proxies say the client's address in.
var forwardingHeaders = [...]string{
	"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Cf-Connecting-Ip", "True-Client-Ip",
}

// forwardingHeader returns the first of them that r has, or the empty string.
func forwardingHeader(r *http.Request) string {
	for _, name := range forwardingHeaders {
		if len(r.Header[name]) > 0 {
			return name
		}
	}
	return ""
}

// A proxyWarning logs once that an untrusted proxy may be in front, whose clients would all share a
// key. It also logs once that RemoteAddr was rewritten.
type proxyWarning struct {
	given          atomic.Bool
	checked        atomic.Uint32
	givenRewritten atomic.Bool
	givenUnnamed   atomic.Bool
}

// proxies is of all functions, as several limiters behind one proxy are one mistake.
var proxies proxyWarning

// rewritten warns that RemoteAddr was rewritten, and returns the header that may hold the address.
func (w *proxyWarning) rewritten(r *http.Request) (header string) {
	header = forwardingHeader(r)
	if !w.givenRewritten.Load() && w.givenRewritten.CompareAndSwap(false, true) {
		slog.Default().LogAttrs(r.Context(), slog.LevelWarn,
			"keyfunc: a request's RemoteAddr has no port, so it is not the TCP peer: a middleware in front, such "+
				"as chi's RealIP, rewrote it. If it reads a header, clients choose their addresses. Remove it, "+
				"and name the proxy with TrustProxies, TrustForwarded, TrustHeader or TrustHops. Until then "+
				"such clients are neither banned nor allowed by address, and share one limit where a header "+
				"names an address.",
			slog.String("code", "weir-rewritten-address"), slog.String("header", header))
	}
	return header
}

// unnamed warns that the requests of trusted peers name no client, or that no peer has an address.
func (w *proxyWarning) unnamed(r *http.Request, message, header string) {
	if w.givenUnnamed.CompareAndSwap(false, true) {
		slog.Default().LogAttrs(r.Context(), slog.LevelWarn, message,
			slog.String("code", "weir-unnamed-client"), slog.String("header", header))
	}
}

// check looks at the first requests and then at one in 64. A counter for all of
// them would be a cache line that every core writes.
func (w *proxyWarning) check(r *http.Request) {
	if w.given.Load() {
		return
	}
	if w.checked.Load() < 256 {
		w.checked.Add(1)
	} else if rand.Uint32()%64 != 0 {
		return
	}
	if name := forwardingHeader(r); name != "" && w.given.CompareAndSwap(false, true) {
		// Never the value: it is the client's text.
		slog.Default().LogAttrs(r.Context(), slog.LevelWarn,
			"keyfunc: a request names a client address, but no proxy is trusted, so it is counted on "+
				"its TCP peer. If the server is behind a proxy, all clients share one limit: name the "+
				"proxy with TrustProxies, TrustForwarded, TrustHeader or TrustHops. "+
				"If it is not, the client made the header up and all is well.",
			slog.String("code", "weir-untrusted-proxy"), slog.String("header", name))
	}
}
