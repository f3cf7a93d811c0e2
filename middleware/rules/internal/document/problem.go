package document

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A Position counts lines, and characters within a line, from 1. 0: unknown.
type Position struct{ Line, Column int }

func (p Position) compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Line, q.Line), cmp.Compare(p.Column, q.Column))
}

// A Problem is one thing that is wrong in a document.
type Problem struct {
	Position
	Path    []string // the elements of lists by their index
	Message string
}

// String is the problem in one line: 12:3: endpoints."POST /login".limit: has no value
func (p Problem) String() string {
	text := fmt.Sprintf("%d:%d: ", p.Line, p.Column)
	if len(p.Path) > 0 {
		text += JoinPath(p.Path) + ": "
	}
	return text + p.Message
}

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

// problems collects what is wrong.
type problems []Problem

func (p *problems) add(at Position, path []string, format string, args ...any) {
	*p = append(*p, Problem{at, slices.Clone(path), fmt.Sprintf(format, args...)})
}

// inOrder sorts by position.
func (p problems) inOrder() []Problem {
	slices.SortStableFunc(p, func(a, b Problem) int { return a.compare(b.Position) })
	return p
}
