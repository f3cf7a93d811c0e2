package keyfunc

import (
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/weirgo/weir/internal/missing"
	"github.com/weirgo/weir/internal/network"
)

// A clientIP finds the address of the client.
type clientIP struct {
	header     string      // the header that names the client, canonical; "" reads none
	cut        cut         // how to take hops off its lines; nil if it holds one address
	hops       int         // how many hops to take; 0 to go by peers
	peers      network.Set // the peers that the header is read of
	anyPeer    bool        // whether it is read from peers outside of peers
	unixSocket bool        // and from peers on a unix socket
	ipv4Prefix int
	ipv6Prefix int

	clients missing.Detector // the clients that trusted peers name
	peerIPs missing.Detector // the addresses of peers
}

func (c *clientIP) key(r *http.Request) (string, error) {
	if c.header == "" && c.ipv4Prefix == ownIPv4 {
		if host := plainIPv4(r.RemoteAddr); host != "" {
			c.peerIPs.Found()
			proxies.check(r)
			return host, nil
		}
	}
	peer := parseAddress(r.RemoteAddr)
	trusted := c.header != "" && c.trusted(peer, r.RemoteAddr)
	if trusted {
		if client := c.named(r.Header[c.header]); client.IsValid() {
			c.clients.Found()
			return c.keyOf(client, Own), nil
		}
		if c.clients.Lacks(r) {
			proxies.unnamed(r, "keyfunc: the first five requests of trusted proxies named no client in the header that is read, so "+
				"all clients of a proxy share one limit. Unless these were the proxy's own, have it set the header, or read another one.", c.header)
		}
	}
	rewritten := isRewritten(peer, r.RemoteAddr)
	switch {
	case rewritten:
		if header := proxies.rewritten(r); header != "" {
			return noIP, nil
		}
	case c.header == "":
		proxies.check(r)
	}
	if !peer.IsValid() {
		if !trusted && c.peerIPs.Lacks(r) {
			proxies.unnamed(r, "keyfunc: the first five requests came from peers without an address, such as a unix socket, so all clients "+
				"share one limit. If a proxy is in front, TrustUnixSocket, beside another option, reads the header in which it names the client.", "")
		}
		return noIP, nil
	}
	c.peerIPs.Found()
	class := Own
	if trusted || rewritten {
		// Even without the header: a client can have it dropped ("Connection: X-Forwarded-For").
		class = InDoubt
	}
	// There is one way to spell IPv4, unless inside IPv6: the text is the key.
	if text, _ := splitPort(r.RemoteAddr); peer.Is4() && c.ipv4Prefix == ownIPv4 && strings.IndexByte(text, ':') < 0 {
		return class.mark() + text, nil
	}
	return c.keyOf(peer, class), nil
}

// address is the client's, with IPv4 as such wherever it is written in IPv6.
func (c *clientIP) address(r *http.Request) netip.Addr {
	client := parseAddress(r.RemoteAddr)
	if c.header != "" && c.trusted(client, r.RemoteAddr) {
		// Without a list, the request is the proxy's own.
		if lines := r.Header[c.header]; len(lines) > 0 || c.cut == nil {
			return network.OfClient(c.named(lines))
		}
	}
	if isRewritten(client, r.RemoteAddr) {
		proxies.rewritten(r)
		return netip.Addr{}
	}
	return network.OfClient(client)
}

// trusted reports whether the peer's header is to be read.
func (c *clientIP) trusted(peer netip.Addr, remoteAddr string) bool {
	if !peer.IsValid() {
		return c.unixSocket && isUnixSocket(remoteAddr)
	}
	return c.anyPeer || c.peers.Contains(peer) && !isRewritten(peer, remoteAddr)
}

// isRewritten reports whether a RemoteAddr with that address has no port, so that it is not
// net/http's.
func isRewritten(peer netip.Addr, remoteAddr string) bool {
	if !peer.IsValid() {
		return false
	}
	_, port := splitPort(remoteAddr)
	return port == ""
}

// isUnixSocket reports whether a RemoteAddr is what net makes of a unix socket: a path,
// or nothing for a client without a name. Other text is not trusted; it may come from
// code that rewrote RemoteAddr from a header.
func isUnixSocket(remoteAddr string) bool {
	return remoteAddr == "" || remoteAddr[0] == '@' || remoteAddr[0] == '/'
}

// mostForwarded is how many bytes of a forwarding header are read, from the right. More are
// of no chain of proxies, and what is not read is in doubt.
const mostForwarded = 8192

