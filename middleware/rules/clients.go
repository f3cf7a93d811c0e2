package rules

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	netw "github.com/weirgo/weir/internal/network"
	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

// A clientList is the networks and keys that a file bans, or never limits.
type clientList struct {
	networks netw.Set // that do not end
	ending   netw.Set
	ends     []client // of ending
	keys     map[string]struct{}

	address func(*http.Request) netip.Addr // nil without networks
	now     func() time.Time
}

// clientList reads cidrs, keys and file of a section, and calls check for each key.
func (c *checker) clientList(section string, cidrs []client, keys []string, file string, check func(key string) (warning string, err error)) *clientList {
	list := &clientList{keys: map[string]struct{}{}, now: c.now}
	for i, n := range cidrs {
		switch n.Prefix = netw.OfClients(n.Prefix); {
		case !n.IsValid(): // it is noted
		case n.Until.IsZero():
			list.networks.Add(n.Prefix)
		default:
			list.ending.Add(n.Prefix)
			list.ends = append(list.ends, n)
			c.doubtEnd(sub(c.doc.Element([]string{section, "cidrs"}, i), "until"), n.Until)
		}
	}
	add := func(text string) (warning string, err error) {
		var n network
		switch err := n.UnmarshalText([]byte(text)); {
		case err == nil:
			list.networks.Add(netw.OfClients(n.Prefix))
			return "", nil
		case errors.Is(err, errEveryone):
			return "", err
		}
		list.keys[text] = struct{}{}
		kind, source, _ := keyfunc.KindOf(text)
		c.listed[Need{section, source}] = true
		if kind == "" { // it may be of any of them
			for name := range c.options.Keys {
				c.listed[Need{section, name}] = true
			}
		}
		if (kind == "user" || kind == "header") && c.options.Lacks != nil {
			if why := c.options.Lacks(&c.proxies, Need{section, source}); why != "" {
				return "", errors.New(why)
			}
		}
		return check(text)
	}
	for i, key := range keys {
		at := c.doc.Element([]string{section, "keys"}, i)
		if c.noted(at) {
			continue
		}
		warning, err := add(key)
		if err != nil {
			c.at(at, "%s", err)
		}
		if warning != "" {
			c.warnings.at(at, "%s", warning)
		}
	}
	if file != "" {
		c.keyFile([]string{section, "file"}, file, add)
	}
	if err := list.networks.Check(&list.ending); err != nil {
		c.at([]string{section}, "%s", err)
	}
	return list
}

// keyFile calls add for each line of a file. It reports only the first warning.
func (c *checker) keyFile(at []string, name string, add func(line string) (warning string, err error)) {
	if c.readFile == nil {
		c.at(at, "cannot be used here: only rules in a file can name another file")
		return
	}
	path, text, err := c.readFile(name)
	c.files = append(c.files, path)
	if err != nil {
		c.at(at, "can't be read: %v", err)
		return
	}
	number, wrong, warned := 0, 0, false
	for line := range strings.Lines(strings.TrimPrefix(string(text), "\ufeff")) {
		number++
		given := strings.TrimSpace(comment.ReplaceAllString(line, ""))
		if given == "" {
			continue
		}
		problem := Problem{File: path, Line: number, Column: 1 + utf8.RuneCountInString(line[:strings.Index(line, given)])}
		warning, err := add(given)
		if warning != "" && !warned {
			warned, problem.Message = true, warning
			c.warnings.list = append(c.warnings.list, problem)
		}
		if err != nil {
			problem.Message = err.Error()
			c.list = append(c.list, problem)
			if wrong++; wrong > mostProblems {
				return // it is another kind of file
			}
		}
	}
}

// comment begins a line or follows a space: a key may have a # in it.
var comment = regexp.MustCompile(`(^|[ \t])#.*`)

// readers returns the key functions that may return this key, by their parts. The error says why no
// request can have the key, and quotes only its kind: the rest may be a credential, or a line of a
// wrong file.
func (c *checker) readers(text string) (map[string]keyfunc.Func, error) {
	kind, source, value := keyfunc.KindOf(text)
	from := map[string]keyfunc.Func{}
	switch {
	case source != "":
		f, err := keyfunc.Parse(source, c.keys.named)
		if spelled, wrong := operate.Spelled(text); err != nil || c.options.Keys[kind] == nil && (wrong != nil || spelled != text) {
			return nil, fmt.Errorf("is a key of kind %s that no request can have: want something like %s", kind, keySamples[kind])
		}
		from[source] = f
	case kind == "apikey", kind == "fp", kind == "join":
		for _, known := range c.keys.order {
			if isOfKind(known.id, kind) {
				from[known.id] = known.f
			}
		}
		if len(from) == 0 {
			return nil, fmt.Errorf("is a key of kind %s, and no rule has such a key", kind)
		}
		if kind == "apikey" && c.namesHeader(value) {
			return nil, errors.New("is a key of kind apikey with the name of its header: want apikey: and the key alone, as weir explain shows it")
		}
	case len(c.options.Keys) == 0:
		return nil, errors.New("is neither an address nor a key that a request can have here: want something like 192.0.2.7, 198.51.100.0/24 or user:42, as weir explain shows them")
	default:
		maps.Copy(from, c.options.Keys) // it may be of any of them
	}
	return from, nil
}

// keySamples are keys of each kind as they are spelled.
var keySamples = map[string]string{
	"user": "user:42", "bearer": "bearer:TOKEN", "header": "header:X-Tenant:acme", "cookie": "cookie:session:8f3a", "path": "path:id:42", "query": "query:tenant:acme", "param": "param:Account:acme", "body": "body:model:small", "form": "form:account:jane",
	"method": "method:GET", "host": "host:example.com, in lower case and without a port", "route": "route:GET /search", "tool": "tool:search",
}

