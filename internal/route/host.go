package route

import (
	"net/netip"
	"strings"
)

// mostHost is the length of the longest name in DNS.
const mostHost = 253

// Host returns the host of a request, spelled as in patterns: in lower case, without port, brackets or
// trailing dot, an IPv6 address in its short form. It returns the empty string for a host that no pattern
// can have. It allocates only if the spelling changes.
func Host(field string) string {
	host := field
	switch first := strings.IndexByte(host, ':'); {
	case strings.HasPrefix(host, "["):
		end := strings.IndexByte(host, ']')
		if end < 0 || end+1 < len(host) && host[end+1] != ':' {
			return ""
		}
		return address(host[1:end])
	case first < 0:
	case strings.IndexByte(host[first+1:], ':') >= 0:
		return address(host)
	default:
		host = host[:first]
	}
	host = strings.TrimSuffix(host, ".")
	if host == "" || len(host) > mostHost || host[0] == '.' {
		return ""
	}
	upper := false
	for i := range len(host) {
		switch c := host[i]; {
		case c >= 0x80:
			return "" // strings.ToLower might turn it into a letter of ASCII
		case 'A' <= c && c <= 'Z':
			upper = true
		}
	}
	if upper {
		return strings.ToLower(host)
	}
	return host
}

// address returns an IPv6 address in its short form, or the empty string.
func address(text string) string {
	ip, err := netip.ParseAddr(text)
	if err != nil || !ip.Is6() || ip.Zone() != "" {
		return ""
	}
	var buffer [64]byte
	if short := ip.AppendTo(buffer[:0]); string(short) != text {
		return string(short)
	}
	return text
}

// IsFor reports whether the pattern of a rule matches requests to that host, as Host spells it.
func (p *Pattern) IsFor(host string) bool {
	if p.Host == "" {
		return true
	}
	if domain, ok := strings.CutPrefix(p.Host, "*"); ok {
		return len(host) > len(domain) && strings.HasSuffix(host, domain)
	}
	return p.Host == host
}

// coversHost reports whether p matches all hosts that another rule's pattern matches.
func (p *Pattern) coversHost(other *Pattern) bool {
	return p.Host == other.Host || p.IsFor(strings.TrimPrefix(other.Host, "*"))
}