// named is the client that a trusted peer names, or the zero Addr if in doubt.
func (c *clientIP) named(lines []string) netip.Addr {
	if c.cut == nil {
		if len(lines) != 1 {
			return netip.Addr{}
		}
		return parseAddress(strings.Trim(lines[0], ows))
	}

	var hop netip.Addr
	hops, budget := 0, mostForwarded
	for _, line := range slices.Backward(lines) {
		whole := len(line) < budget
		if !whole {
			line = line[len(line)-budget:]
		}
		budget -= len(line) + 1
		for {
			line = strings.TrimRight(line, ","+ows)
			if line == "" {
				break
			}
			line, hop = c.cut(line)
			if line == "" && !whole {
				return netip.Addr{} // where the hop begins is not known
			}
			hops++
			if !hop.IsValid() || hops == c.hops || c.hops == 0 && !c.peers.Contains(hop) {
				return hop
			}
		}
		if !whole {
			return netip.Addr{}
		}
	}
	if c.hops > 0 {
		return netip.Addr{} // fewer than there should be
	}
	return hop
}

// noIP is the key of all clients without a known address. One that is shared
// is still a limit; "" or an error might be read as none.
var noIP = Shared.Mark("no-ip")

// An IPv4 address, or an IPv6 network of this length, is one client's.
const (
	ownIPv4 = 32
	ownIPv6 = 64
)

// keyOf is the key of ip, a whole IPv4 address or a network. The class is Own or InDoubt.
func (c *clientIP) keyOf(ip netip.Addr, class Class) string {
	// Only here, not where trust is decided: 64:ff9b::10.0.0.1 is not 10.0.0.1.
	ip = network.OfClient(ip)
	bits, own := c.ipv6Prefix, ownIPv6
	if ip.Is4() {
		if bits, own = c.ipv4Prefix, ownIPv4; bits == ownIPv4 {
			return class.mark() + ip.String()
		}
	}
	if class == Own && bits < own {
		class = Network
	}
	var text [80]byte // for the longest mark and the longest network; String allocates twice
	return string(netip.PrefixFrom(ip, bits).Masked().AppendTo(append(text[:0], class.mark()...)))
}

// longestAddress is more than any address takes, with its brackets, zone and port.
const longestAddress = 128

// parseAddress reads an address as peers and proxies spell it: 192.0.2.1,
// 192.0.2.1:80, 2001:db8::1, [2001:db8::1], [2001:db8::1]:80. What is left is
// comparable: no IPv4 in IPv6, no zone. Anything else is the zero Addr.
func parseAddress(s string) netip.Addr {
	if len(s) > longestAddress {
		return netip.Addr{}
	}
	host, port := splitPort(s)
	if port != "" && !isPort(port) {
		return netip.Addr{}
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Is4() && strings.HasPrefix(s, "[") {
		return netip.Addr{}
	}
	return ip.Unmap().WithZone("")
}

// plainIPv4 is the host of what net/http makes of an IPv4 peer, "192.0.2.1:80", or "" for
// any other text: what parseAddress finds in it too, only faster.
func plainIPv4(s string) string {
	dots, octet := 0, -1 // -1: no digit yet
	for i := range len(s) {
		switch c := s[i]; {
		case c-'0' <= 9 && octet != 0: // ParseAddr accepts no leading zero
			if octet = max(octet, 0)*10 + int(c-'0'); octet > 255 {
				return ""
			}
		case c == '.' && dots < 3 && octet >= 0:
			dots, octet = dots+1, -1
		case c == ':' && dots == 3 && octet >= 0 && isPort(s[i:]):
			return s[:i]
		default:
			return ""
		}
	}
	return ""
}

// splitPort splits "host:port" and "[host]:port". The port keeps its colon.
func splitPort(s string) (host, port string) {
	if strings.HasPrefix(s, "[") {
		if end := strings.IndexByte(s, ']'); end >= 0 {
			return s[1:end], s[end+1:]
		}
	}
	// More than one colon and no brackets is an IPv6 address without a port.
	if i := strings.IndexByte(s, ':'); i >= 0 && i == strings.LastIndexByte(s, ':') {
		return s[:i], s[i:]
	}
	return s, ""
}

// isPort reports whether s is a colon and a port.
func isPort(s string) bool {
	if len(s) < len(":0") || len(s) > len(":65535") || s[0] != ':' {
		return false
	}
	for i := 1; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

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
