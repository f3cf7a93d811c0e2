package keyfunc

import (
	"net/netip"
	"strings"

	"github.com/weirgo/weir/internal/network"
)

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
