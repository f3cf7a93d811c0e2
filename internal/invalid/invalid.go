// Package invalid has errors about invalid configuration. Such an error keeps the names of
// Go fields apart from its text, so that the reader of a rules file can replace them with
// the names that the file uses.
package invalid

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Name is the Go name of a field or an option.
type Name string

// An Error reports an invalid field or argument.
type Error struct {
	pkg, reason string
	args        []any
}

// New returns an error of the package pkg. It formats reason and args like fmt.Errorf.
// [In] can replace each [Name] in args, also within an error in args.
func New(pkg, reason string, args ...any) error { return &Error{pkg, reason, args} }

func (e *Error) Error() string { return e.pkg + ": " + fmt.Errorf(e.reason, e.args...).Error() }

// Unwrap returns the error that %w wraps, or nil.
func (e *Error) Unwrap() error { return errors.Unwrap(fmt.Errorf(e.reason, e.args...)) }

// In returns err's text without names of packages, and with each Name that words has
// replaced. Joined errors stand in one line.
func In(words map[Name]string, err error) string {
	switch e := err.(type) {
	case *Error:
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
	case interface{ Unwrap() []error }:
		var texts []string
		for _, one := range e.Unwrap() {
			texts = append(texts, In(words, one))
		}
		return strings.Join(texts, "; ")
	}
	return err.Error()
}
