package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/internal/network"
)

// IP is the address of the client: "192.0.2.1", or the first 64 bits of an IPv6 address,
// "2001:db8::/64", because every IPv6 customer has at least a /64 of addresses to choose from. Its
// error is always nil.
//
// Without options the client is the TCP peer, which cannot be forged. No header is read. That is safe
// anywhere, but behind a proxy all clients have the proxy's key. If a request carries X-Forwarded-For
// or a similar header, IP ignores the header, and logs one warning for the whole process (code
// weir-untrusted-proxy).
//
// At most one option may say whom to trust: [TrustProxies], [TrustForwarded], [TrustHeader] or
// [TrustHops]. The header is read only if the peer is trusted, and no other header is tried. If the
// header names no client, the peer is counted, and the key is [InDoubt]: a proxy is never banned for
// what its clients do.
//
// A peer without an address, such as a unix socket, has the key "no-ip", which all such peers share;
// see [TrustUnixSocket]. If the first five requests name no client, or no peer has an address, one warning
// is logged for the whole process (code weir-unnamed-client). docs/proxies.md has the option for each proxy.
//
// A RemoteAddr without a port is not the TCP peer: a middleware such as chi's RealIP has rewritten it.
// If that middleware reads a header, clients choose their address. So the function logs one warning
// (code weir-rewritten-address), and such an address is never a trusted proxy. Its key is [InDoubt], or
// "no-ip" if the request has a header that may hold the address. If no client can influence the
// address, have the middleware add a port: IP then takes it for the TCP peer. Use no middleware in
// front of Weir that copies a port from a header, such as gorilla's ProxyHeaders: IP would trust that
// address.
//
// One address has one key, however it is spelled: IPv4 in IPv6 (::ffff:192.0.2.1) is IPv4, and zones
// and ports do not count. An address under the NAT64 prefix 64:ff9b::/96 counts as the IPv4 address in
// it, or all translated clients would share a key. So does one under ::ffff:0:0:0/96 and, if a /96 follows
// RFC 6052, under 64:ff9b:1::/48 (RFC 8215). These prefixes are not routed on the internet, so such an
// address comes from your own translator. A prefix of your network's own is not known. A 6to4 address (2002::/16) counts as the IPv4 address in it
// too, unless that is private: each host with an IPv4 address has 65,536 such /64 networks. Whether a peer
// is trusted is decided by its address before this translation.
//
// Many people can share an IPv4 address, as in an office or a mobile network: choose the limit for
// that, or count users. One customer can hold many /64 networks, or an IPv4 network: a second rule with
// [Prefixes] bounds those.
//
// IP panics if the options are wrong. If they come from a file, use [NewIP].
func IP(opts ...IPOption) Func {
	return must(newClientIP(opts)).key
}

// NewIP is [IP] for options that do not stand in code. It returns everything wrong with them, joined.
func NewIP(opts ...IPOption) (Func, error) {
	ip, err := newClientIP(opts)
	if err != nil {
		return nil, err
	}
	return ip.key, nil
}

// NewAddress returns a function that finds the client's whole address as [IP] does, for lists of
// addresses. It returns the zero Addr if the address is unknown, if RemoteAddr has no port, and if a
// trusted proxy does not name its client: [IP] returns the proxy's address in that last case; a list
// would then take the client for the proxy.
func NewAddress(opts ...IPOption) (func(*http.Request) netip.Addr, error) {
	ip, err := newClientIP(opts)
	if err != nil {
		return nil, err
	}
	return ip.address, nil
}

// An IPOption sets how [IP], [NewIP], [NewAddress] and [Fingerprint] find the client's address.
type IPOption func(*ipConfig)

