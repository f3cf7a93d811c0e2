package wire

import (
	"errors"
	"fmt"
)

// Errorf returns an error of the package pkg, whose name begins its text.
func Errorf(pkg, format string, args ...any) error {
	return &packaged{pkg, fmt.Errorf(format, args...)}
}

type packaged struct {
	pkg string
	err error
}

func (e *packaged) Error() string { return e.pkg + ": " + e.err.Error() }
func (e *packaged) Unwrap() error { return errors.Unwrap(e.err) }

// Package is the name that begins the text. The command, whose users do not know it, leaves it out.
func (e *packaged) Package() string { return e.pkg }
