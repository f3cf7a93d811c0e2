package rules

import (
	"slices"
	"strings"
)

// What is valid and hardly meant, beside what is warned of where it is read.

// alwaysKinds are keys that every request has.
var alwaysKinds = []string{"ip", "global", "fingerprint", "method"}

// doubtChoices warns of a key behind one that every request has.
func (c *checker) doubtChoices(path []string, r *rule) {
	for i, part := range r.Key {
		choices := strings.Split(part, "|")
		at := slices.IndexFunc(choices, func(choice string) bool { return c.isOf(choice, alwaysKinds) })
		if at >= 0 && at < len(choices)-1 {
			c.warnings.at(c.element(sub(path, "key"), i), "every request has %s, so that %s is never reached: write it first", told("", choices[at:at+1]), told("", choices[at+1:at+2]))
		}
	}
}

// told is a key for messages and names: without what stands behind apikey, which may be the credential in
// place of the name of its field.
func told(and string, parts []string) string {
	var b strings.Builder
	for i, part := range parts {
		if i > 0 {
			b.WriteString(and)
		}
		for j, choice := range strings.Split(part, "|") {
			if j > 0 {
				b.WriteString("|")
			}
			kind, name, _ := strings.Cut(strings.TrimSpace(choice), ":")
			b.WriteString(kind)
			if name != "" && strings.TrimSpace(kind) != "apikey" {
				b.WriteString(":" + name)
			}
		}
	}
	return b.String()
}

// doubtCost warns of a cost that clients name.
func (c *checker) doubtCost(path []string, given *cost, header string) {
	if header != contentLength && !given.Settle {
		c.warnings.at(sub(path, "header"), "is what the client says, and one that says less pays less: have your proxy set it, or settle what a request really cost")
	}
}

// doubtNetworks warns of networks that are allowed, and a proxy's too.
func (c *checker) doubtNetworks() {
	a, p := c.file.Allow, c.file.Proxies
	if a == nil || p == nil {
		return
	}
	const enough = 1000 // to be written by a person, and each is compared with all others
	proxies := slices.Concat(p.Trusted, p.Forwarded)
	for i, n := range a.CIDRs[:min(len(a.CIDRs), enough)] {
		for _, proxy := range proxies[:min(len(proxies), enough)] {
			if n.IsValid() && proxy.IsValid() && n.Overlaps(proxy.Prefix) {
				c.warnings.at(c.element([]string{"allow", "cidrs"}, i), "has the proxies of %v: a request without their header, which a client may be able to have dropped, is taken for the proxy's own and never limited", proxy.Prefix)
				break
			}
		}
	}
}

// doubtSkips warns of rules that skip requests without a key, where no other rule limits these.
func (c *checker) doubtSkips() {
	always := slices.ContainsFunc(c.places, func(at *place) bool { return at.section == "default" && c.limitsAll(at) })
	if c.countsAll() || c.limitsAll(c.places[0]) {
		return
	}
	for _, at := range c.places {
		// A request in a tier, as any, meets the rules of its endpoint too, or the default.
		if c.limitsAll(at) || always && (at.section == "global" || at.section == "tiers") {
			continue
		}
		for i := range at.rules {
			if p := &at.rules[i]; c.skips(p) {
				c.warnings.at(sub(p.path, "no_key"), "is skip, and nothing else limits a request without a key here: a client that leaves the key out is unlimited. Give global a limit, or write no_key: share")
			}
		}
	}
}

// limitsAll reports whether a rule of a place limits, or denies, each of its requests.
func (c *checker) limitsAll(at *place) bool {
	return slices.ContainsFunc(at.rules, func(p placed) bool {
		return p.Mode != "off" && p.Mode != "shadow" && !c.skips(&p)
	})
}

// skips reports whether a rule in force lets requests without its key pass.
func (c *checker) skips(p *placed) bool {
	if !p.enforces() || p.NoKey != "skip" || len(p.parts) == 0 {
		return false
	}
	return !slices.ContainsFunc(p.parts, func(part string) bool { return c.canBe(part, alwaysKinds) })
}