// isOfKind reports whether a key with this id may be of the kind join, apikey or fp.
func isOfKind(id, kind string) bool {
	switch joined := strings.Contains(id, partsSeparator); kind {
	case "join":
		return joined
	case "apikey":
		return strings.Contains(id, "apikey:") && !joined
	case "fp":
		return strings.Contains(id, "fingerprint") && !joined
	}
	return false
}

// namesHeader reports whether the value of an API key begins with the name of the header that a
// rule reads such keys from.
func (c *checker) namesHeader(value string) bool {
	for _, known := range c.keys.order {
		for choice := range strings.FieldsFuncSeq(known.id, func(r rune) bool { return r == '|' || string(r) == partsSeparator }) {
			header, ok := strings.CutPrefix(choice, "apikey:")
			header = strings.TrimSpace(header) + ":"
			if ok && len(value) >= len(header) && strings.EqualFold(value[:len(header)], header) {
				return true
			}
		}
	}
	return false
}

// ban makes Config.Bans.
func (c *checker) ban() {
	b := c.file.Ban
	if b == nil {
		b = &banned{}
	}
	list := c.clientList("ban", b.CIDRs, b.Keys, b.File, func(key string) (warning string, err error) {
		from, err := c.readers(key)
		for name := range from {
			c.keys.add(strings.Split(name, partsSeparator)...)
		}
		return "", err
	})
	if b.Status != nil {
		c.config.Bans.Status = int(*b.Status)
		if *b.Status != http.StatusForbidden && *b.Status != http.StatusTooManyRequests {
			c.at([]string{"ban", "status"}, "is %d: it must be 403 or 429", *b.Status)
			c.config.Bans.Status = 0
		}
	}
	// A ban on a user or an address also applies on routes that count by another key.
	c.keys.add("user")
	c.keys.add("ip")
	c.config.Bans.Keys = append(slices.Clone(c.config.Bans.Keys), c.keys.all()...)

	if len(list.keys) > 0 {
		c.config.Bans.List = fileBans{List: c.config.Bans.List, keys: list.keys}
	}
	// Networks are not in the list: while it has bans, a request is refused if one of its keys cannot be read.
	c.config.Bans.Deny = union(c.config.Bans.Deny, c.inNetworks(list))
	c.banned = list
}

// fileBans adds the keys that a file bans to the list of bans. Nothing lifts them but a change of the file.
type fileBans struct {
	bans.List
	keys map[string]struct{}
}

func (f fileBans) Empty() bool { return false }

func (f fileBans) Find(key string) (bans.Ban, bool) {
	if _, banned := f.keys[key]; banned {
		return bans.Ban{Key: key}, true
	}
	return f.List.Find(key)
}

// Unwrap returns the list of Options.Config.
func (f fileBans) Unwrap() bans.List { return f.List }

// allowed returns the clients that a file never limits, and the functions that read their keys.
func (c *checker) allowed(a *allowed) (list *clientList, from map[string]keyfunc.Func) {
	from = map[string]keyfunc.Func{}
	list = c.clientList("allow", a.CIDRs, a.Keys, a.File, func(text string) (warning string, err error) {
		kind, _, _ := keyfunc.KindOf(text)
		own := c.options.Keys[kind] != nil
		if slices.Contains(sharedKinds, kind) && !own {
			return "", fmt.Errorf("is a key of kind %s, which unrelated clients share: name routes in allow.routes, or keys of clients", kind)
		}
		its, err := c.readers(text)
		maps.Copy(from, its)
		if slices.Contains(madeUpKinds, kind) && !own || kind == "fp" {
			warning = fmt.Sprintf("is a key of kind %s: any client can send it and is then never limited", kind)
		}
		return warning, err
	})
	return list, from
}

// hasKey matches requests with one of the keys; it is nil without keys. A key that cannot be read, or that
// unrelated clients share, does not match.
func (l *clientList) hasKey(from map[string]keyfunc.Func) middleware.Match {
	if len(l.keys) == 0 {
		return nil
	}
	var read []keyfunc.Func
	for _, name := range slices.Sorted(maps.Keys(from)) {
		read = append(read, from[name])
	}
	return middleware.MatchFunc(func(r *http.Request) bool {
		for _, f := range read {
			key, err := f(r)
			if err != nil {
				continue
			}
			text, class := keyfunc.Classify(key)
			if _, listed := l.keys[text]; listed && class != keyfunc.Shared && class != keyfunc.InDoubt {
				return true
			}
		}
		return false
	})
}

// inNetworks matches clients with an address in one of the list's networks. It is nil without networks.
func (c *checker) inNetworks(list *clientList) middleware.Match {
	if list.networks.Len()+list.ending.Len() == 0 {
		return nil
	}
	list.address, _ = keyfunc.NewAddress(c.keys.ip...) // findProxies has checked the options
	return middleware.MatchFunc(func(r *http.Request) bool {
		_, found := list.find(r)
		return found
	})
}

// find returns whether r comes from one of the networks, and the latest end of these networks. The end is zero if one
// of them does not end.
func (l *clientList) find(r *http.Request) (latest dated, found bool) {
	if l == nil || l.address == nil {
		return latest, false
	}
	ip := l.address(r)
	if known := ip != (netip.Addr{}); !known || l.networks.Contains(ip) {
		return latest, known
	}
	if !l.ending.Contains(ip) {
		return latest, false
	}
	now := l.now()
	for i := range l.ends {
		if n := &l.ends[i]; n.Contains(ip) && n.Until.After(now) && n.Until.After(latest.Until.Time) {
			latest, found = n.dated, true
		}
	}
	return latest, found
}
