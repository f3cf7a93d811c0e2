package route

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// ParseRule is Parse for the pattern of a rule. Its path may end in /* for all that is
// below, and its host may begin with *. for one or more labels. The error says why no
// request can match, and what was probably meant.
func ParseRule(pattern string) (Pattern, error) {
	p, reason := parseRule(pattern)
	if reason == "" {
		return p, nil
	}
	want := "something like \"GET /search\" or \"/assets/*\""
	if meant := likely(pattern); len(meant) > 0 {
		for i := range meant {
			meant[i] = strconv.Quote(meant[i])
		}
		want = strings.Join(meant, " and ")
	} else if reason == outsideASCII {
		want = "something like \"xn--mnchen-3ya.example/search\""
	}
	return p, fmt.Errorf("pattern %q %s: want %s", pattern, reason, want)
}

// parseRule returns why no request can match, or an empty reason.
func parseRule(pattern string) (p Pattern, reason string) {
	if strings.Contains(WithoutParameters(pattern), "://") {
		return p, "has a scheme"
	}
	p = Parse(pattern)
	switch {
	case strings.ContainsAny(p.Method, ",|"):
		return p, "has several methods, of which a pattern has one or none"
	case slices.Contains(anyMethods, strings.ToUpper(p.Method)):
		return p, "begins with " + p.Method + ", which is no method: a pattern without one is for all"
	case !isMethod(p.Method):
		return p, "does not begin with a method in capitals"
	case isRegexp(p.Host + p.Path):
		return p, "looks like a regular expression, and is compared with what routes are registered as"
	case strings.ContainsAny(WithoutParameters(p.Host+p.Path), "\"<>`"):
		return p, "has a quotation mark or an angle bracket, which no route has"
	case p.Method == "" && p.Host != "*" && knownMethod(p.Host):
		if p.Path == "" {
			return p, "has no path"
		}
		return p, "has no space behind its method"
	case p.Path == "":
		return p, "has no path"
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

// methods are those that a pattern can be taken to begin with.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"}

// anyMethods are what other programs write for all methods.
var anyMethods = []string{"ANY", "ALL", "*"}

func knownMethod(word string) bool {
	word = strings.ToUpper(word)
	return slices.Contains(methods, word) || slices.Contains(anyMethods, word)
}

// isMethod reports whether p is in capitals, as all methods are that servers answer.
func isMethod(method string) bool {
	for i, c := range []byte(method) {
		if (c < 'A' || c > 'Z') && (i == 0 || c != '-' && c != '_') {
			return false
		}
	}
	return true
}

// isRegexp knows what no router has in a route, but for the expression of a parameter.
func isRegexp(place string) bool {
	host, path, _ := strings.Cut(WithoutParameters(place), "/")
	return strings.ContainsAny(host, "^|\\") || strings.ContainsAny(path, "^|\\[]") ||
		strings.Contains(path, ".*") || strings.Contains(path, ".+") || strings.HasSuffix(path, "$")
}

// WithoutParameters is a place with nothing in its braces.
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

const outsideASCII = "has a host outside ASCII, which clients ask for by its form within"

// hostOf is the host of a rule's pattern as Host spells it, or why no request has it.
func hostOf(text string) (host, reason string) {
	if text == "" {
		return "", ""
	}
	name, wild := strings.CutPrefix(text, "*.")
	for _, c := range []byte(name) {
		if c >= 0x80 {
			return "", outsideASCII
		}
	}
	host = Host(name)
	if strings.Contains(host, ":") {
		if wild || strings.Contains(name, "]:") {
			return "", "has a host that is not one"
		}
		return host, ""
	}
	switch {
	case strings.Contains(name, ":"):
		return "", "has a port, which no host is compared with"
	case !isName(host):
		return "", "has a host that is not one"
	case !wild && !strings.Contains(host, ".") && host != "localhost" && !strings.HasSuffix(name, "."):
		return "", "begins with " + strconv.Quote(text) + ", which reads as a host (write " + strconv.Quote(text+".") + " if it is one)"
	case wild:
		return "*." + host, ""
	}
	return host, ""
}

// isName reports whether host can be in DNS, or is an IPv4 address: what ends in a number is
// one or nothing, as in browsers.
func isName(host string) bool {
	last := ""
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
		last = label
	}
	if strings.Trim(last, "0123456789") != "" {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

// pathIsNone says why no route has such a path, or nothing.
func pathIsNone(path string) string {
	bare := WithoutParameters(path)
	if strings.ContainsAny(bare, " \t?#") {
		return "has a space, ? or # in its path"
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
			return "goes on behind a parameter for all that follows"
		case star == 0 && strings.Trim(segment[1:], wordCharacters) != "", star > 0 && (more || star < len(segment)-1):
			return "has a * that stands for a part of a segment"
		}
	}
	return ""
}

// wordCharacters are those of a parameter's name.
const wordCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// likely is what was probably meant by a pattern that is none.
func likely(pattern string) (meant []string) {
	text := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(pattern), "^"), "$")
	method, rest := cutMethod(text)
	if method == "" {
		method, rest = cutKnownMethod(text)
	}
	host, path := likelyPlace(rest)
	words := strings.FieldsFunc(strings.ToUpper(method), notInMethods)
	if len(words) == 0 {
		words = []string{""}
	}
	for _, method := range words {
		if slices.Contains(anyMethods, method) {
			method = ""
		}
		want := strings.TrimSpace(method + " " + host + path)
		if _, reason := parseRule(want); reason != "" {
			return nil
		}
		meant = append(meant, want)
	}
	return meant
}