// TrustProxies reads the client's address from X-Forwarded-For if the peer is in cidrs. From the right,
// the first address that is not in cidrs is the client.
//
//	keyfunc.IP(keyfunc.TrustProxies("10.0.0.0/8", "2001:db8:1::/48"))
//
// It is safe if every address in cidrs is a proxy that appends the address of its caller, as load
// balancers do, and nginx with $proxy_add_x_forwarded_for. A client with an address in cidrs can claim
// any address, so name the proxies, not networks that they share with others.
//
// Check before going live that a header of your own does not change your key; the package documentation
// shows how. The key is then your address. If it is a proxy's, cidrs lacks that proxy.
//
// All lines of the header are one list. Its last 8 KiB are read, and empty entries are skipped. An
// entry that is not an address ends the search, and the client is the peer, because entries to the left
// may be forged. If all entries are in cidrs, the leftmost is the client: one of your own machines that
// calls through your proxies.
//
// cidrs may hold plain addresses. CIDRs wider than /8 (IPv4) or /7 (IPv6) are errors, and so is a list
// with more than half of the public addresses of IPv4 or of IPv6. cidrs may be empty only with
// [TrustUnixSocket].
func TrustProxies(cidrs ...string) IPOption {
	return trustList("TrustProxies", "X-Forwarded-For", cutForwardedFor, cidrs)
}

// TrustForwarded reads the client's address from the Forwarded header (RFC 7239) if the peer is in
// cidrs. It works like [TrustProxies], and is safe with proxies that append an element with a "for"
// parameter. Check it before going live, as the package documentation shows.
//
// Most proxies do not write this header, and pass on what the client wrote. It is not safe behind them.
//
// The client is the peer if an element has no address: "unknown", an obfuscated name, no "for", a
// parameter twice, and IPv6 or a port without quotes.
func TrustForwarded(cidrs ...string) IPOption {
	return trustList("TrustForwarded", "Forwarded", cutForwarded, cidrs)
}

// trustList reads a header with a list of hops, if the peer is in cidrs.
func trustList(option, header string, cut cut, cidrs []string) IPOption {
	return func(c *ipConfig) {
		c.trust(option, header, cut)
		c.trustPeers(option, cidrs)
		c.needPeers = len(cidrs) == 0
	}
}

// TrustHops takes the n-th address from the right of X-Forwarded-For as the client, for any peer (on
// a unix socket only with [TrustUnixSocket]). n is the number of proxies between client and server,
// because each appends an address: 1 with a load balancer, 2 with a CDN in front of it.
//
// Prefer [TrustProxies], which cannot be off by one. TrustHops is for proxies with unknown addresses.
// It is safe only if all requests reach the server through those proxies: other clients write the
// header themselves.
//
// Check before going live that the key is your own address. If it is a proxy's, n is too low, and
// clients share limits. If sending the header changes the key, n is too high, and clients choose
// their keys: fix that at once. With fewer than n addresses, or an entry that is not an address among
// them, the client is the peer.
func TrustHops(n int) IPOption {
	return func(c *ipConfig) {
		c.trust("TrustHops", "X-Forwarded-For", cutForwardedFor)
		c.hops, c.anyPeer = n, true
		if n < 1 {
			c.report(fmt.Sprintf("TrustHops(%d)", n), ": it must be at least 1")
		}
	}
}

// TrustHeader reads the client's address from a header that holds just that, if the peer is in cidrs;
// without cidrs, from any peer.
//
//	keyfunc.IP(keyfunc.TrustHeader("CF-Connecting-IP", "173.245.48.0/20", "2400:cb00::/32"))
//
// It is safe if your proxy sets the header on every request and replaces what the client sent.
// Cloudflare does so with CF-Connecting-IP, and nginx with X-Real-IP if it is configured to. Proxies
// pass True-Client-IP, X-Azure-ClientIP and Fastly-Client-IP on as the client wrote them, unless they
// are configured to replace them. Without cidrs it is safe only if all requests come through the proxy.
//
// Check before going live, through the proxy and around it, that sending the header does not change
// your key. If the header is missing, stands twice or is not one address, the client is the peer.
//
// X-Forwarded-For and Forwarded are errors: they are lists, and have their own options.
func TrustHeader(name string, cidrs ...string) IPOption {
	return func(c *ipConfig) {
		canonical, err := canonicalHeader(name)
		option := optionOf("TrustHeader", name)
		switch {
		case err != nil:
			c.report(option, ": %w", err)
		case canonical == "X-Forwarded-For", canonical == "Forwarded":
			c.report(option, ": the client may have written the first entries of this list; use the option that trusts proxies by their address")
		}
		c.trust("TrustHeader", canonical, nil)
		c.trustPeers("TrustHeader", cidrs)
		c.anyPeer = len(cidrs) == 0
	}
}

