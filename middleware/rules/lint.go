package rules

import (
	"slices"
	"strings"

	"github.com/weirgo/weir/middleware"
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

// doubtNetworks warns of networks that are allowed, and banned or a proxy's too.
func (c *checker) doubtNetworks() {
	if c.file.Allow == nil {
		return
	}
	var banned, proxies []network
	if b := c.file.Ban; b != nil {
		banned = b.CIDRs
	}
	if p := c.file.Proxies; p != nil {
		proxies = slices.Concat(p.Trusted, p.Forwarded)
	}
	c.doubtAllowed(banned, "has clients of %v, which is in ban.cidrs, and a ban goes first")
	c.doubtAllowed(proxies, "has the proxies of %v: a request without their header, which a client may be able to have dropped, is taken for the proxy's own and never limited")
}

func (c *checker) doubtAllowed(others []network, message string) {
	const enough = 1000 // to be written by a person, and each is compared with all others
	others = others[:min(len(others), enough)]
	for i, n := range c.file.Allow.CIDRs[:min(len(c.file.Allow.CIDRs), enough)] {
		for _, other := range others {
			if n.IsValid() && other.IsValid() && n.Overlaps(other.Prefix) {
				c.warnings.at(c.element([]string{"allow", "cidrs"}, i), message, other.Prefix)
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
		return !p.Mode.off && !p.Mode.shadow && !c.skips(&p)
	})
}

// skips reports whether a rule in force lets requests without its key pass.
func (c *checker) skips(p *placed) bool {
	if p.Mode != (ruleMode{}) || p.NoKey.NoKey != middleware.NoKeySkip || len(p.parts) == 0 {
		return false
	}
	return !slices.ContainsFunc(p.parts, func(part string) bool { return c.canBe(part, alwaysKinds) })
}
