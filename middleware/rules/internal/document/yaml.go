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

// readYAML builds the nodes of data. The parser's time and memory grow with its length and
// no faster, so the limits are checked on what it made.
func readYAML(data []byte) (*node, problems) {
	r := &yamlReader{data: data, anchored: map[*yaml.Node]*node{}}
	root := r.parse()
	if len(r.problems) > 0 {
		root = nil
	}
	return root, r.problems
}

type yamlReader struct {
	builder
	data     []byte
	anchored map[*yaml.Node]*node // what aliases lead to; nil: it is not complete
}

// parse runs the parser, and refuses the document if that panics.
func (r *yamlReader) parse() (root *node) {
	defer func() {
		if p := recover(); p != nil {
			r.refuse(Position{1, 1}, "the YAML parser can't read this document, and can't say where: %s", fault(p))
		}
	}()
	var first, second yaml.Node
	loader, err := yaml.NewLoader(bytes.NewReader(r.data))
	if err == nil {
		err = loader.Load(&first)
	}
	if err == io.EOF {
		return &node{Position: Position{1, 1}, kind: null}
	}
	if err == nil {
		root = r.node(first.Content[0], 0)
		err = loader.Load(&second)
	}
	switch {
	case err == nil:
		r.refuse(Position{second.Line, second.Column}, "another document begins here: want one")
	case err != io.EOF:
		r.fail(err)
	}
	return root
}

// fail notes an error of the parser.
func (r *yamlReader) fail(err error) {
	var failed *yaml.LoadError
	if !errors.As(err, &failed) {
		r.refuse(Position{1, 1}, "syntax: the YAML parser can't read this")
		return
	}
	lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(r.data)), "\n")
	at, began := position(failed.Mark), position(failed.ContextMark)
	rest := from(lines, at)
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
	case strings.HasPrefix(rest, "\t") && failed.ContextMsg == "while scanning for the next token":
		message = "syntax: lines are indented with spaces, not with tabs"
	case failed.ContextMsg != "":
		message += ", " + failed.ContextMsg
		if strings.TrimSpace(rest) == "" && began.Line > 0 {
			at = began // of what the document ends in
		}
	}
	if at.Line < 1 || at.Line > len(lines) { // the parser adds a line end
		at = Position{len(lines), utf8.RuneCountInString(last(lines)) + 1}
	}
	r.refuse(at, "%s", message)
}

func position(m yaml.Mark) Position { return Position{m.Line, m.Column} }

// from is the text from p on.
func from(lines []string, p Position) string {
	if p.Line < 1 || p.Line > len(lines) {
		return ""
	}
	line := []rune(lines[p.Line-1])
	return string(line[min(max(p.Column, 1)-1, len(line)):]) + strings.Join(lines[p.Line:], "\n")
}

const (
	unknownAlias = "unknown alias: no anchor of its name stands before it; text that begins with * needs quotes"
	noTags       = "tags (!name) are not supported; text that begins with ! needs quotes"
)

// fault is what the parser panicked with, if that can't be of the document's text.
func fault(p any) string {
	if err, ok := p.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("%T", p)
}

// node builds the node of n, which is in depth collections.
func (r *yamlReader) node(n *yaml.Node, depth int) *node {
	made := &node{Position: Position{n.Line, n.Column}, values: 1}
	if depth > maxDepth {
		r.refuse(made.Position, "%s", tooDeep())
		return made
	}
	if n.Kind == yaml.AliasNode {
		return r.alias(made, n.Alias)
	}
	if n.Style&yaml.TaggedStyle != 0 {
		r.problems.add(made.Position, nil, noTags)
	}
	if n.Anchor != "" {
		r.anchored[n] = nil
		defer func() { r.anchored[n] = made }()
	}
	switch n.Kind {
	case yaml.MappingNode:
		made.kind = mapping
		for i := 0; i+1 < len(n.Content) && !r.refused; i += 2 {
			r.add(made, r.entry(n.Content[i], n.Content[i+1], depth))
		}
	case yaml.SequenceNode:
		made.kind = list
		for i := 0; i < len(n.Content) && !r.refused; i++ {
			r.add(made, entry{value: r.node(n.Content[i], depth+1)})
		}
	default:
		if made.kind = scalarKind(n); made.kind != null {
			made.text = n.Value
		}
	}
	return made
}

func (r *yamlReader) entry(key, value *yaml.Node, depth int) entry {
	e := entry{key: key.Value, at: Position{key.Line, key.Column}}
	switch {
	case key.Kind != yaml.ScalarNode:
		r.problems.add(e.at, nil, "the key is a list, a mapping or an alias: want text")
	case key.Style&yaml.TaggedStyle != 0:
		r.problems.add(e.at, nil, noTags)
	case key.ShortTag() == "!!merge":
		r.problems.add(e.at, nil, "merge keys (<<) are not supported; write the fields, or give the whole mapping an alias")
	case scalarKind(key) != text:
		r.problems.add(e.at, nil, "the key is not text: put it in quotes")
	}
	e.value = r.node(value, depth+1)
	return e
}

func scalarKind(n *yaml.Node) kind {
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

// alias is the value of an anchor, once more. What is in it stays where the anchor is.
func (r *yamlReader) alias(at *node, to *yaml.Node) *node {
	anchored := r.anchored[to]
	if anchored == nil {
		r.refuse(at.Position, "the alias is within its own anchor")
		return at
	}
	again := *anchored
	again.Position = at.Position
	return &again
}
