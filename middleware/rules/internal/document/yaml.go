package document

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/scanner"
	"github.com/goccy/go-yaml/token"
)

// readYAML builds the nodes of data.
func readYAML(data []byte) (*node, problems) {
	// The scanner takes a carriage return for text, in blocks of it.
	source := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data))
	r := &yamlReader{anchors: map[string]*node{}}
	for line := range strings.SplitSeq(source, "\n") {
		r.lines = append(r.lines, []rune(line))
	}
	if r.checkLines(); r.refused {
		return nil, r.problems
	}
	root := r.parse(source)
	if r.refused {
		root = nil
	}
	return root, r.problems
}

type yamlReader struct {
	builder
	lines   [][]rune         // of the document, for positions to be in it
	anchors map[string]*node // by name; nil: its value is not complete
}

// parse is where the parser runs. It may panic on what it never met, in which case the
// document is at fault too.
func (r *yamlReader) parse(source string) (root *node) {
	defer func() {
		if p := recover(); p != nil {
			r.refuse(Position{1, 1}, "the YAML parser can't read this document, and can't say where: %s", fault(p))
		}
	}()
	var s scanner.Scanner
	s.Init(source)
	scanned, _ := s.Scan() // an error is a token too
	var tokens token.Tokens
	for _, t := range scanned {
		if t.Type != token.CommentType {
			tokens.Add(t)
		}
	}
	if i := slices.IndexFunc(tokens, func(t *token.Token) bool { return t.Type == token.InvalidType }); i >= 0 {
		r.refuse(r.position(tokens[i]), "%s", syntax(tokens[i].Error))
		return nil
	}
	if r.checkTokens(tokens); r.refused {
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.refuse(r.failure(err))
		return nil
	}
	for _, document := range file.Docs {
		if document.Body != nil {
			return r.node(document.Body)
		}
	}
	return &node{Position: Position{1, 1}, kind: null}
}

// failure is a parser's error, and where it is.
func (r *yamlReader) failure(err error) (at Position, format, message string) {
	var syntaxError interface {
		GetMessage() string
		GetToken() *token.Token
	}
	if !errors.As(err, &syntaxError) {
		return Position{1, 1}, "%s", syntax("")
	}
	return r.position(syntaxError.GetToken()), "%s", syntax(syntaxError.GetMessage())
}

// syntax is a message of the parser, in one line. One that quotes the document is not told.
func syntax(message string) string {
	if message == "" || strings.Contains(message, `"`) {
		return "syntax: the YAML parser can't read this"
	}
	message = strings.ReplaceAll(message, "\t", `\t`)
	return "syntax: " + strings.Join(strings.Fields(message), " ")
}

// fault is what the parser panicked with, if that can't be of the document's text.
func fault(p any) string {
	if err, ok := p.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("%T", p)
}

// node builds the node of n. The recursion is bounded: checkTokens counted the depth.
func (r *yamlReader) node(n ast.Node) *node {
	made := &node{Position: r.position(n.GetToken()), values: 1}
	switch n := n.(type) {
	case *ast.MappingNode:
		made.kind = mapping
		if len(n.Values) > 0 && !n.IsFlowStyle {
			made.Position = r.position(n.Values[0].Key.GetToken())
		}
		for _, value := range n.Values {
			r.entry(made, value)
		}
	case *ast.MappingValueNode:
		made.kind, made.Position = mapping, r.position(n.Key.GetToken())
		r.entry(made, n)
	case *ast.SequenceNode:
		made.kind = list
		for _, value := range n.Values {
			if r.refused {
				break
			}
			r.add(made, entry{value: r.node(value)})
		}
	case *ast.AnchorNode:
		name := n.Name.GetToken().Value
		r.anchors[name] = nil
		made = r.node(n.Value)
		r.anchors[name] = made
	case *ast.AliasNode:
		return r.alias(made, n.Value.GetToken().Value)
	case *ast.LiteralNode:
		made.kind, made.text = text, n.Value.Value
	case *ast.StringNode:
		made.kind, made.text = text, n.Value
	case *ast.NullNode:
		made.kind = null
	case *ast.BoolNode:
		made.kind, made.text = boolean, n.Token.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		made.kind, made.text = number, n.GetToken().Value
	default:
		r.refuse(made.Position, "%s is not supported here", strings.ToLower(n.Type().String()))
	}
	return made
}

func (r *yamlReader) entry(parent *node, n *ast.MappingValueNode) {
	if r.refused {
		return
	}
	t := n.Key.GetToken()
	e := entry{key: t.Value, at: r.position(t)}
	if key, ok := n.Key.(*ast.StringNode); ok {
		e.key = key.Value
	} else {
		r.problems.add(e.at, nil, "the key is not text: put it in quotes")
	}
	e.value = r.node(n.Value)
	r.add(parent, e)
}

// alias is the value of an anchor, once more. What is in it stays where the anchor is.
// That there is one, checkTokens has seen.
func (r *yamlReader) alias(at *node, name string) *node {
	anchored := r.anchors[name]
	if anchored == nil {
		r.refuse(at.Position, "the alias is within its own anchor")
		return at
	}
	again := *anchored
	again.Position = at.Position
	return &again
}

// position is where t begins. The scanner's columns fall short behind tabs.
func (r *yamlReader) position(t *token.Token) Position {
	if t == nil || t.Position == nil {
		return Position{1, 1}
	}
	line := min(max(t.Position.Line, 1), len(r.lines))
	chars := r.lines[line-1]
	column := min(max(t.Position.Column, 1), len(chars)+1)
	first, _, _ := strings.Cut(strings.TrimSpace(t.Origin), "\n")
	origin := []rune(strings.TrimSpace(first))
	for at := column - 1; at+len(origin) <= len(chars); at++ {
		if slices.Equal(chars[at:at+len(origin)], origin) {
			return Position{line, at + 1}
		}
	}
	return Position{line, column}
}
