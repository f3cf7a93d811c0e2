package rules

import (
	"regexp"
	"slices"
	"strings"

	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/middleware"
)

// doubts warns of what is valid and probably not intended, where several rules have to be compared.
func (c *checker) doubts() {
	// Every request meets the rules of global, and those of its tier and its endpoint, or of default.
	held := c.limitsAll(c.scopes[0]) || slices.ContainsFunc(c.options.Config.Rules, func(r middleware.Rule) bool {
		return r.Match == nil && r.Mode != middleware.Shadow && r.NoKey != middleware.NoKeySkip
	})
	heldOtherwise := held || c.limitsAll(c.scopes[len(c.scopes)-1])
	if !heldOtherwise {
		c.doubtTierless()
	}
	for _, at := range c.scopes {
		unheld := !held && !c.limitsAll(at) && !(heldOtherwise && at.section == "global")
		refuses := slices.ContainsFunc(at.rules, func(p scopedRule) bool { return p.Mode != "off" && p.Mode != "shadow" })
		if unheld && heldOtherwise && !at.isOff() && !refuses {
			c.warnings.atKey(at.path, "is in shadow, and default is not for its requests: they are unlimited. Give global a limit")
		}
		for i := range at.rules {
			p := &at.rules[i]
			c.doubtChoices(p)
			c.doubtKey(p)
			c.doubtParam(p)
			c.doubtHidden(p)
			if at.pattern != nil && len(p.Counts) > 0 && isMethodOfRPC.MatchString(at.pattern.Path) {
				c.warnings.at(sub(p.path, "counts"), "an error of gRPC-Web, and of a stream of Connect, is in the body, where Weir does not see it: such answers count, unless the handler calls weir.CountAs")
			}
			if unheld && p.isConditional() && p.enforces() {
				c.warnings.at(sub(p.path, "when"), "depends on what the client sends, and no other limit applies without these values: a client that leaves one out is unlimited. Add a limit without when, or a limit in global")
			}
			if unheld && c.skips(p) {
				c.warnings.at(sub(p.path, "no_key"), "is skip, and no other limit applies to a request without a key: a client that leaves the key out is unlimited. Give global a limit, or write no_key: share")
			}
		}
	}
	if !heldOtherwise {
		c.doubtHosts()
	}
	c.doubtNetworks()
}

// isMethodOfRPC matches the path of a method of gRPC, such as /shop.Cart/Add, and of all methods of a service.
var isMethodOfRPC = regexp.MustCompile(`^/[\w.]+\.[A-Z]\w*(/[A-Z]\w*|/\{\w+\})?$`)

// limitsAll reports whether a rule of a scope limits, or denies, each of its requests.
func (c *checker) limitsAll(at *scope) bool {
	return slices.ContainsFunc(at.rules, func(p scopedRule) bool {
		return p.Mode != "off" && p.Mode != "shadow" && !c.skips(&p) && p.countsEach()
	})
}

// skips reports whether a rule in force lets requests without its key pass.
func (c *checker) skips(p *scopedRule) bool {
	return p.enforces() && p.NoKey == "skip" && c.canBe(p.parts, alwaysKinds) == ""
}

// doubtTierless warns of tiers without a default.
func (c *checker) doubtTierless() {
	isForAll := func(at *scope) bool { return at.pattern.Covers(&everything) && c.limitsAll(at) }
	if len(c.config.ByTier) > 0 && c.config.Default == nil && !c.config.Shadow && !slices.ContainsFunc(c.patterns(), isForAll) {
		c.warnings.atKey([]string{"tiers"}, "has limits, and there is no default: a request in no tier, or in a misspelt one, is not limited. Add default, or a limit in global")
	}
}

// doubtHosts warns of the first limit for a host without a limit for other hosts: clients can send any
// host.
func (c *checker) doubtHosts() {
	const enough = 100 // each is compared with all others
	all := c.patterns()
	named := slices.DeleteFunc(slices.Clone(all), func(at *scope) bool { return at.pattern.Host == "" })
	for _, at := range named[:min(len(named), enough)] {
		anyHost := *at.pattern
		anyHost.Host = ""
		if !slices.ContainsFunc(all, func(other *scope) bool {
			return other.pattern.Host == "" && c.limitsAll(other) && other.pattern.Covers(&anyHost)
		}) {
			c.warnings.atKey(at.path, "limits requests to that host only, so a client that names another host is unlimited: give default or global a limit")
			return
		}
	}
}

