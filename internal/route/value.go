package route

import (
	"net/url"
	"strings"
)

// Value returns the value of the parameter name in path, by the pattern that a router chose for it: the id of
// "/users/{id}" or "/users/:id", for example, and everything that follows for a "*" at the end, whose name is
// "*". An escaped path is matched as it is, and its values are unescaped, as by routers that allow %2F in a
// segment. Value may match paths that a router would give to another route: it does not know the other routes.
func Value(pattern, path string, escaped bool, name string) (value string, ok bool) {
	rest, braces := pathOf(pattern)
	for rest != "" {
		var p piece
		p, rest = cutPiece(rest, braces)
		taken, behind, fits := p.take(path)
		if !fits {
			return "", false
		}
		if p.name == name && name != "" {
			value, ok = taken, true
		}
		path = behind
	}
	// A pattern that ends in a slash matches everything below.
	if !ok || path != "" && !strings.HasSuffix(pattern, "/") {
		return "", false
	}
	if escaped {
		value = Unescape(value)
	}
	return value, true
}

// Parameters returns the names of a pattern's parameters.
func Parameters(pattern string) (names []string) {
	rest, braces := pathOf(pattern)
	for rest != "" {
		var p piece
		p, rest = cutPiece(rest, braces)
		if p.name != "" {
			names = append(names, p.name)
		}
	}
	return names
}

// pathOf returns a pattern's path, and whether its router writes parameters in braces: a colon is then a letter.
func pathOf(pattern string) (path string, braces bool) {
	slash := strings.IndexByte(pattern, '/')
	if slash < 0 {
		return "", false
	}
	path = pattern[slash:]
	return path, strings.IndexByte(path, '{') >= 0
}

// Unescape undoes percent-encoding. It returns a malformed text unchanged.
func Unescape(s string) string {
	if plain, err := url.PathUnescape(s); err == nil {
		return plain
	}
	return s
}

// A piece is a literal text of a pattern, or a parameter.
type piece struct {
	literal string
	name    string
	ends    byte // the character behind a parameter, or a slash
	rest    bool // it matches everything that follows
	slashes bool // it may match slashes, as it has an expression
	end     bool // {$}: nothing follows
}

// cutPiece takes the first piece off a pattern's path, which is not empty.
func cutPiece(path string, braces bool) (p piece, rest string) {
	switch c := path[0]; {
	case c == '{' && closing(path) > 0:
		end := closing(path)
		inner, rest := path[1:end], path[end+1:]
		if inner == "$" {
			return piece{end: true}, rest
		}
		name, _, expression := strings.Cut(inner, ":")
		name, many := strings.CutSuffix(name, "...")
		return piece{name: name, ends: first(rest), rest: many, slashes: expression}, rest
	case c == ':' && !braces:
		end := strings.IndexByte(path, '/')
		if end < 0 {
			end = len(path)
		}
		// In echo, the last parameter of a pattern matches slashes too.
		return piece{name: path[1:end], ends: '/', rest: end == len(path)}, path[end:]
	case c == '*' && (!braces || len(path) == 1):
		name := path[1:]
		if name == "" {
			name = "*"
		}
		return piece{name: name, rest: true}, ""
	}
	end := 1
	for end < len(path) && (!begins(path[end:], braces) || path[end] == ':' && path[end-1] == '\\') {
		end++
	}
	literal := path[:end]
	if !braces {
		literal = strings.ReplaceAll(literal, `\:`, ":") // gin and echo escape a colon so
	}
	return piece{literal: literal}, path[end:]
}

func first(s string) byte {
	if s == "" {
		return '/'
	}
	return s[0]
}

// begins reports whether a parameter may begin at s, behind a literal text.
func begins(s string, braces bool) bool {
	switch s[0] {
	case '{':
		return true
	case '*':
		return !braces || len(s) == 1
	case ':':
		return !braces
	}
	return false
}

// take returns the part of a path that a piece matches, and the rest.
func (p piece) take(path string) (taken, rest string, ok bool) {
	switch {
	case p.end:
		return "", path, path == ""
	case p.literal != "":
		rest, ok = cutLiteral(path, p.literal)
		return "", rest, ok
	case p.rest:
		return path, "", true
	}
	end := strings.IndexByte(path, p.ends)
	if end < 0 && p.ends != '/' {
		return "", "", false
	}
	if end < 0 {
		end = len(path)
	}
	if !p.slashes && strings.IndexByte(path[:end], '/') >= 0 {
		return "", "", false
	}
	return path[:end], path[end:], true
}

// cutLiteral cuts a literal text off a path. Letters may be escaped in both. An escaped slash is no slash.
func cutLiteral(path, literal string) (rest string, ok bool) {
	if rest, ok := strings.CutPrefix(path, literal); ok {
		return rest, true
	}
	for literal != "" {
		if path == "" {
			return "", false
		}
		want, wantLength := letter(literal)
		got, gotLength := letter(path)
		if want != got || want == '/' && wantLength != gotLength {
			return "", false
		}
		literal, path = literal[wantLength:], path[gotLength:]
	}
	return path, true
}

// letter returns the first byte of s, which is not empty, and the length of its spelling.
func letter(s string) (byte, int) {
	if s[0] == '%' && len(s) >= 3 {
		if high, low := hex(s[1]), hex(s[2]); high < 16 && low < 16 {
			return high<<4 | low, 3
		}
	}
	return s[0], 1
}

func hex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 16
}
