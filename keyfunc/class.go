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
	// Own is the key of one client, as far as the function knows: an address, the user, an API key or a
	// token, which nobody but its owner knows, a [Fingerprint], a key that [Join] made with one of these,
	// and a key of your own [Func].
	Own Class = iota

	// Shared is the key of unrelated clients: [Global], [Route], [Method], [Host], [Tool], an unknown address,
	// and keys that [Join] made of such keys only.
	Shared

	// InDoubt is the key of a client that its trusted proxy did not name: the proxy's address, or a key
	// that [Join] made with it.
	InDoubt

	// Network is the key of several neighbors: an IPv4 network, or an IPv6 network wider than /64
	// ([Prefixes], [IPv6Prefix]).
	Network

	// Claimed is a key that any client can send, such as the name of another client: [Header], [Cookie],
	// [Query], [PathValue], [JSONField], [FormField] and [ToolParam]. If your code has checked the value, name
	// the client with [WithUser], or return the value from your own [Func].
	Claimed
)

// String is the class in words: "own", "shared", "in doubt", "network" or "claimed".
func (c Class) String() string {
	if int(c) < len(classes) {
		return classes[c].name
	}
	return fmt.Sprintf("Class(%d)", uint8(c))
}

// classes have the marks of keys that are not Own. No client can write a mark: the functions of this
// package put a tag before a client's text, and a client that chooses the whole key would have to guess
// random text. Marks belong to this process and are never stored.
var classes = [...]struct{ name, mark string }{
	Own:     {name: "own"},
	Shared:  {"shared", "\x00shared:" + drawn + ":"},
	InDoubt: {"in doubt", "\x00in-doubt:" + drawn + ":"},
	Network: {"network", "\x00network:" + drawn + ":"},
	Claimed: {"claimed", "\x00claimed:" + drawn + ":"},
}

var drawn = rand.Text()[:10]

// Classify splits a key into its class and the text that it is counted and banned under. The functions
// of this package write a mark of the class before the text; your own [Func] does so with
// [Class.Mark]. A key without a mark is [Claimed] if it begins with the kind of such a key
// ("header:X-Tenant:acme"), and else [Own].
func Classify(key string) (text string, class Class) {
	switch {
	case key == "":
	case key[0] != 0:
		if isClaimed(key) {
			return key, Claimed
		}
	default:
		for _, class := range [...]Class{Shared, InDoubt, Network, Claimed} {
			if text, ok := strings.CutPrefix(key, class.mark()); ok {
				return text, class
			}
		}
	}
	return key, Own
}

// isClaimed reports whether the key's kind says that any client can send it.
func isClaimed(key string) bool {
	return strings.HasPrefix(key, headerTag) || strings.HasPrefix(key, cookieTag) || strings.HasPrefix(key, queryTag) ||
		strings.HasPrefix(key, pathTag) || strings.HasPrefix(key, bodyTag) || strings.HasPrefix(key, formTag) || strings.HasPrefix(key, paramTag)
}

// Mark returns text with the prefix that marks a key as one of the class.
func (c Class) Mark(text string) string { return c.mark() + text }

func (c Class) mark() string {
	if int(c) < len(classes) {
		return classes[c].mark
	}
	return ""
}

// with is the class of a composition of both classes: one part that is a client's own makes it the
// client's own, unless another part is in doubt.
func (c Class) with(other Class) Class {
	for _, class := range [...]Class{InDoubt, Own, Claimed, Network} {
		if c == class || other == class {
			return class
		}
	}
	return Shared
}