// doubtChoices warns of a choice that is never reached, behind one that every request has.
func (c *checker) doubtChoices(p *scopedRule) {
	for i, part := range p.Key {
		all := choices(part)
		at := slices.IndexFunc(all, func(choice string) bool { return c.isOf(choice, alwaysKinds) })
		if at >= 0 && at < len(all)-1 {
			c.warnings.at(c.doc.Element(sub(p.path, "key"), i), "every request has %[1]s, so %[2]s is never used: write %[2]s first", keyText("", all[at:at+1]), keyText("", all[at+1:at+2]))
		}
	}
}

// doubtKey warns of a key that a client can forge.
func (c *checker) doubtKey(p *scopedRule) {
	part := c.canBe(p.parts, uncheckedKinds)
	if part == "" {
		return
	}
	var so []string
	if !c.holdEach(c.scopes[0]) && !c.holdEach(p.scope) {
		so = append(so, "no limit stops it (a limit under global with key: ip would)")
	}
	if p.Escalate != nil && c.canBe(p.parts, madeUpKinds) != "" {
		so = append(so, "it is never banned")
	}
	if len(so) > 0 {
		c.warnings.at(sub(p.path, "key"), "a client that sends another %s each time has a new key each time: %s", keyText("", []string{part}), strings.Join(so, ", "))
	}
}

// doubtParam warns of an argument of all tools: servers check it for tools that mark it.
func (c *checker) doubtParam(p *scopedRule) {
	isRead := p.Cost != nil && p.Cost.Param != "" || c.canBe(p.parts, []string{"param"}) != ""
	if isRead && (!p.isConditional() || p.When.Tool == "") {
		c.warnings.at(p.path, "reads an argument of all tools, and of a tool that does not mark it with x-mcp-header nobody checks it, so that a client may send anything: name the tools with when: {tool: ...}")
	}
}

// holdEach reports whether one of these rules counts each client apart, whatever it sends.
func (c *checker) holdEach(at *scope) bool {
	return slices.ContainsFunc(at.rules, func(p scopedRule) bool {
		return p.enforces() && p.countsEach() && c.canBe(p.parts, uncheckedKinds) == "" && !c.areAlways(p.parts, sharedKinds)
	})
}

// doubtEnd warns of a client of a list or an override that has ended.
func (c *checker) doubtEnd(path []string, end date) {
	if !end.IsZero() && !c.now().Before(end.Time) {
		c.warnings.at(path, "is over since%s: remove it", strings.TrimPrefix(operate.Ends(end.Time, ""), " until"))
	}
}

// doubtNetworks warns of allowed networks with banned clients or a trusted proxy in them.
func (c *checker) doubtNetworks() {
	if b := c.file.Ban; b != nil {
		var banned []network
		for _, n := range b.CIDRs {
			banned = append(banned, n.network)
		}
		c.doubtAllowed(banned, "contains clients of %v, which is in ban.cidrs: a ban applies first, so they are refused")
	}
	if p := c.file.Proxies; p != nil {
		c.doubtAllowed(slices.Concat(p.Trusted, p.Forwarded), "contains the proxies of %v: a request without their header counts as the proxy's own and is never limited, and a client may be able to make a proxy drop the header")
	}
}

// doubtAllowed warns of allowed networks that overlap with others.
func (c *checker) doubtAllowed(others []network, warning string) {
	if c.file.Allow == nil {
		return
	}
	const enough = 1000 // to be written by a person, and each is compared with all others
	allowed := c.file.Allow.CIDRs
	for i, n := range allowed[:min(len(allowed), enough)] {
		for _, other := range others[:min(len(others), enough)] {
			if n.IsValid() && other.IsValid() && n.Overlaps(other.Prefix) {
				c.warnings.at(c.doc.Element([]string{"allow", "cidrs"}, i), warning, other.Prefix)
				break
			}
		}
	}
}

// keyText returns a key for messages and names, without the text after apikey: it should be a header's name, and may be
// a credential by mistake.
func keyText(and string, parts []string) string {
	texts := make([]string, len(parts))
	for i, part := range parts {
		all := choices(part)
		for j, choice := range all {
			if kind, _, _ := strings.Cut(choice, ":"); strings.TrimSpace(kind) == "apikey" {
				all[j] = kind
			}
		}
		texts[i] = strings.Join(all, "|")
	}
	return strings.Join(texts, and)
}