func notInMethods(c rune) bool {
	return (c < 'A' || c > 'Z') && c != '-' && c != '_' && c != '*'
}

// cutKnownMethod cuts off a method that is not followed by a space.
func cutKnownMethod(text string) (method, rest string) {
	end := strings.IndexFunc(text, func(c rune) bool { return notInMethods(c &^ ('a' - 'A')) })
	if end < 0 {
		end = len(text)
	}
	if !knownMethod(text[:end]) {
		return "", text
	}
	return text[:end], strings.TrimLeft(text[end:], ": \t")
}

// likelyPlace is the host and the path that were probably meant.
func likelyPlace(place string) (host, path string) {
	if _, rest, ok := strings.Cut(place, "://"); ok {
		place = rest
	}
	place = angled.Replace(strings.TrimPrefix(place, "^"))
	if strings.IndexByte(place, '{') < 0 {
		place = expressions.Replace(place)
	}
	if end := strings.IndexAny(place, "?# \t"); end >= 0 && strings.IndexByte(place[:end], '{') < 0 {
		place = place[:end]
	}
	host, path = place, ""
	if slash := strings.IndexByte(place, '/'); slash >= 0 {
		host, path = place[:slash], place[slash:]
	}
	host, path = likelyHost(host, path)
	return host, likelyPath(path)
}

// expressions are what in regular expressions means what a pattern says.
var expressions = strings.NewReplacer(
	"(.*)", "*", "(.+)", "*", ".*", "*", ".+", "*", "([^/]+)", "{id}", "[^/]+", "{id}", "(?:", "", "\\/", "/", "\\.", ".", "\\d+", "{id}", "$", "",
)

// angled is what quotes and the parameters of Flask and OpenAPI's prose become.
var angled = strings.NewReplacer(`"`, "", "`", "", "<", "{", ">", "}")

func likelyHost(host, path string) (string, string) {
	if host == "" || host == "*" {
		return "", path
	}
	name := host
	if strings.HasPrefix(name, "{") || strings.HasPrefix(name, ":") || strings.HasPrefix(name, "*") {
		if _, domain, ok := strings.Cut(name, "."); ok {
			name = "*." + domain
		}
	}
	if port := strings.LastIndexByte(name, ':'); port > 0 && strings.IndexByte(name, ':') == port || strings.Contains(name, "]:") {
		name = name[:port]
	}
	if _, reason := hostOf(name); reason == "" {
		if path == "" {
			path = "/*"
		}
		return name, path
	} else if reason == outsideASCII || strings.ContainsAny(host, "*[]") {
		return host, path // no telling
	}
	return "", "/" + host + path
}

func likelyPath(path string) string {
	segments := strings.Split(path, "/")
	var kept []string
	for i, segment := range segments {
		last := i == len(segments)-1
		switch {
		case i == 0, segment == "" && last:
		case segment == "", segment == ".", segment == "..", segment == "{$}" && !last:
			continue
		case segment[0] == '*' && !last:
			segment = "{id}"
		case segment[0] == '*':
			segment = "*"
		case strings.HasSuffix(segment, "...}") && !last:
			segment = strings.TrimSuffix(segment, "...}") + "}"
		case strings.Count(segment, "{") > strings.Count(segment, "}"):
			segment += "}"
		case strings.Count(segment, "{") < strings.Count(segment, "}"):
			segment = "{" + segment
		}
		kept = append(kept, segment)
	}
	return strings.Join(kept, "/")
}
