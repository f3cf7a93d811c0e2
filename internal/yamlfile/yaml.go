package yamlfile

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

// readYAML returns the root of a document, or nil after a problem.
func readYAML(data []byte, report Report) *yaml.Node {
	r := &yamlReader{report: report, data: bytes.TrimPrefix(data, []byte("\ufeff")), extents: map[*yaml.Node]extent{}}
	if root := r.read(); !r.failed {
		return root
	}
	return nil
}

// A yamlReader runs the parser, and refuses documents that are too large or use unsupported syntax. The
// parser's time and memory are linear in the length, so the bounds are checked on its result.
type yamlReader struct {
	report  Report
	data    []byte
	failed  bool // a problem was reported
	refused bool // the rest is not read
	extents map[*yaml.Node]extent
}

// An extent is the number of values in a value, itself included, and their depth.
type extent struct{ values, depth int }

func (r *yamlReader) add(at Position, format string, args ...any) {
	r.failed = true
	r.report(at, nil, fmt.Sprintf(format, args...))
}

func (r *yamlReader) refuse(at Position, format string, args ...any) {
	if !r.refused {
		r.add(at, format, args...)
	}
	r.refused = true
}

func (r *yamlReader) read() (root *yaml.Node) {
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
	if err == io.EOF || err == nil && kindOf(first.Content[0]) == nullKind {
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

// isNoText reports control characters, line ends that only some parsers know, and bytes that are not
// UTF-8.
func isNoText(r rune) bool {
	return r < ' ' && !strings.ContainsRune("\n\r\t", r) || r >= 0x7f && r < 0xa0 || strings.ContainsRune("\u2028\u2029\ufeff\ufffe\uffff", r) || r == utf8.RuneError
}

// fault describes a panic of the parser without quoting the document.
func fault(p any) string {
	if err, ok := p.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("%T", p)
}

const (
	unknownAlias = "unknown alias: no earlier anchor has this name; text that begins with * needs quotes"
	noTags       = "tags (!name) are not supported; text that begins with ! needs quotes"
)

// fail notes an error of the parser.
func (r *yamlReader) fail(err error) {
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
		isBlock := strings.Contains(failed.ContextMsg, " a block ") && failed.Stage == yaml.ParserStage // begins far above
		if message += ", " + failed.ContextMsg; began.Line > 0 && !isBlock {
			at = began
		}
	}
	if at.Line < 1 || at.Compare(end) > 0 { // the parser adds a line end
		at = end
	}
	r.refuse(at, "%s", message)
}

func positionOf(n *yaml.Node) Position { return Position{n.Line, n.Column} }

// linesOf splits a text at line ends of all kinds; endOf is the position behind its last character.
func linesOf(data []byte) []string {
	return strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data)), "\n")
}

func endOf(data []byte) Position {
	lines := linesOf(data)
	return Position{len(lines), utf8.RuneCountInString(lines[len(lines)-1]) + 1}
}

func (r *yamlReader) isTab(at Position) bool {
	lines := linesOf(r.data)
	if at.Line < 1 || at.Line > len(lines) {
		return false
	}
	line := []rune(lines[at.Line-1])
	return at.Column >= 1 && at.Column <= len(line) && line[at.Column-1] == '\t'
}

// survey checks a value at this depth, and everything in it.
func (r *yamlReader) survey(n *yaml.Node, depth int) (of extent) {
	at := positionOf(n)
	of.values = 1
	if n.Kind == yaml.AliasNode {
		known, complete := r.extents[n.Alias]
		if !complete {
			r.refuse(at, "the alias is within its own anchor")
		}
		of, depth = known, depth+known.depth
	}
	if depth > maxDepth {
		r.refuse(at, "nested more than %d deep", maxDepth)
	}
	if n.Style&yaml.TaggedStyle != 0 {
		r.add(at, "%s", noTags)
	}
	for i := 0; i < len(n.Content) && !r.refused; i++ {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			r.key(n.Content[i])
			continue
		}
		inner := r.survey(n.Content[i], depth+1)
		of.values, of.depth = of.values+inner.values, max(of.depth, inner.depth+1)
		if of.values > maxValues {
			r.refuse(positionOf(n.Content[i]), "more than %d values; those of an alias count at each use", maxValues)
		}
	}
	if n.Anchor != "" {
		r.extents[n] = of
	}
	return of
}

func (r *yamlReader) key(key *yaml.Node) {
	at := positionOf(key)
	switch {
	case key.Kind != yaml.ScalarNode:
		r.add(at, "the key is a list, a mapping or an alias: want text")
	case key.Style&yaml.TaggedStyle != 0:
		r.add(at, "%s", noTags)
	case key.ShortTag() == "!!merge":
		r.add(at, "merge keys (<<) are not supported; write the fields, or give the whole mapping an alias")
	case kindOf(key) != textKind:
		r.add(at, "the key is not text: put it in quotes")
	}
}

type kind string

const (
	textKind    kind = "text"
	numberKind  kind = "a number"
	booleanKind kind = "true or false"
	nullKind    kind = "null"
	listKind    kind = "a list"
	mappingKind kind = "a mapping"
)

// kindOf returns the kind of a value that is no alias.
func kindOf(n *yaml.Node) kind {
	switch n.Kind {
	case yaml.MappingNode:
		return mappingKind
	case yaml.SequenceNode:
		return listKind
	}
	switch n.ShortTag() {
	case "!!null":
		return nullKind
	case "!!bool":
		return booleanKind
	case "!!int", "!!float":
		return numberKind
	}
	return textKind // also what looks like a date
}

func (k kind) scalar() bool { return k == textKind || k == numberKind || k == booleanKind }
