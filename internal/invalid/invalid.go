// Package invalid has errors about invalid configuration. Such an error keeps the place of the
// value apart from its text. So package rules can show the error at the value in a rules file, and
// the command can leave out the names of packages.
package invalid

import (
	"errors"
	"fmt"
	"strings"
)

// A Place is where a configuration has an invalid value. Parts may be empty.
type Place struct {
	Rule  string // as in Rules[0] "api"
	Tier  string
	Field string // the Go name, with the fields that it is in: Escalate.Ban
}

// Of returns the place of a field in p.
func (p Place) Of(field string) Place {
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
		text += ": " + p.Field
	case p.Field != "":
		text = p.Field
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
	pkg    string
	reason error
}

// New returns an error of the package pkg. It formats reason and args like fmt.Errorf.
func New(pkg, reason string, args ...any) error { return At(pkg, Place{}, reason, args...) }

// Field returns the error of [New] about a field. Its text begins with the field.
func Field(pkg, field, reason string, args ...any) error {
	return At(pkg, Place{Field: field}, reason, args...)
}

// At returns the error of [New] about a value at a place. Its text begins with the place.
func At(pkg string, at Place, reason string, args ...any) error {
	return &Error{at, pkg, fmt.Errorf(reason, args...)}
}

// Within returns err, or the errors that it joins, as errors of the package pkg about values at a place.
func Within(pkg string, at Place, err error) error {
	var all []error
	for _, err := range All(err) {
		if inner, ok := err.(*Error); ok {
			all = append(all, &Error{at.Of(inner.Field), pkg, inner.reason})
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

func (e *Error) Error() string { return e.pkg + ": " + e.before(e.reason.Error()) }

// Unwrap returns the error that %w wraps, or nil.
func (e *Error) Unwrap() error { return errors.Unwrap(e.reason) }

// Reason returns e's text without the package and the place.
func (e *Error) Reason(named func(field string) string) string {
	return strings.TrimPrefix(text(e.reason, named), ": ")
}

// Text returns err's text without names of packages, also within an error that wraps others, and with
// what named returns for each field, or its Go name if named is nil. Joined errors stand in one line.
func Text(err error, named func(field string) string) string {
	var texts []string
	for _, err := range All(err) {
		texts = append(texts, text(err, named))
	}
	return strings.Join(texts, "; ")
}

func text(err error, named func(field string) string) string {
	if e, ok := err.(*Error); ok {
		at := e.Place
		if named != nil {
			at.Field = named(at.Field)
		}
		return at.before(text(e.reason, named))
	}
	said := err.Error()
	if of, ok := err.(interface{ Package() string }); ok { // of a module that cannot import this package
		said = strings.TrimPrefix(said, of.Package()+": ")
	}
	inner := errors.Unwrap(err)
	if inner == nil {
		return said
	}
	return strings.Replace(said, inner.Error(), Text(inner, named), 1)
}
