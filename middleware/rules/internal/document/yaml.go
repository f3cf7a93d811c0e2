package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// More than this is refused. It is far above what people write.
const (
	MaxBytes  = 1 << 20
	maxDepth  = 32      // collections in each other, aliases followed
	maxValues = 200_000 // aliases followed
)

// read is the root of a document, or nil if something is wrong that makes it none.
func read(data []byte, report Report) *yaml.Node {
	r := &reader{data: bytes.TrimPrefix(data, []byte("\ufeff")), sizes: map[*yaml.Node]size{}}
	r.report = func(at Position, format string, args ...any) {
		r.wrong = true
		report(at, nil, format, args...)
	}
	if root := r.read(); !r.wrong {
		return root
	}
	return nil
}

// A reader has the parser read a document, and refuses what is too much and what is not supported.
// The parser's time and memory grow with the length and no faster, so bounds are checked on what it
// made.
type reader struct {
	data    []byte
	report  func(at Position, format string, args ...any)
	wrong   bool // something was reported
	refused bool // reading on makes no sense
	sizes   map[*yaml.Node]size
}

// A size is how many values there are in one, itself included, and how deep.
type size struct{ values, depth int }

func (r *reader) refuse(at Position, format string, args ...any) {
	if !r.refused {
		r.report(at, format, args...)
	}
	r.refused = true
}

func (r *reader) read() (root *yaml.Node) {
	if len(r.data) > MaxBytes {
		r.refuse(Position{1, 1}, "the document is %d bytes long: want at most %d", len(r.data), MaxBytes)
		return nil
	}
	if i := bytes.IndexFunc(r.data, isNoText); i >= 0 {
		if c, size := utf8.DecodeRune(r.data[i:]); size > 1 || c != utf8.RuneError {
			r.refuse(endOf(r.data[:i]), "the control character %U is not allowed", c)
		} else {
			r.refuse(endOf(r.data[:i]), "the byte %#x is not UTF-8", r.data[i])
		}
		return nil
	}
	defer func() { // the parser may panic
		if p := recover(); p != nil {
			r.refuse(Position{1, 1}, "the YAML parser can't read this document, and can't say where: %s", fault(p))
		}
	}()
	var first, second yaml.Node
	loader, err := yaml.NewLoader(bytes.NewReader(r.data))
	if err == nil {
		err = loader.Load(&first)
	}
	if err == io.EOF || err == nil && kindOf(first.Content[0]) == null {
		r.refuse(Position{1, 1}, "the document is empty")
	}
	if err == nil {
		root = first.Content[0]
		r.survey(root, 0)
		err = loader.Load(&second)
	}
	switch {
	case err == nil:
		r.refuse(positionOf(&second), "another document begins here: want one")
	case err != io.EOF:
		r.fail(err)
	}
	return root
}

// isNoText is of control characters, what only some parsers take for the end of a line, and
// bytes that are not UTF-8.
func isNoText(r rune) bool {
	return r < ' ' && !strings.ContainsRune("\n\r\t", r) || r >= 0x7f && r < 0xa0 || strings.ContainsRune("\u2028\u2029\ufeff\ufffe\uffff", r) || r == utf8.RuneError
}

// fault is what the parser panicked with, if that can't be of the document's text.
func fault(p any) string {
	if err, ok := p.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("%T", p)
}

const (
	unknownAlias = "unknown alias: no anchor of its name stands before it; text that begins with * needs quotes"
	noTags       = "tags (!name) are not supported; text that begins with ! needs quotes"
)

