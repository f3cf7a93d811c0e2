package rules

import (
	"net/http"
	"net/netip"
	"strings"

	netw "github.com/weirgo/weir/internal/network"
	"github.com/weirgo/weir/keyfunc"
)

// Proxies are the trusted proxies of a file. A program can ask whether a request comes from one of
// them. A gateway does so before it believes a header in which these proxies send the user.
type Proxies struct {
	networks   netw.Set
	unixSocket bool
	header     string
	hops       bool
}

// findProxies sets whose headers name the client.
func (c *checker) findProxies() {
	p := c.file.Proxies
	if p == nil {
		p = &proxies{}
	}
	c.proxies.unixSocket, c.proxies.hops = p.UnixSocket, p.Hops != nil
	var ways []string
	var options []keyfunc.IPOption
	way := func(name, header string, networks []network, option func(networks ...string) keyfunc.IPOption) {
		var texts []string
		for _, n := range networks {
			if n.IsValid() { // or it is noted
				texts = append(texts, n.String())
				c.proxies.networks.Add(n.Prefix)
			}
		}
		ways, options = append(ways, name), append(options, option(texts...))
		c.proxies.header = header
	}
	if c.doc.Has("proxies", "trusted") {
		way("trusted", forwardedFor, p.Trusted, keyfunc.TrustProxies)
	}
	if c.doc.Has("proxies", "forwarded") {
		way("forwarded", "Forwarded", p.Forwarded, keyfunc.TrustForwarded)
	}
	if h := p.Header; h != nil {
		way("header", http.CanonicalHeaderKey(h.Name), h.CIDRs, func(networks ...string) keyfunc.IPOption {
			return keyfunc.TrustHeader(h.Name, networks...)
		})
		if len(h.CIDRs) == 0 {
			c.warnings.at([]string{"proxies", "header"}, "any peer can claim any address, such as an address in allow.cidrs: name the proxies in cidrs")
		}
	}
	if p.Hops != nil {
		way("hops", forwardedFor, nil, func(...string) keyfunc.IPOption { return keyfunc.TrustHops(int(*p.Hops)) })
		if c.doc.Has("allow", "cidrs") {
			c.warnings.at([]string{"proxies", "hops"}, "a client that bypasses a proxy can claim any address, such as an address in allow.cidrs")
		}
	}
	if len(ways) > 1 {
		c.at([]string{"proxies"}, "has %s: an address is found in one way, keep one of them", strings.Join(ways, " and "))
	}
	if p.UnixSocket {
		options = append(options, keyfunc.TrustUnixSocket())
	}
	if p.IPv6Prefix != nil {
		options = append(options, keyfunc.IPv6Prefix(int(*p.IPv6Prefix)))
	}
	ip, err := keyfunc.NewIP(options...)
	if err != nil {
		if !c.noted([]string{"proxies"}) {
			c.reject([]string{"proxies"}, err)
		}
		options, ip = nil, keyfunc.IP()
	}
	c.keys = newKeys(c.options.Keys, ip, options)
	c.ip = c.keys.add("ip").f // the first where a client's address is looked for
}

const forwardedFor = "X-Forwarded-For"

// Header returns the canonical name of the header that names the client, or "" if the client is the TCP
// peer.
func (p *Proxies) Header() string { return p.header }

// None reports whether the file names no trusted proxy: it has no proxies, or trusts a number of hops,
// or a header from any peer.
func (p *Proxies) None() bool { return p.networks.Len() == 0 && !p.unixSocket }

// Hops reports whether the file trusts a number of hops: then each peer is a proxy that appends to
// X-Forwarded-For.
func (p *Proxies) Hops() bool { return p.hops }

// Has reports whether a request from remoteAddr, as it is in http.Request, comes from one of them.
func (p *Proxies) Has(remoteAddr string) bool {
	if remoteAddr == "" || remoteAddr[0] == '@' || remoteAddr[0] == '/' {
		return p.unixSocket
	}
	peer, err := netip.ParseAddrPort(remoteAddr)
	return err == nil && p.networks.Contains(peer.Addr().Unmap().WithZone(""))
}

// Proxies are the proxies that the file names, in trusted, forwarded or header.cidrs.
func (r *Rules) Proxies() *Proxies { return &r.proxies }
