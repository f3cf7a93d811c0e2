package rules

import (
	"cmp"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// A document says where each value of a file is written.
type document struct {
	wrapped bool // the rules stand below the key rate_limits

	root *location // nil: the file could not be read
}

// A location is where a value is written.
type location struct {
	key, value position // an element of a list has no key: key is the element's position
	inside     map[string]*location
}

// A position counts lines, and characters within a line, from 1. 0: unknown.
type position struct{ line, column int }

func (p position) compare(q position) int {
	return cmp.Or(cmp.Compare(p.line, q.line), cmp.Compare(p.column, q.column))
}

// has reports whether the document has a value at path.
func (d *document) has(path ...string) bool {
	_, all := d.find(path)
	return all
}

// position is where the value at path begins, or its nearest ancestor that exists.
func (d *document) position(path ...string) position {
	at, _ := d.find(path)
	return at.value
}

// key is where the key of the value at path begins.
func (d *document) key(path ...string) position {
	at, _ := d.find(path)
	return at.key
}

// find walks along path as far as it exists, and reports whether all of it does.
func (d *document) find(path []string) (at location, all bool) {
	if d.root == nil {
		return location{}, false
	}
	here := d.root
	for _, name := range path {
		next := here.inside[name]
		if next == nil {
			return *here, false
		}
		here = next
	}
	return *here, true
}

// element is where the i-th element of a list is written. Without a list around it, a single
// element is written where the list would be.
func (d *document) element(list []string, i int) []string {
	if at := sub(list, strconv.Itoa(i)); d.has(at...) {
		return at
	}
	return list
}

// sub is path with more at its end. It never shares memory with other paths that begin with path.
func sub(path []string, more ...string) []string {
	return append(path[:len(path):len(path)], more...)
}

// joinPath writes a path with dots, and quotes what would be misread.
func joinPath(path []string) string {
	parts := make([]string, len(path))
	for i, name := range path {
		parts[i] = name
		if name == "" || len(name) > mostQuoted || strings.ContainsFunc(name, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-*[]", r)
		}) {
			parts[i] = quote(name)
		}
	}
	return strings.Join(parts, ".")
}

// mostQuoted is how many characters of a text a message quotes.
const mostQuoted = 60

// quote quotes a document's text for a message: short, and in one line.
func quote(s string) string {
	if runes := []rune(s); len(runes) > mostQuoted {
		s = string(runes[:mostQuoted]) + "…"
	}
	return strconv.Quote(s)
}

var integer = regexp.MustCompile(`^-?(0|[1-9][0-9]*(_[0-9]+)*)$`)

// parseInteger reads decimal digits, and _ between them. Everything else can be read in two ways:
// 010 is 8 or 10, and 1e3 of a limit is rather a mistake.
func parseInteger(s string) (int64, error) {
	if !integer.MatchString(s) {
		return 0, errors.New("want a whole number, written in digits: 1000, or 1_000")
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
	if err != nil {
		return 0, errors.New("the number is out of range")
	}
	return n, nil
}
