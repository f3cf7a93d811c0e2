package yamlfile

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// A Document says where each value of a file is written.
type Document struct {
	Wrapped bool // the values stand below the key of the Wrapper

	root *location // nil: the file could not be read
}

// A location is where a value is written.
type location struct {
	key, value Position // an element of a list has no key: key is the element's position
	inside     map[string]*location
}

// A position counts lines, and characters within a line, from 1. 0: unknown.
type Position struct{ Line, Column int }

func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Line, q.Line), cmp.Compare(p.Column, q.Column))
}

// Has reports whether the document has a value at path.
func (d *Document) Has(path ...string) bool {
	_, all := d.find(path)
	return all
}

// Position is where the value at path begins, or its nearest ancestor that exists.
func (d *Document) Position(path ...string) Position {
	at, _ := d.find(path)
	return at.value
}

// Key is where the key of the value at path begins.
func (d *Document) Key(path ...string) Position {
	at, _ := d.find(path)
	return at.key
}

// find walks along path as far as it exists, and reports whether all of it does.
func (d *Document) find(path []string) (at location, all bool) {
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

// Element is where the i-th element of a list is written. Without a list around it, a single
// Element is written where the list would be.
func (d *Document) Element(list []string, i int) []string {
	if at := Sub(list, strconv.Itoa(i)); d.Has(at...) {
		return at
	}
	return list
}

// Sub is path with more at its end. It never shares memory with other paths that begin with path.
func Sub(path []string, more ...string) []string {
	return append(path[:len(path):len(path)], more...)
}

// Join writes a path with dots, and quotes what would be misread.
func Join(path []string) string {
	parts := make([]string, len(path))
	for i, name := range path {
		parts[i] = name
		if name == "" || len(name) > mostQuoted || strings.ContainsFunc(name, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-*[]", r)
		}) {
			parts[i] = Quote(name)
		}
	}
	return strings.Join(parts, ".")
}

// mostQuoted is how many characters of a text a message quotes.
const mostQuoted = 60

// quote quotes a document's text for a message: short, and in one line.
func Quote(s string) string {
	if runes := []rune(s); len(runes) > mostQuoted {
		s = string(runes[:mostQuoted]) + "…"
	}
	return strconv.Quote(s)
}

var integer = regexp.MustCompile(`^-?(0|[1-9][0-9]*(_[0-9]+)*)$`)

// ParseInteger reads decimal digits, and _ between them. Everything else can be read in two ways:
// 010 is 8 or 10, and 1e3 of a limit is rather a mistake.
func ParseInteger(s string) (int64, error) {
	if !integer.MatchString(s) {
		return 0, errors.New("want a whole number, written in digits: 1000, or 1_000")
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
	if err != nil {
		return 0, errors.New("the number is out of range")
	}
	return n, nil
}

var sizeUnits = map[string]int64{
	"": 1, "B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
}

// ParseSize reads a number of bytes, which may have a unit.
func ParseSize(s string) (int64, error) {
	digits := strings.TrimRight(s, "kKMGiB")
	unit, known := sizeUnits[s[len(digits):]]
	n, err := ParseInteger(digits)
	if !known || err != nil || n < 1 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%.64q is not a size such as 1MiB, 500KB or 4096", s)
	}
	return n * unit, nil
}
