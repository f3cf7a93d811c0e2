package keyfunc

import (
	"net/netip"
	"strings"
)

// A cut takes the last hop off a line of a forwarding header, which ends in
// neither a comma nor whitespace. A hop that is not an address is the zero Addr.
//
// From the right, because that is where the trusted proxy wrote. What a client
// sent is to the left of it and can't change how it is read.
type cut func(line string) (rest string, hop netip.Addr)

// cutForwardedFor is the cut of X-Forwarded-For: addresses with commas between.
func cutForwardedFor(line string) (string, netip.Addr) {
	i := strings.LastIndexByte(line, ',')
	return line[:max(i, 0)], parseAddress(strings.TrimLeft(line[i+1:], ows))
}

// cutForwarded is the cut of Forwarded (RFC 7239 §4):
//
//	for=192.0.2.43, for="[2001:db8:cafe::17]:4711";proto=https
//
// It can be read from the right because a quote inside a quoted string always has
// an odd number of backslashes before it, and the quotes around it an even one.
// Whitespace around semicolons is not in the grammar, but common.
func cutForwarded(line string) (string, netip.Addr) {
	var names [8]string // the RFC has four; a client that sends more than eight makes them up
	seen := names[:0]
	var node string
	for {
		line = strings.TrimRight(line, ";"+ows) // pairs may be empty
		if line == "" || line[len(line)-1] == ',' {
			return line, parseNode(node)
		}
		rest, name, value := cutPair(line)
		if name == "" || len(seen) == len(names) {
			return "", netip.Addr{}
		}
		for _, other := range seen {
			if strings.EqualFold(name, other) {
				return "", netip.Addr{}
			}
		}
		seen = append(seen, name)
		if strings.EqualFold(name, "for") {
			node = value
		}

		line = strings.TrimRight(rest, ows)
		if line != "" && line[len(line)-1] != ';' && line[len(line)-1] != ',' {
			return "", netip.Addr{}
		}
	}
}

// cutPair takes the last name=value off line. The name is "" if there is none.
func cutPair(line string) (rest, name, value string) {
	var equals int
	if inner, quoted := strings.CutSuffix(line, `"`); quoted {
		open := openingQuote(inner)
		if open < 0 || endsEscaped(inner) {
			return "", "", ""
		}
		equals, value = open-1, unquote(inner[open+1:])
	} else {
		value = lastToken(line)
		if value == "" {
			return "", "", ""
		}
		equals = len(line) - len(value) - 1
	}
	if equals < 0 || line[equals] != '=' {
		return "", "", ""
	}
	name = lastToken(line[:equals])
	return line[:equals-len(name)], name, value
}

func lastToken(s string) string {
	i := len(s)
	for i > 0 && isTokenChar(s[i-1]) {
		i--
	}
	return s[i:]
}

// openingQuote finds where the quoted string that s ends in begins, or -1.
func openingQuote(s string) int {
	i := strings.LastIndexByte(s, '"')
	for i >= 0 && endsEscaped(s[:i]) {
		i = strings.LastIndexByte(s[:i], '"')
	}
	return i
}

// endsEscaped reports whether what follows s is escaped by a backslash in it.
func endsEscaped(s string) bool {
	return (len(s)-len(strings.TrimRight(s, `\`)))%2 == 1
}

// unquote undoes the backslashes of a quoted string.
func unquote(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// parseNode reads the address of a node (RFC 7239 §6). IPv6 must be in brackets, the
// port may be obfuscated; "unknown" and "_hidden" are not addresses.
func parseNode(node string) netip.Addr {
	if !strings.HasPrefix(node, "[") && strings.Count(node, ":") > 1 {
		return netip.Addr{}
	}
	if _, port := splitPort(node); isObfuscatedPort(port) {
		node = strings.TrimSuffix(node, port)
	}
	return parseAddress(node)
}

// isObfuscatedPort reports whether s is a colon, an underscore and what may follow it.
func isObfuscatedPort(s string) bool {
	name, ok := strings.CutPrefix(s, ":_")
	for i := range len(name) {
		c := name[i]
		// Of the characters of a token, only letters, digits and these.
		if !isTokenChar(c) || strings.IndexByte("!#$%&'*+^`|~", c) >= 0 {
			return false
		}
	}
	return ok && name != ""
}
