// Package invalid has errors about invalid configuration. Such an error keeps the place of the
// value and the names of Go fields apart from its text. So package rules can show the error at
// the value in a rules file, with the names that the file uses.
package invalid

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Name is the Go name of a field or an option.
type Name string

// A Place is where a configuration has an invalid value. Parts may be empty.
type Place struct {
	Rule  string // as in Rules[0] "api"
	Tier  string
	Field Name // with the fields that it is in: Escalate.Ban
}

// Of returns the place of a field in p.
func (p Place) Of(field Name) Place {
	if p.Field != "" && field != "" {
		field = "." + field
	}
	p.Field += field
	return p
}

// before returns reason with p in front of it: Rules[0] "api" tier "free": Escalate.Ban is 0s. A reason
// that is a sentence of its own begins with a colon.
func (p Place) before(reason string) string {
	text := p.Rule
	if p.Tier != "" {
		text += fmt.Sprintf(" tier %q", p.Tier)
	}
	switch {
	case p.Field != "" && text != "":
		text += ": " + string(p.Field)
	case p.Field != "":
		text = string(p.Field)
	case text != "":
		text += ":"
	default:
		return reason
	}
	if strings.HasPrefix(reason, ":") {
		return text + reason
	}
	return text + " " + reason
}

// An Error reports an invalid field or argument.
type Error struct {
	Place
	pkg, reason string
	args        []any
}

// New returns an error of the package pkg. It formats reason and args like fmt.Errorf.
// [In] can replace each [Name] in args, also within an error in args.
func New(pkg, reason string, args ...any) error { return At(pkg, Place{}, reason, args...) }

// Field returns the error of [New] about a field. Its text begins with the field.
func Field(pkg string, field Name, reason string, args ...any) error {
	return At(pkg, Place{Field: field}, reason, args...)
}

// At returns the error of [New] about a value at a place. Its text begins with the place.
func At(pkg string, at Place, reason string, args ...any) error { return &Error{at, pkg, reason, args} }

// Within returns err, or the errors that it joins, as errors of the package pkg about values at a place.
func Within(pkg string, at Place, err error) error {
	var all []error
	for _, err := range All(err) {
		if inner, ok := err.(*Error); ok {
			all = append(all, At(pkg, at.Of(inner.Field), inner.reason, inner.args...))
		} else if at.Field != "" {
			all = append(all, At(pkg, at, ": %w", err))
		} else {
			all = append(all, At(pkg, at, "%w", err))
		}
	}
	return errors.Join(all...)
}

// All returns the errors that err joins.
func All(err error) (all []error) {
	joined, ok := err.(interface{ Unwrap() []error })
	switch {
	case err == nil:
	case !ok:
		all = []error{err}
	default:
		for _, err := range joined.Unwrap() {
			all = append(all, All(err)...)
		}
	}
	return all
}

func (e *Error) wrapped() error { return fmt.Errorf(e.reason, e.args...) }

func (e *Error) Error() string { return e.pkg + ": " + e.before(e.wrapped().Error()) }

// Unwrap returns the error that %w wraps, or nil.
func (e *Error) Unwrap() error { return errors.Unwrap(e.wrapped()) }

// Reason returns e's text without the package and the place, and with each Name that words has replaced.
func (e *Error) Reason(words map[Name]string) string {
	return strings.TrimPrefix(e.in(words), ": ")
}

func (e *Error) in(words map[Name]string) string {
	args := slices.Clone(e.args)
	for i, arg := range args {
		switch arg := arg.(type) {
		case Name:
			if word, ok := words[arg]; ok {
				args[i] = Name(word)
			}
		case error:
			args[i] = errors.New(In(words, arg))
		}
	}
	return fmt.Errorf(e.reason, args...).Error()
}

// In returns err's text without names of packages, and with each Name that words has
// replaced. Joined errors stand in one line.
func In(words map[Name]string, err error) string {
	var texts []string
	for _, err := range All(err) {
		text := err.Error()
		if e, ok := err.(*Error); ok {
			at := e.Place
			if word, ok := words[at.Field]; ok {
				at.Field = Name(word)
			}
			text = at.before(e.in(words))
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}
