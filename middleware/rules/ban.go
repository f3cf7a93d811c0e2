package rules

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	netw "github.com/weirgo/weir/internal/network"
	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/keyfunc"
)

// A clientList is what a file bans, or never limits.
type clientList struct {
	networks netw.Set
	keys     map[string]struct{}
}

// clientList reads cidrs, keys and file of a section. It has check look at each key, with a way to
// warn of it.
func (c *checker) clientList(section string, cidrs []network, keys []string, file string, check func(key string, warn func(message string)) error) *clientList {
	list := &clientList{networks: setOf(cidrs), keys: map[string]struct{}{}}
	add := func(text string, warn func(message string)) error {
		if isNetwork, err := addNetwork(&list.networks, text); isNetwork {
			return err
		}
		list.keys[text] = struct{}{}
		return check(text, warn)
	}
	for i, key := range keys {
		at := c.element([]string{section, "keys"}, i)
		if c.noted(at) {
			continue
		}
		if err := add(key, func(message string) { c.warnings.at(at, "%s", message) }); err != nil {
			c.at(at, "%s", err)
		}
	}
	if c.doc.Has(section, "file") {
		c.keyFile([]string{section, "file"}, file, add)
	}
	return list
}

// ban makes Config.Bans.
func (c *checker) ban() {
	b := c.file.Ban
	if b == nil {
		b = &banned{}
	}
	list := c.clientList("ban", b.CIDRs, b.Keys, b.File, func(key string, _ func(string)) error { return c.bannedKey(key) })
	if b.Status != nil {
		c.config.Bans.Status = int(*b.Status)
		if *b.Status != http.StatusForbidden && *b.Status != http.StatusTooManyRequests {
			c.at([]string{"ban", "status"}, "is %d: it must be 403 or 429", *b.Status)
			c.config.Bans.Status = 0
		}
	}
	// A ban on a user or an address also holds on routes that count by something else.
	c.keys.one("user")
	c.keys.one("ip")
	c.config.Bans.Keys = append(slices.Clone(c.config.Bans.Keys), c.keys.all()...)

	if own := c.config.Bans.DenyKey; len(list.keys) > 0 {
		c.config.Bans.DenyKey = func(key string) bool {
			_, banned := list.keys[key]
			return banned || own != nil && own(key)
		}
	}
	// Networks are no DenyKey: that has every key of a request read, and one that fails refuses it.
	c.config.Bans.Deny = anyOf(c.config.Bans.Deny, c.inNetworks(&list.networks))
}

// addNetwork adds a text that is a network or an address. An error says that it is that of everyone.
func addNetwork(to *netw.Set, text string) (isNetwork bool, err error) {
	var n network
	switch err := n.UnmarshalText([]byte(text)); {
	case err == nil:
		to.Add(n.Prefix)
		return true, nil
	case errors.Is(err, errEveryone):
		return true, err
	}
	return false, nil
}

// bannedKey makes sure that a request with that key is asked for it. Its errors name the
// kind of the key alone: the rest may be a credential, or a line of whatever file was named.
func (c *checker) bannedKey(text string) error {
	kind, source, _ := keyfunc.KindOf(text)
	if source != "" {
		return c.spelled(text, kind, source)
	}
	switch kind {
	case "apikey", "fp", "join":
		if !slices.ContainsFunc(c.keys.order, func(id string) bool { return isOfKind(id, kind) }) {
			return fmt.Errorf("is a key of kind %s, and no rule has such a key", kind)
		}
		if _, _, value := keyfunc.KindOf(text); kind == "apikey" && c.namesHeader(value) {
			return errors.New("is a key of kind apikey with the name of its header: want apikey: and the key alone, as weir explain shows it")
		}
	default:
		if len(c.options.Keys) == 0 { // it may be one of the application's
			return errors.New("is neither an address nor a key that a request can have here: want something like 192.0.2.7, 198.51.100.0/24 or user:42, as weir explain shows them")
		}
	}
	return nil
}

