package rules

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/weirgo/weir/internal/nearest"
	"github.com/weirgo/weir/keyfunc"
)

// keys makes the functions that a rules file calls keys, one for each spelling.
type keys struct {
	named map[string]keyfunc.Func
	ip    []keyfunc.IPOption
	known map[string]*knownKey // by id: the key's parts, joined
	order []*knownKey
}

// newKeys returns keys with the application's own and the client's address, which the options find.
func newKeys(own map[string]keyfunc.Func, ip keyfunc.Func, options []keyfunc.IPOption) *keys {
	named := map[string]keyfunc.Func{"ip": ip} // one function, which warns once
	maps.Copy(named, own)
	return &keys{named: named, ip: options, known: map[string]*knownKey{}}
}

// A knownKey is a key that was made.
type knownKey struct {
	id     string
	f      keyfunc.Func
	used   bool // by a rule
	closed bool // by a rule whose on_outage is not open
}

// partsSeparator occurs in no valid part.
const partsSeparator = "\n"

// get returns the key of these parts, or nil. It reports invalid parts by their index.
func (k *keys) get(parts []string, report func(i int, err error)) *knownKey {
	id := strings.Join(parts, partsSeparator)
	if known := k.known[id]; known != nil {
		return known
	}
	fs := make([]keyfunc.Func, len(parts))
	ok := len(parts) > 0
	for i, part := range parts {
		f, err := keyfunc.Parse(part, k.named, k.ip...)
		if err != nil {
			report(i, k.meant(part, inWords(err)))
			ok = false
		}
		fs[i] = f
	}
	if !ok {
		return nil
	}
	made := &knownKey{id: id, f: fs[0]}
	if len(fs) > 1 {
		made.f = keyfunc.JoinPresent(fs...)
	}
	k.known[id] = made
	k.order = append(k.order, made)
	return made
}

// meant returns err with the key that was probably meant. Only a word close to a kind of key is quoted: any other text
// may be a credential.
func (k *keys) meant(part string, err error) error {
	kinds := slices.Concat(uncheckedKinds, sharedKinds, []string{"ip", "user", "bearer"}, slices.Sorted(maps.Keys(k.named)))
	for choice := range strings.SplitSeq(part, "|") {
		word, _, _ := strings.Cut(strings.TrimSpace(choice), ":")
		if near := nearest.Of(word, kinds); near != "" && near != word {
			return fmt.Errorf("%w; did you mean %q in place of %q?", err, near, word)
		}
	}
	return err
}

// add makes the key of these parts, or returns nil if one is invalid.
func (k *keys) add(parts ...string) *knownKey { return k.get(parts, func(int, error) {}) }

// all returns the keys that were made. If only rules with on_outage: open use a key, its errors mean no key.
func (k *keys) all() (fs []keyfunc.Func) {
	for _, known := range k.order {
		f := known.f
		if known.used && !known.closed {
			f = orNone(f)
		}
		fs = append(fs, f)
	}
	return fs
}

func orNone(f keyfunc.Func) keyfunc.Func {
	return func(r *http.Request) (string, error) {
		key, err := f(r)
		if err != nil && !errors.Is(err, keyfunc.ErrAmbiguous) {
			return "", keyfunc.ErrNoKey
		}
		return key, err
	}
}

// key makes a rule's key. It returns nil if the rule denies, or if something is wrong.
func (c *checker) key(p *scopedRule) keyfunc.Func {
	path, parts := p.path, p.parts
	if c.noted(sub(path, "key")) {
		return nil
	}
	for i, part := range parts {
		if slices.Contains(parts[:i], part) {
			c.at(c.doc.Element(sub(path, "key"), i), "is in the list twice")
			return nil
		}
	}
	switch {
	case p.section == "descriptors": // the service makes its keys
		return keyfunc.Global
	case len(parts) == 0 && p.Mode != "deny" && !c.noted(path):
		c.at(sub(path, "key"), "is required in global: write key: global to count all requests together, or key: ip to count each client address")
		return nil
	case len(parts) == 0:
		return nil
	}
	known := c.keys.get(parts, func(i int, err error) { c.at(c.doc.Element(sub(path, "key"), i), "%s", err) })
	if known == nil {
		return nil
	}
	known.used, known.closed = true, known.closed || p.OnOutage != "open"
	return known.f
}

// mostDistinct is the length in bytes up to which a body is read for a distinct value.
const mostDistinct = 4096

// distinct returns the key whose values a rule counts, or nil.
func (c *checker) distinct(path []string, text string) keyfunc.Func {
	if !c.doc.Has(path...) || c.noted(path) {
		return nil
	}
	name, isJSON := strings.CutPrefix(text, jsonKind)
	switch {
	case isJSON && (name == "" || strings.Contains(name, ":")):
		c.at(path, "is json without the name of a field: want something like json:user")
	case isJSON:
		return keyfunc.JSONField(name, mostDistinct)
	default:
		f, err := keyfunc.Parse(text, c.keys.named, c.keys.ip...)
		if err == nil {
			return f
		}
		c.at(path, "%s", c.keys.meant(text, inWords(err)))
	}
	return nil
}

const jsonKind = "json:"

var (
	sharedKinds    = []string{"global", "route", "method", "host", "tool"}                  // shared by many clients
	networkKinds   = []string{"network"}                                                    // shared by neighbors
	claimedKinds   = []string{"header", "cookie", "path", "query", "param", "json", "form"} // any client can send another's
	unownedKinds   = slices.Concat(sharedKinds, networkKinds, claimedKinds)                 // never banned by escalate
	madeUpKinds    = append([]string{"fingerprint", "host", "tool"}, claimedKinds...)       // as the client wrote it
	uncheckedKinds = append([]string{"apikey"}, madeUpKinds...)                             // and credentials, which only the application can check
	alwaysKinds    = []string{"ip", "network", "global", "fingerprint", "method"}           // that every request has
)

// isOf reports whether a choice of a key is of these kinds. The application's own keys have no kind.
func (c *checker) isOf(choice string, kinds []string) bool {
	kind, _, _ := strings.Cut(choice, ":")
	kind = strings.TrimSpace(kind)
	if strings.HasPrefix(kind, "ip/") {
		if kind = "ip"; len(c.networks(choice)) == len(addressSamples) {
			kind = "network"
		}
	}
	return c.options.Keys[choice] == nil && slices.Contains(kinds, kind)
}

// canBe is the first part of a key that has a choice of these kinds, or "".
func (c *checker) canBe(parts []string, kinds []string) string {
	for _, part := range parts {
		if slices.ContainsFunc(choices(part), func(choice string) bool { return c.isOf(choice, kinds) }) {
			return part
		}
	}
	return ""
}

// isAlways reports whether all choices of a part are of these kinds.
func (c *checker) isAlways(part string, kinds []string) bool {
	return !slices.ContainsFunc(choices(part), func(choice string) bool { return !c.isOf(choice, kinds) })
}

// areAlways reports whether all choices of all parts are of these kinds.
func (c *checker) areAlways(parts []string, kinds []string) bool {
	return len(parts) > 0 && !slices.ContainsFunc(parts, func(part string) bool { return !c.isAlways(part, kinds) })
}
