// Package invalid has the error about what cannot be configured, in parts: what reads a
// configuration from elsewhere says it in the words of that place, and leaves the values
// as they are.
package invalid

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Name is what a field or an option is called in Go.
type Name string

// An Error says what is wrong with a field or an argument.
type Error struct {
	pkg, reason string
	args        []any
}

// New returns an error of a package. The reason and its args are as for fmt.Errorf, where
// a [Name] among the args may be said in other words, as may an error that is an Error.
func New(pkg, reason string, args ...any) error { return &Error{pkg, reason, args} }

func (e *Error) Error() string { return e.pkg + ": " + fmt.Errorf(e.reason, e.args...).Error() }

// Unwrap are the errors among the args of %w.
func (e *Error) Unwrap() error { return errors.Unwrap(fmt.Errorf(e.reason, e.args...)) }

// In is err's text with these words in place of names, and without names of packages.
// Joined errors are in one line.
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
