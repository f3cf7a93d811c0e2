package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weirgo/weir/internal/yamlfile"
)

// A Problem is a mistake in a rules file, or a warning, and says what to write instead.
type Problem struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line"` // from 1, like Column
	Column  int    `json:"column"`
	Field   string `json:"field,omitempty"` // such as endpoints."POST /login".limit
	Message string `json:"message"`
}

// String is the problem in one line, as compilers write them: file:line:column: field: message.
func (p Problem) String() string {
	text := fmt.Sprintf("%d:%d: ", p.Line, p.Column)
	if p.File != "" {
		text = p.File + ":" + text
	}
	if p.Field != "" {
		text += p.Field + ": "
	}
	return text + p.Message
}

// Error is everything that is wrong with a rules file, in the file's order.
type Error struct{ Problems []Problem }

// Error returns a line for each problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// problems collects the mistakes in a document.
type problems struct {
	name    string             // of the file; empty: unknown
	written *yamlfile.Document // where
	list    []Problem
	fields  map[string]bool // the fields with a mistake, or with one inside
}

// at records a problem with the value at path, or with its absence.
func (p *problems) at(path []string, format string, args ...any) {
	p.report(p.written.Position(path...), path, fmt.Sprintf(format, args...))
}

// atKey records a problem with the key of that value.
func (p *problems) atKey(path []string, format string, args ...any) {
	p.report(p.written.Key(path...), path, fmt.Sprintf(format, args...))
}

// report is a yamlfile.Report.
func (p *problems) report(at yamlfile.Position, path []string, message string) {
	p.list = append(p.list, Problem{
		File: p.name, Line: at.Line, Column: at.Column, Field: yamlfile.Join(withoutKeys(path)), Message: message,
	})
	if p.fields == nil {
		p.fields = map[string]bool{}
	}
	for i := range path {
		p.fields[yamlfile.Join(path[:i+1])] = true
	}
}

// withoutKeys removes keys of requests from a path: they may be credentials.
func withoutKeys(path []string) []string {
	for i := 1; i+1 < len(path); i++ {
		if path[i] == "overrides" && path[i-1] != "tiers" && path[i-1] != "endpoints" {
			return slices.Delete(slices.Clone(path), i+1, i+2)
		}
	}
	return path
}

// noted reports whether a problem with the value at path, or inside it, was recorded.
func (p *problems) noted(path []string) bool { return p.fields[yamlfile.Join(path)] }

// mostProblems is how many problems an Error lists.
const mostProblems = 100

// err returns the problems in order, or nil.
func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	slices.SortStableFunc(p.list, comparePositions)
	list := p.list
	if len(list) > mostProblems {
		rest := list[mostProblems]
		rest.Field, rest.Message = "", fmt.Sprintf("and %d more problems from here on", len(list)-mostProblems)
		list = append(list[:mostProblems:mostProblems], rest)
	}
	return &Error{list}
}

func comparePositions(a, b Problem) int {
	return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line, a.Column-b.Column)
}
