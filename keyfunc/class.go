package keyfunc

import (
	"crypto/rand"
	"fmt"
	"strings"
)

// A Class says whether a key belongs to one client. Only such a key ([Own]) can be banned for what its
// client does: any other key also stands for clients that did nothing.
type Class uint8

const (
	// Own is the key of one client, as far as the function knows.
	Own Class = iota

	// Shared is the key of unrelated clients: [Global], [Route], [Method], [Host], an unknown address,
	// and keys that [Join] made of such keys only.
	Shared

	// InDoubt is the key of a client that its trusted proxy did not name: the proxy's address, or a key
	// that [Join] made with it.
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

// The marks of keys that are not Own. No client can write a mark: the functions of this package put a
// tag before a client's text, and a client that chooses the whole key would have to guess random
// text. Marks belong to this process and are never stored.
var (
	drawn       = rand.Text()[:10]
	sharedMark  = "\x00shared:" + drawn + ":"
	inDoubtMark = "\x00in-doubt:" + drawn + ":"
)

// Classify splits a key into its class and the text that it is counted and banned under. The functions
// of this package write a mark of the class before the text; your own [Func] does so with
// [Class.Mark]. A key without a mark is [Own].
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

// Mark returns text with the prefix that marks a key as one of the class.
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

// with is the class of a composition of both classes.
func (c Class) with(other Class) Class {
	switch {
	case c == InDoubt || other == InDoubt:
		return InDoubt
	case c == Shared && other == Shared:
		return Shared
	}
	return Own
}