// namesHeader reports whether the value of an API key begins with the name of the header that a
// rule reads such keys from.
func (c *checker) namesHeader(value string) bool {
	for _, p := range c.file.placed(c.doc) {
		for _, part := range p.parts {
			for _, choice := range choices(part) {
				header, ok := strings.CutPrefix(choice, "apikey:")
				header = strings.TrimSpace(header) + ":"
				if ok && len(value) >= len(header) && strings.EqualFold(value[:len(header)], header) {
					return true
				}
			}
		}
	}
	return false
}

// spelled makes sure that a banned key is spelled as that of a request which has it, as
// one that is not has no effect.
func (c *checker) spelled(text, kind, part string) error {
	if c.keys.one(part) != nil && c.isSpelled(text, kind) {
		return nil
	}
	return errMisspelled(kind)
}

func errMisspelled(kind string) error {
	return fmt.Errorf("is a key of kind %s that no request can have: want something like %s", kind, keySamples[kind])
}

// isSpelled reports whether that is how a request's key of that kind is written, as far as it
// is known: the application's own are as they are.
func (c *checker) isSpelled(text, kind string) bool {
	key, err := operate.Spelled(text)
	return c.options.Keys[kind] != nil || err == nil && key == text
}

// keySamples are keys of each kind as they are spelled.
var keySamples = map[string]string{
	"user": "user:42", "bearer": "bearer:TOKEN", "header": "header:X-Tenant:acme", "cookie": "cookie:session:8f3a", "path": "path:id:42", "query": "query:tenant:acme",
	"method": "method:GET", "host": "host:example.com, in lower case and without a port", "route": "route:GET /search",
}

func isJoined(id string) bool { return strings.Contains(id, partsSeparator) }

// keyFile has add take each line of a file, with a way to warn of it.
func (c *checker) keyFile(at []string, name string, add func(line string, warn func(message string)) error) {
	if c.readFile == nil {
		c.at(at, "can't be used here: only rules that are in a file themselves can name one")
		return
	}
	if name == "" {
		c.at(at, "is empty: name a file, or leave it out")
		return
	}
	path, text, err := c.readFile(name)
	c.files = append(c.files, path)
	if err != nil {
		c.at(at, "can't be read: %v", err)
		return
	}
	number, wrong, warned := 0, 0, 0
	for line := range strings.Lines(strings.TrimPrefix(string(text), "\ufeff")) {
		number++
		given := strings.TrimSpace(withoutComment(line))
		if given == "" {
			continue
		}
		place := Problem{File: path, Line: number, Column: 1 + utf8.RuneCountInString(line[:strings.Index(line, given)])}
		err := add(given, func(message string) {
			if warned++; warned <= mostWarnings {
				place.Message = message
				c.warnings.list = append(c.warnings.list, place)
			}
		})
		if err != nil {
			place.Message = err.Error()
			c.list = append(c.list, place)
			if wrong++; wrong > mostProblems {
				return // it is no such file
			}
		}
	}
}

// mostWarnings is how many lines of one file are warned of.
const mostWarnings = 10

// withoutComment is a line up to a # that begins it, or follows a space: a key may have one.
func withoutComment(line string) string {
	for i := range len(line) {
		if line[i] == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t') {
			return line[:i]
		}
	}
	return line
}

func setOf(networks []network) (set netw.Set) {
	for _, n := range networks {
		if n.IsValid() { // or it is noted
			set.Add(n.Prefix)
		}
	}
	return set
}

// inNetworks reports whether a client's address is in one of the networks. It is nil if
// there are none.
func (c *checker) inNetworks(set *netw.Set) func(*http.Request) bool {
	if set.Len() == 0 {
		return nil
	}
	address, err := keyfunc.NewAddress(c.ip...)
	if err != nil { // noted when the options were made
		return func(*http.Request) bool { return false }
	}
	return func(r *http.Request) bool {
		ip := address(r)
		return ip != (netip.Addr{}) && set.Contains(ip)
	}
}
