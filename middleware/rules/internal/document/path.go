package document

import (
	"cmp"
	"strconv"
	"strings"
	"unicode"
)

// A Position counts lines, and characters within a line, from 1. 0: unknown.
type Position struct{ Line, Column int }

func (p Position) compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Line, q.Line), cmp.Compare(p.Column, q.Column))
}

// A Report is called for each mistake in a document. The path names elements of lists by their
// index, and is only good during the call.
type Report func(at Position, path []string, format string, args ...any)

// long is more of a text than a message quotes.
const long = 60

// JoinPath writes a path with dots, and quotes what would be misread.
func JoinPath(path []string) string {
	parts := make([]string, len(path))
	for i, name := range path {
		parts[i] = name
		if name == "" || len(name) > long || strings.ContainsFunc(name, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-*[]", r)
		}) {
			parts[i] = quote(name)
		}
	}
	return strings.Join(parts, ".")
}

// quote quotes what a document says, for a message: short, and in one line.
func quote(s string) string {
	if runes := []rune(s); len(runes) > long {
		s = string(runes[:long]) + "…"
	}
	return strconv.Quote(s)
}
