package rules

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/weirgo/weir/keyfunc"
)

// keys makes functions of what a rules file calls a key, one for each spelling.
type keys struct {
	named map[string]keyfunc.Func
	known map[string]keyfunc.Func // by its parts
	order []string                // of known
	open  map[string]bool         // by parts, of those that rules have: whether all of these are open in an outage
}

func newKeys(named map[string]keyfunc.Func) *keys {
	return &keys{named: named, known: map[string]keyfunc.Func{}, open: map[string]bool{}}
}

// partsSeparator is in no part that could be read.
const partsSeparator = "\n"

// get is the key of these parts. One that can't be read is reported by its index.
func (k *keys) get(parts []string, report func(i int, err error)) keyfunc.Func {
	id := strings.Join(parts, partsSeparator)
	if f := k.known[id]; f != nil {
		return f
	}
	fs := make([]keyfunc.Func, len(parts))
	ok := len(parts) > 0
	for i, part := range parts {
		f, err := keyfunc.Parse(part, k.named)
		if err != nil {
			report(i, inWords(err))
			ok = false
		}
		fs[i] = f
	}
	if !ok {
		return nil
	}
	f := fs[0]
	if len(fs) > 1 {
		f = keyfunc.JoinPresent(fs...)
	}
	k.known[id] = f
	k.order = append(k.order, id)
	return f
}

// one is the key of one part, or nil.
func (k *keys) one(part string) keyfunc.Func { return k.get([]string{part}, func(int, error) {}) }

// usedBy notes that a rule has the key of these parts.
func (k *keys) usedBy(parts []string, r *rule) {
	id := strings.Join(parts, partsSeparator)
	before, used := k.open[id]
	k.open[id] = r.OnOutage == "open" && (before || !used)
}

// all are the keys that were made, in the order in which they were. One that only rules
// have which let pass what they cannot count is none when it fails.
func (k *keys) all() []keyfunc.Func {
	fs := make([]keyfunc.Func, len(k.order))
	for i, id := range k.order {
		fs[i] = k.known[id]
		if k.open[id] {
			fs[i] = orNone(fs[i])
		}
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

// key is r's, or nil if something is wrong with it.
func (c *checker) key(p *placed) keyfunc.Func {
	path, parts := p.path, p.parts
	if c.noted(sub(path, "key")) {
		return nil
	}
	for i, part := range parts {
		if slices.Contains(parts[:i], part) {
			c.at(c.doc.element(sub(path, "key"), i), "is in the list twice")
			return nil
		}
	}
	if len(parts) == 0 {
		return nil // one counter for all
	}
	c.keys.usedBy(parts, p.rule)
	return c.keys.get(parts, func(i int, err error) { c.at(c.doc.element(sub(path, "key"), i), "%s", err) })
}

var (
	sharedKinds    = []string{"global", "route", "method", "host"}                        // of many clients
	madeUpKinds    = []string{"header", "cookie", "fingerprint", "host", "path", "query"} // as the client wrote it
	uncheckedKinds = append([]string{"apikey"}, madeUpKinds...)                           // and a credential that only the application can check
	ownKinds       = []string{"ip", "user", "fingerprint"}                                // of what only its owner has
	alwaysKinds    = []string{"ip", "global", "fingerprint", "method"}                    // that every request has
)

// isOf reports whether a choice of a key is of these kinds. The application's own are of none.
func (c *checker) isOf(choice string, kinds []string) bool {
	kind, _, _ := strings.Cut(choice, ":")
	return c.options.Keys[choice] == nil && slices.Contains(kinds, strings.TrimSpace(kind))
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

// isShared reports whether a key never tells the clients of a route or a host apart.
func (c *checker) isShared(parts []string) bool {
	return len(parts) > 0 && !slices.ContainsFunc(parts, func(part string) bool { return !c.isAlways(part, sharedKinds) })
}