// fail notes an error of the parser.
func (r *reader) fail(err error) {
	var failed *yaml.LoadError
	if !errors.As(err, &failed) {
		r.refuse(Position{1, 1}, "syntax: the YAML parser can't read this")
		return
	}
	end := endOf(r.data)
	at, began := Position{failed.Mark.Line, failed.Mark.Column}, Position{failed.ContextMark.Line, failed.ContextMark.Column}
	message := "syntax: " + failed.Message
	switch {
	case failed.Stage == yaml.ComposerStage: // its message quotes the document
		message = unknownAlias
	case failed.ContextMsg == "while scanning an alias":
		at, message = began, unknownAlias
	case strings.HasSuffix(failed.ContextMsg, " a tag"), strings.Contains(failed.Message, "tag handle"): // as above
		message = noTags
	case failed.ContextMsg == "while scanning a directive", strings.Contains(failed.Message, "YAML document"):
		at, message = Position{at.Line, 1}, "directives (%NAME) are not supported; text that begins with % needs quotes"
	case failed.ContextMsg == "while scanning for the next token" && r.isTab(at):
		message = "syntax: lines are indented with spaces, not with tabs"
	case failed.ContextMsg != "":
		if message += ", " + failed.ContextMsg; began.Line > 0 {
			at = began
		}
	}
	if at.Line < 1 || at.compare(end) > 0 { // the parser adds a line end
		at = end
	}
	r.refuse(at, "%s", message)
}

func positionOf(n *yaml.Node) Position { return Position{n.Line, n.Column} }

// linesOf are the lines of a text, however they end, and endOf is behind all of it.
func linesOf(data []byte) []string {
	return strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data)), "\n")
}

func endOf(data []byte) Position {
	lines := linesOf(data)
	return Position{len(lines), utf8.RuneCountInString(lines[len(lines)-1]) + 1}
}

func (r *reader) isTab(at Position) bool {
	lines := linesOf(r.data)
	if at.Line < 1 || at.Line > len(lines) {
		return false
	}
	line := []rune(lines[at.Line-1])
	return at.Column >= 1 && at.Column <= len(line) && line[at.Column-1] == '\t'
}

// survey checks a value that is in depth collections, and all that is in it.
func (r *reader) survey(n *yaml.Node, depth int) (of size) {
	at := positionOf(n)
	of.values = 1
	if n.Kind == yaml.AliasNode {
		known, complete := r.sizes[n.Alias]
		if !complete {
			r.refuse(at, "the alias is within its own anchor")
		}
		of, depth = known, depth+known.depth
	}
	if depth > maxDepth {
		r.refuse(at, "nested more than %d deep", maxDepth)
	}
	if n.Style&yaml.TaggedStyle != 0 {
		r.report(at, noTags)
	}
	for i := 0; i < len(n.Content) && !r.refused; i++ {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			r.key(n.Content[i])
			continue
		}
		inner := r.survey(n.Content[i], depth+1)
		of.values, of.depth = of.values+inner.values, max(of.depth, inner.depth+1)
		if of.values > maxValues {
			r.refuse(positionOf(n.Content[i]), "more than %d values, counting those of an alias wherever it stands", maxValues)
		}
	}
	if n.Anchor != "" {
		r.sizes[n] = of
	}
	return of
}

func (r *reader) key(key *yaml.Node) {
	at := positionOf(key)
	switch {
	case key.Kind != yaml.ScalarNode:
		r.report(at, "the key is a list, a mapping or an alias: want text")
	case key.Style&yaml.TaggedStyle != 0:
		r.report(at, noTags)
	case key.ShortTag() == "!!merge":
		r.report(at, "merge keys (<<) are not supported; write the fields, or give the whole mapping an alias")
	case kindOf(key) != text:
		r.report(at, "the key is not text: put it in quotes")
	}
}

type kind string

const (
	text    kind = "text"
	number  kind = "a number"
	boolean kind = "true or false"
	null    kind = "null"
	list    kind = "a list"
	mapping kind = "a mapping"
)

// kindOf is what a value is, which is no alias.
func kindOf(n *yaml.Node) kind {
	switch n.Kind {
	case yaml.MappingNode:
		return mapping
	case yaml.SequenceNode:
		return list
	}
	switch n.ShortTag() {
	case "!!null":
		return null
	case "!!bool":
		return boolean
	case "!!int", "!!float":
		return number
	}
	return text // of which some looks like a date
}

func (k kind) scalar() bool { return k == text || k == number || k == boolean }
