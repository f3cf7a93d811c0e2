package rules

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/weirgo/weir/keyfunc"
)

// allowed are the clients that a file never limits, and how a request's keys are read that may be
// among theirs.
func (c *checker) allowed(a *allowed) (list *clientList, from map[string]keyfunc.Func) {
	from = map[string]keyfunc.Func{}
	list = c.clientList("allow", a.CIDRs, a.Keys, a.File, func(key string, warn func(string)) error { return c.allowedKey(from, key, warn) })
	return list, from
}

// allowedKey makes sure that a request can have a key, and notes how that is read.
func (c *checker) allowedKey(from map[string]keyfunc.Func, text string, warn func(message string)) error {
	kind, source, _ := keyfunc.KindOf(text)
	switch {
	case c.options.Keys[kind] != nil:
		from[kind] = c.options.Keys[kind]
	case slices.Contains(sharedKinds, kind):
		return fmt.Errorf("is a key of kind %s, which all kinds of clients have: name routes in allow.routes, or clients", kind)
	case source != "":
		f, err := keyfunc.Parse(source, c.keys.named)
		if err != nil || !c.isSpelled(text, kind) {
			return errMisspelled(kind)
		}
		from[source] = f
	default:
		if err := c.bannedKey(text); err != nil { // which knows of what a request can be asked for
			return err
		}
		for _, id := range c.keys.order {
			if isOfKind(id, kind) {
				from[id] = c.keys.known[id]
			}
		}
		if kind == "" {
			maps.Copy(from, c.options.Keys)
		}
	}
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

// hasKey reports whether a request has one of the keys; nil if there are none. A key that can't
// be read is none of them, and so is one that may be another client's.
func (l *clientList) hasKey(from map[string]keyfunc.Func) func(*http.Request) bool {
	if len(l.keys) == 0 {
		return nil
	}
	var read []keyfunc.Func
	for _, name := range slices.Sorted(maps.Keys(from)) {
		read = append(read, from[name])
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
