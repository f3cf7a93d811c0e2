package route

import (
	"net/netip"
	"strings"
)

// The lengths of the longest name in DNS, and of its longest label.
const (
	mostHost  = 253
	mostLabel = 63
)

// Host returns the host of a request, spelled as in patterns: in lower case, without port, brackets or
// trailing dot, an IPv6 address in its short form. It returns the empty string if the field is empty, or
// if two servers may read two hosts in it: it is neither a name of letters, digits, - and _ nor an
// address, or its port is no number. It allocates only if the spelling changes.
func Host(field string) string {
	host, colons := field, strings.Count(field, ":")
	switch {
	case strings.HasPrefix(host, "["):
		text, port, closed := strings.Cut(host[1:], "]")
		if !closed || port != "" && !isPort(port) {
			return ""
		}
		return address(text)
	case colons > 1:
		return address(host)
	case colons == 1:
		colon := strings.IndexByte(host, ':')
		if !isPort(host[colon:]) {
			return ""
		}
		host = host[:colon]
	}
	host = strings.TrimSuffix(host, ".")
	if !isHostname(host) {
		return ""
	}
	return strings.ToLower(host)
}

// isPort reports whether text is a colon and a port, or a colon alone.
func isPort(text string) bool {
	return text[0] == ':' && len(text) <= len(":65535") && strings.Trim(text[1:], "0123456789") == ""
}

// isHostname reports whether host may be a name in DNS, or is an IPv4 address. As in browsers, a host that
// ends in a number must be an address: 127.1 is one for many programs.
func isHostname(host string) bool {
	if len(host) > mostHost {
		return false
	}
	label := 0
	for i := range len(host) {
		switch c := host[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		case c == '.' && 0 < i-label && i-label <= mostLabel:
			label = i + 1
		default:
			return false
		}
	}
	last := host[label:]
	if last == "" || len(last) > mostLabel {
		return false
	}
	if strings.Trim(last, "0123456789") != "" && !isHex(last) {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

// isHex reports whether text is a number such as 0x7f.
func isHex(text string) bool {
	return len(text) > 1 && text[0] == '0' && text[1]|' ' == 'x' && strings.Trim(text[2:], "0123456789abcdefABCDEF") == ""
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
