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

// doubtNetworks warns of networks that are both banned and allowed.
func (c *checker) doubtNetworks() {
	if c.file.Ban == nil || c.file.Allow == nil {
		return
	}
	const enough = 1000 // to be written by a person, and each is compared with all others
	banned := c.file.Ban.CIDRs[:min(len(c.file.Ban.CIDRs), enough)]
	for i, n := range c.file.Allow.CIDRs[:min(len(c.file.Allow.CIDRs), enough)] {
		for _, other := range banned {
			if n.IsValid() && other.IsValid() && n.Overlaps(other.Prefix) {
				c.warnings.at(c.element([]string{"allow", "cidrs"}, i), "has clients of %v, which is in ban.cidrs, and a ban goes first", other.Prefix)
				break
			}
		}
	}
}
