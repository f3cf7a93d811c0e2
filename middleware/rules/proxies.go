package rules

import (
	"net/http"
	"net/netip"

	netw "github.com/weirgo/weir/internal/network"
)

// Proxies are the trusted proxies of a file. A program can ask whether a request comes from one of
// them. A gateway does so before it believes a header in which these proxies send the user.
type Proxies struct {
	networks   netw.Set
	unixSocket bool
	header     string
	hops       bool
}

func proxiesOf(p *proxies) (named Proxies) {
	if p == nil {
		return named
	}
	named.unixSocket, named.hops = p.UnixSocket, p.Hops != nil
	switch {
	case p.Header != nil:
		named.header = http.CanonicalHeaderKey(p.Header.Name)
	case p.Forwarded != nil:
		named.header = "Forwarded"
	case p.Trusted != nil, p.Hops != nil:
		named.header = "X-Forwarded-For"
	}
	lists := [][]network{p.Trusted, p.Forwarded}
	if p.Header != nil {
		lists = append(lists, p.Header.CIDRs)
	}
	for _, list := range lists {
		for _, n := range list {
			if n.IsValid() { // or it is noted
				named.networks.Add(n.Prefix)
			}
		}
	}
	return named
}

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
