package route

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// ParseRule is Parse for the pattern of a rule. Its path may end in /* for everything below, and its host may
// begin with *. for one or more labels. The error says why no request can match, and what to write.
func ParseRule(pattern string) (Pattern, error) {
	p, reason := parseRule(pattern)
	if reason != "" {
		return p, fmt.Errorf("pattern %q %s", pattern, reason)
	}
	return p, nil
}

// parseRule returns why no request can match, or an empty reason.
func parseRule(pattern string) (p Pattern, reason string) {
	if strings.Contains(WithoutParameters(pattern), "://") {
		return p, "has a scheme: leave it out, as in example.com/a"
	}
	p = Parse(pattern)
	switch {
	case strings.ContainsAny(p.Method, ",|"):
		return p, "has several methods: write a pattern for each, or one without a method"
	case slices.Contains(anyMethods, strings.ToUpper(p.Method)):
		return p, "begins with " + p.Method + ", which is no method: a pattern without one is for all"
	case !IsMethod(p.Method):
		return p, "does not begin with a method in capitals, as in GET /search"
	case isRegexp(p.Host + p.Path):
		return p, "looks like a regular expression, and is compared with what routes are registered as: write {id} for a segment, and /* for all that is below"
	case strings.ContainsAny(WithoutParameters(p.Host+p.Path), "\"<>`"):
		return p, "has a quotation mark or an angle bracket, which no route has: a parameter is written {id}"
	case p.Method == "" && p.Host != "*" && p.Path != "" && knownMethod(p.Host):
		return p, "has no space behind its method"
	case p.Path == "":
		return p, "has no path: want something like /search, or example.com/*"
	}
	if p.Host, reason = hostOf(p.Host); reason != "" {
		return p, reason
	}
	if reason = pathIsNone(p.Path); reason != "" {
		return p, reason
	}
	p.Path, p.Below = strings.CutSuffix(p.Path, "/*")
	return p, ""
}

// methods are the methods that the beginning of a pattern is compared with.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"}

// anyMethods are words of other programs for all methods.
var anyMethods = []string{"ANY", "ALL", "*"}

func knownMethod(word string) bool {
	word = strings.ToUpper(word)
	return slices.Contains(methods, word) || slices.Contains(anyMethods, word)
}

// IsMethod reports whether method is in capitals, like all methods that servers answer.
func IsMethod(method string) bool {
	for i, c := range []byte(method) {
		if (c < 'A' || c > 'Z') && (i == 0 || c != '-' && c != '_') {
			return false
		}
	}
	return true
}

// isRegexp reports whether a pattern has characters that routes have only in the expression of a parameter.
func isRegexp(place string) bool {
	host, path, _ := strings.Cut(WithoutParameters(place), "/")
	return strings.ContainsAny(host, "^|\\") || strings.ContainsAny(path, "^|\\[]") ||
		strings.Contains(path, ".*") || strings.Contains(path, ".+") || strings.HasSuffix(path, "$")
}

// WithoutParameters returns a pattern with empty braces.
func WithoutParameters(place string) string {
	if strings.IndexByte(place, '{') < 0 {
		return place
	}
	var b strings.Builder
	depth := 0
	for _, c := range []byte(place) {
		if c == '}' && depth > 0 {
			depth--
		}
		if depth == 0 {
			b.WriteByte(c)
		}
		if c == '{' {
			depth++
		}
	}
	return b.String()
}

// hostOf returns the host of a rule's pattern as Host spells it, or why no request has it.
func hostOf(text string) (host, reason string) {
	if text == "" {
		return "", ""
	}
	name, wild := strings.CutPrefix(text, "*.")
	for _, c := range []byte(name) {
		if c >= 0x80 {
			return "", "has a host outside ASCII, which clients ask for by another name, such as xn--mnchen-3ya.example"
		}
	}
	host = Host(name)
	_, notAddress := netip.ParseAddr(host)
	if strings.Contains(host, ":") {
		if wild || strings.Contains(name, "]:") {
			return "", "has a host that is not one: want one such as example.com or *.example.com"
		}
		return host, ""
	}
	switch {
	case strings.Contains(name, ":"):
		return "", "has a port, which no host is compared with: leave it out"
	case host == "", wild && notAddress == nil:
		return "", "has a host that is not one: want one such as example.com or *.example.com"
	case !wild && !strings.Contains(host, ".") && host != "localhost" && !strings.HasSuffix(name, "."):
		return "", "begins with " + strconv.Quote(text) + ", which reads as a host: write " + strconv.Quote("/"+text) + " for a path, and " + strconv.Quote(text+".") + " for a host"
	case wild:
		return "*." + host, ""
	}
	return host, ""
}

// pathIsNone returns why no route has such a path, or the empty string.
func pathIsNone(path string) string {
	bare := WithoutParameters(path)
	if strings.ContainsAny(bare, " \t?#") {
		return "has a space, ? or # in its path: what is behind it is no part of a route"
	}
	if strings.Count(path, "{") != strings.Count(path, "}") || strings.ContainsAny(strings.ReplaceAll(bare, "{}", ""), "{}") {
		return "has a brace without its other one"
	}
	_, rest, more := cut(path)
	for more {
		var segment string
		segment, rest, more = cut(rest)
		star := strings.IndexByte(WithoutParameters(segment), '*')
		switch {
		case segment == "" && more:
			return "has // in its path"
		case segment == ".", segment == "..":
			return "has " + segment + " in its path, which no client asks for"
		case parameter(segment) == many && more, segment == "{$}" && more:
			return "goes on behind a parameter for all that follows: write {id} for one segment"
		case star == 0 && strings.Trim(segment[1:], wordCharacters) != "", star > 0 && (more || star < len(segment)-1):
			return "has a * that stands for a part of a segment: write /* for all that is below"
		}
	}
	return ""
}

// wordCharacters are the characters of a parameter's name.
const wordCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
