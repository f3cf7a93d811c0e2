package rules

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	netw "github.com/weirgo/weir/internal/network"
	"github.com/weirgo/weir/keyfunc"
)

// An allowList is the clients and keys that a file never limits.
type allowList struct {
	networks netw.Set
	keys     map[string]struct{}
	from     map[string]keyfunc.Func // what a request's keys are read by, by how that is written
}

// allowList reads allow.cidrs, keys and file.
func (c *checker) allowList(a *allowed) *allowList {
	list := &allowList{networks: setOf(a.CIDRs), keys: map[string]struct{}{}, from: map[string]keyfunc.Func{}}
	for i, key := range a.Keys {
		at := c.element([]string{"allow", "keys"}, i)
		if c.noted(at) {
			continue
		}
		if err := c.allowedText(list, key, func(message string) { c.warnings.at(at, "%s", message) }); err != nil {
			c.at(at, "%s", err)
		}
	}
	if c.doc.Has("allow", "file") {
		c.keyFile([]string{"allow", "file"}, a.File, func(line string, warn func(string)) error { return c.allowedText(list, line, warn) })
	}
	return list
}

// allowedText adds what a line or an element says: a network, or a key.
func (c *checker) allowedText(list *allowList, text string, warn func(message string)) error {
	if isNetwork, err := addNetwork(&list.networks, text); isNetwork {
		return err
	}
	kind, source, _ := keyfunc.KindOf(text)
	switch {
	case c.options.Keys[kind] != nil:
		list.from[kind] = c.options.Keys[kind]
	case slices.Contains(sharedKinds, kind):
		return fmt.Errorf("is a key of kind %s, which all kinds of clients have: name routes in allow.routes, or clients", kind)
	case source != "":
		f, err := keyfunc.Parse(source, c.keys.named)
		if err != nil || !c.isSpelled(text, kind) {
			return errMisspelled(kind)
		}
		list.from[source] = f
	default:
		if err := c.bannedKey(text); err != nil { // which knows of what a request can be asked for
			return err
		}
		for _, id := range c.keys.order {
			if isOfKind(id, kind) {
				list.from[id] = c.keys.known[id]
			}
		}
		if kind == "" {
			maps.Copy(list.from, c.options.Keys)
		}
	}
	list.keys[text] = struct{}{}
	if slices.Contains(madeUpKinds, kind) && c.options.Keys[kind] == nil || kind == "fp" {
		warn(fmt.Sprintf("is a key of kind %s, which any client can send, to be never limited", kind))
	}
	return nil
}

// isOfKind reports whether a rule's key, by its parts, may be one of that kind, which tells no
// more.
func isOfKind(id, kind string) bool {
	switch kind {
	case "join":
		return isJoined(id)
	case "apikey":
		return strings.Contains(id, "apikey:") && !isJoined(id)
	case "fp":
		return strings.Contains(id, "fingerprint") && !isJoined(id)
	}
	return false
}

// match reports whether a request has one of the keys; nil if there are none. A key that can't
// be read is none of them, and so is one that may be another client's.
func (l *allowList) match() func(*http.Request) bool {
	if len(l.keys) == 0 {
		return nil
	}
	var read []keyfunc.Func
	for _, from := range slices.Sorted(maps.Keys(l.from)) {
		read = append(read, l.from[from])
	}
	return func(r *http.Request) bool {
		for _, f := range read {
			key, err := f(r)
			if err != nil {
				continue
			}
			text, class := keyfunc.Classify(key)
			if _, listed := l.keys[text]; listed && class == keyfunc.Own {
				return true
			}
		}
		return false
	}
}
