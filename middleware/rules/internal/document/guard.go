package document

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/token"
)

// Two passes stand before the parser: one over the lines, before they are scanned, and one
// over the tokens, before they are parsed. They refuse what is not supported anyway, and
// what would take the scanner or the parser minutes, or all of the stack.

// checkLines refuses what takes the scanner the square of a line's length, of its tabs, or
// of the empty lines at a text's end.
func (r *yamlReader) checkLines() {
	empty := 0
	for i, line := range r.lines {
		tabs, blank := 0, true
		for _, c := range line {
			if c == '\t' {
				tabs++
			}
			blank = blank && (c == ' ' || c == '\t')
		}
		if empty++; !blank {
			empty = 0
		}
		at := Position{i + 1, 1}
		switch {
		case len(line) > maxLine:
			r.refuse(at, "the line has %d characters: want at most %d", len(line), maxLine)
		case tabs > maxTabs:
			r.refuse(at, "the line has %d tabs: want at most %d", tabs, maxTabs)
		case empty > maxEmptyLines:
			r.refuse(at, "more than %d empty lines in a row", maxEmptyLines)
		}
	}
}

// unsupported are the tokens of what no configuration needs.
var unsupported = map[token.Type]string{
	token.TagType:        "tags (!name) are not supported; text that begins with ! needs quotes",
	token.MappingKeyType: "keys after a ? are not supported; write key: value",
	token.MergeKeyType:   "merge keys (<<) are not supported; write the fields, or give the whole mapping an alias",
}

// A level is a collection that the tokens are in.
type level struct {
	flow    bool // in [] or {}
	mapping bool
	column  int // of its keys or dashes, if it is not flow
	keys    int
	colons  int // in the entry of a flow collection
	path    int // length of the path to the entry, which the parser keeps for every value
}

// A guard follows the tokens far enough to know what the parser will make of them.
type guard struct {
	*yamlReader
	levels []level
	empty  int // values that are not there
	paths  int
}

func (r *yamlReader) checkTokens(tokens token.Tokens) {
	g := guard{yamlReader: r, levels: []level{{}}}
	anchors := map[string]bool{}
	for i, t := range tokens {
		if r.refused {
			return
		}
		next := &token.Token{}
		if i+1 < len(tokens) {
			next = tokens[i+1]
		}
		switch message := unsupported[t.Type]; {
		case message != "":
			r.problems.add(r.position(t), nil, "%s", message)
		case t.Type == token.DirectiveType:
			r.refuse(r.position(t), "directives (%%NAME) are not supported; text that begins with %% needs quotes")
		case i > 0 && (t.Type == token.DocumentHeaderType || tokens[i-1].Type == token.DocumentEndType):
			r.refuse(r.position(t), "another document begins here: want one")
		case t.Type == token.AnchorType && i > 1 && tokens[i-2].Type == token.AnchorType:
			r.refuse(r.position(t), "a value can have one anchor")
		case t.Type == token.StringType && strings.Contains(t.Value, ": ") && (i == 0 || !isBlockHeader(tokens[i-1])):
			r.refuse(r.position(t), "syntax: text with a colon and a space in it needs quotes")
		case t.Type == token.SequenceEntryType && last(g.levels).flow:
			r.refuse(r.position(t), "syntax: no list with dashes within [] or {}")
		case t.Type == token.AnchorType:
			anchors[next.Value] = true
		case t.Type == token.AliasType && !anchors[next.Value]:
			r.refuse(r.position(t), "unknown alias: no anchor of its name stands before it; text that begins with * needs quotes")
		default:
			g.follow(tokens, i)
			g.check(t)
		}
	}
	r.refused = len(r.problems) > 0
}

// check refuses what is too much, at t.
func (g *guard) check(t *token.Token) {
	top := last(g.levels)
	g.paths += top.path
	message := ""
	switch {
	case len(g.levels)-1 > maxDepth:
		message = tooDeep()
	case top.colons > 1:
		message = "syntax: a second : in one entry"
	case top.mapping && top.keys > maxKeys:
		message = fmt.Sprintf("more than %d keys in one mapping", maxKeys)
	case g.empty > maxEmpty:
		message = fmt.Sprintf("more than %d keys and elements without a value", maxEmpty)
	case g.paths > maxPaths:
		message = "long keys have too much below them"
	}
	if message != "" {
		g.refuse(g.position(t), "%s", message)
	}
}

// follow enters and leaves levels at tokens[i].
func (g *guard) follow(tokens token.Tokens, i int) {
	t, top := tokens[i], &g.levels[len(g.levels)-1]
	switch t.Type {
	case token.MappingStartType, token.SequenceStartType:
		g.levels = append(g.levels, level{flow: true, mapping: t.Type == token.MappingStartType, path: top.path})
	case token.MappingEndType, token.SequenceEndType:
		g.endEntry(top)
		if top.flow {
			g.levels = g.levels[:len(g.levels)-1]
		}
	case token.CollectEntryType:
		g.endEntry(top)
		top.colons = 0
	case token.MappingValueType:
		if i == 0 {
			return
		}
		key := tokens[i-1]
		if top.flow {
			top.colons++
			g.key(top, len(key.Value))
			if i+1 < len(tokens) && closes(tokens[i+1]) {
				g.empty++
			}
			return
		}
		g.key(g.block(key.Position.Column, true), len(key.Value))
		g.countEmpty(tokens, i, key.Position.Column)
	case token.SequenceEntryType:
		if !top.flow {
			g.key(g.block(t.Position.Column, false), len("[000000]"))
			g.countEmpty(tokens, i, t.Position.Column)
		}
	}
}

// block enters the collection whose keys or dashes are in column, and leaves those that
// are further in. A list may stand in the column of the key it belongs to.
func (g *guard) block(column int, mapping bool) *level {
	top := last(g.levels)
	for !top.flow && len(g.levels) > 1 && (top.column > column || top.column == column && mapping && !top.mapping) {
		g.levels = g.levels[:len(g.levels)-1]
		top = last(g.levels)
	}
	if top.flow || len(g.levels) == 1 || top.column < column || top.mapping != mapping {
		g.levels = append(g.levels, level{column: column, mapping: mapping, path: top.path})
	}
	return &g.levels[len(g.levels)-1]
}

// key notes another entry of l, whose key has size bytes.
func (g *guard) key(l *level, size int) {
	parent := 0
	if n := len(g.levels); n > 1 {
		parent = g.levels[n-2].path
	}
	l.keys++
	l.path = parent + 1 + size
}

// endEntry counts a value that is left out: the second in {a: 1, b}.
func (g *guard) endEntry(l *level) {
	if l.flow && l.mapping && l.colons == 0 {
		g.empty++
	}
}

// countEmpty counts a value that is left out after the : or - that is tokens[i].
func (g *guard) countEmpty(tokens token.Tokens, i, column int) {
	t := tokens[i]
	if i+1 < len(tokens) {
		next := tokens[i+1]
		ofList := t.Type == token.MappingValueType && next.Type == token.SequenceEntryType && next.Position.Column == column
		if next.Position.Line == t.Position.Line || next.Position.Column > column || ofList {
			return
		}
	}
	g.empty++
}

// isBlockHeader reports whether t is | or >, after which all is text.
func isBlockHeader(t *token.Token) bool {
	return t.Type == token.LiteralType || t.Type == token.FoldedType
}

func closes(t *token.Token) bool {
	return t.Type == token.CollectEntryType || t.Type == token.MappingEndType || t.Type == token.SequenceEndType
}