// TrustUnixSocket makes a peer on a unix socket a trusted proxy. Another option says which header to
// read:
//
//	keyfunc.IP(keyfunc.TrustProxies(), keyfunc.TrustUnixSocket())
//
// It is safe if only the proxy may open the socket: check its mode and owner. Without this option all
// clients behind the socket share the key "no-ip".
func TrustUnixSocket() IPOption {
	return func(c *ipConfig) { c.unixSocket = true }
}

// IPv6Prefix sets how many bits of an IPv6 address count, from 32 to 128; the default
// is 64. Providers assign a /64, a /56 or a /48: with fewer bits, neighbors share a key, and its class
// is [Network]. With more than 64 a client can have as many keys as it likes, unless you assign the
// addresses.
func IPv6Prefix(bits int) IPOption {
	return func(c *ipConfig) {
		c.ipv6Prefix = bits
		if bits < 32 || bits > 128 {
			c.report(fmt.Sprintf("IPv6Prefix(%d)", bits), ": it must be from 32 to 128")
		}
	}
}

// Prefixes sets how many bits of an address count: ipv4 from 8 to 32, and ipv6 as in [IPv6Prefix].
// The key is the network, such as "203.0.113.0/24" or "2001:db8:1::/48". It is for a second rule
// beside one on the address, against a client that sends from all of its network:
//
//	keyfunc.IP(keyfunc.Prefixes(24, 48))
//
// The clients of a network share its counter, so choose a limit that they do not reach together. The
// key of an IPv4 network, and of an IPv6 network wider than /64, has the class [Network]: a rule never
// bans it for what one of its clients did.
func Prefixes(ipv4, ipv6 int) IPOption {
	return func(c *ipConfig) {
		c.ipv4Prefix, c.ipv6Prefix = ipv4, ipv6
		if ipv4 < 8 || ipv4 > 32 || ipv6 < 32 || ipv6 > 128 {
			c.report(fmt.Sprintf("Prefixes(%d, %d)", ipv4, ipv6), ": they must be from 8 to 32, and from 32 to 128")
		}
	}
}

// ipConfig is a clientIP that options are being applied to.
type ipConfig struct {
	clientIP
	trusts    []string // names of the options that said whom to trust
	needPeers bool
	errs      []error
}

func (c *ipConfig) report(option, format string, args ...any) {
	c.errs = append(c.errs, invalid.Field("keyfunc", option, format, args...))
}

// optionOf is an option with its argument, for report.
func optionOf(name, argument string) string { return fmt.Sprintf("%s(%q)", name, argument) }

func (c *ipConfig) trust(option, header string, cut cut) {
	c.trusts = append(c.trusts, option)
	c.header, c.cut = header, cut
}

func (c *ipConfig) trustPeers(option string, cidrs []string) {
	for _, cidr := range cidrs {
		prefix, err := network.Parse(cidr)
		if err != nil {
			c.report(optionOf(option, cidr), ": %w", err)
			continue
		}
		if widest := network.Widest(prefix); prefix.Bits() < widest {
			c.report(optionOf(option, cidr), ": it trusts strangers; networks wider than /%d are refused", widest)
			continue
		}
		c.peers.Add(prefix)
	}
}

func newClientIP(opts []IPOption) (*clientIP, error) {
	c := &ipConfig{clientIP: clientIP{ipv4Prefix: ownIPv4, ipv6Prefix: ownIPv6}}
	for i, opt := range opts {
		if opt == nil {
			c.report("", "option %d is nil", i+1)
			continue
		}
		opt(c)
	}
	switch {
	case len(c.trusts) > 1:
		c.report(strings.Join(c.trusts, ", "), ": an address is found in one way; keep one of them")
	case c.unixSocket && len(c.trusts) == 0:
		c.report("TrustUnixSocket()", ": it needs another option, such as trusted proxies, that says which header to read")
	case c.needPeers && !c.unixSocket:
		c.report(c.trusts[0]+"()", ": it needs the addresses of your proxies")
	}
	if err := c.peers.Check(); err != nil {
		c.report(c.trusts[0], ": it trusts strangers: %w", err)
	}
	if err := errors.Join(c.errs...); err != nil {
		return nil, err
	}
	return &c.clientIP, nil
}
