// Package reading has what readers of a request's body have in common: package keyfunc reads it ahead, package middleware
// says when, and a server bounds how much memory it takes.
package reading

import (
	"io"
	"sync/atomic"
)

// MostJSON is the length in bytes up to which members of a JSON body are read for rules of a file.
const MostJSON = 8 << 20

// An Error says with which status to refuse a request whose body was not read to its end.
type Error struct {
	Status int
	Text   string
}

func (e *Error) Error() string { return e.Text }

// InUse reports whether something in this process reads bodies ahead. Until then no limiter looks in two steps.
var InUse atomic.Bool

// A Held body is not read ahead yet.
type Held struct {
	io.ReadCloser
	Asked bool // somebody wanted to read ahead
}

// A Budget is a server's body that bounds the memory of bodies that were read ahead.
type Budget interface {
	// Hold is called before a further n bytes are held, and returns an Error if there is no room for them.
	Hold(n int) error

	// Release is called when all of them are free.
	Release()
}

// Behind unwraps body, and returns the innermost body that is a T.
func Behind[T any](b io.ReadCloser) (found T, ok bool) {
	for {
		if found, ok = b.(T); ok {
			return found, true
		}
		w, wraps := b.(interface{ Unwrap() io.ReadCloser })
		if !wraps {
			return found, false
		}
		b = w.Unwrap()
	}
}
