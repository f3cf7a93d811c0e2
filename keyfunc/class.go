package keyfunc

import (
	"crypto/rand"
	"fmt"
	"strings"
)

// A Class says what a key stands for, beside what it is counted under. A client's own key can be
// banned for what it does; the others stand for clients that did nothing.
type Class uint8

const (
	// Own is the key of one client, as far as its function can tell.
	Own Class = iota

	// Shared is the key of clients that have nothing to do with each other: [Global],
	// [Route], [Method], [Host], an unknown address, and what is made of such keys alone.
	Shared

	// InDoubt is the key of a client that a trusted proxy did not name, and so the proxy's
	// address, or what is made with it.
	InDoubt
)

// String is the class in words: "own", "shared" or "in doubt".
func (c Class) String() string {
	switch c {
	case Own:
		return "own"
	case Shared:
		return "shared"
	case InDoubt:
		return "in doubt"
	}
	return fmt.Sprintf("Class(%d)", uint8(c))
}

// What a key that is not Own begins with. No client can write it: the functions of this
// package put a tag of their own before a client's text, and a key that is its text from the
// first byte, such as what a function of the application's own reads from a query, would have
// to guess what is drawn at random here. It is of this process, and never stored.
var (
	drawn       = rand.Text()[:10]
	sharedMark  = "\x00shared:" + drawn + ":"
	inDoubtMark = "\x00in-doubt:" + drawn + ":"
)

// Classify takes a key apart into its class and the text it is counted and banned under. The
// functions of this package write the class before the text; a [Func] of your own that adds
// to their keys keeps it by doing the same with [Class.Mark]. Keys of any other function are
// Own.
func Classify(key string) (text string, class Class) {
	if key == "" || key[0] != 0 {
		return key, Own
	}
	if text, ok := strings.CutPrefix(key, sharedMark); ok {
		return text, Shared
	}
	if text, ok := strings.CutPrefix(key, inDoubtMark); ok {
		return text, InDoubt
	}
	return key, Own
}

// Mark is text as a key of that class.
func (c Class) Mark(text string) string { return c.mark() + text }

func (c Class) mark() string {
	switch c {
	case Shared:
		return sharedMark
	case InDoubt:
		return inDoubtMark
	}
	return ""
}

// with is the class of a key that has parts of both.
func (c Class) with(other Class) Class {
	switch {
	case c == InDoubt || other == InDoubt:
		return InDoubt
	case c == Shared && other == Shared:
		return Shared
	}
	return Own
}
