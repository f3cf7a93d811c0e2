package rules

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// allowance is what a tier or a single key has: what is written for it, and else what its rule has.
func (c *checker) allowance(path []string, f *limitFields, limits []limiter.Limit, atOnce limiter.Concurrency) limiter.Allowance {
	if given := c.limits(path, f, false); given != nil {
		limits = given
	}
	if c.doc.has(sub(path, "concurrency")...) {
		atOnce = c.concurrency(path, f)
	}
	return limiter.Join(limits, atOnce)
}

// overrides are what single keys of a rule have.
func (c *checker) overrides(p *placed, limits []limiter.Limit, atOnce limiter.Concurrency) middleware.LimitMap {
	path, parts := sub(p.path, "overrides"), p.parts
	if len(p.Overrides) > 0 && len(parts) == 0 {
		c.at(path, "needs a key: without one there is one counter for all")
	}
	if len(p.Overrides) == 0 || len(parts) == 0 || c.noted(sub(p.path, "key")) {
		return nil
	}
	made := make(middleware.LimitMap, len(p.Overrides))
	for _, text := range slices.Sorted(maps.Keys(p.Overrides)) {
		at, given := sub(path, text), p.Overrides[text]
		its := c.allowance(at, &given, limits, atOnce)
		key, err := c.keyOf(parts, text)
		if err != nil {
			c.atKey(at, "%s", err)
			continue
		}
		if made[key] != nil {
			c.atKey(at, "is a key that stands there twice, in two spellings")
		}
		made[key] = its
	}
	if part := c.canBe(parts, madeUpKinds); part != "" {
		c.warnings.atKey(path, "are for keys by %s, which any client can send, to have another's limit", told("", []string{part}))
	}
	return made
}

// keyOf is the key that a request has under a rule's key of these parts, as a person writes it.
// Errors do not quote it.
func (c *checker) keyOf(parts []string, text string) (string, error) {
	kind, source, _ := keyfunc.KindOf(text)
	if len(parts) > 1 && kind == "join" {
		return text, nil
	}
	for _, choice := range choices(parts[0]) {
		switch {
		case len(parts) > 1:
		case c.options.Keys[choice] != nil:
			return text, nil // whatever it is
		case choice == "ip":
			if key, err := c.addressKey(text); key != "" || err != nil {
				return key, err
			}
		case isOfKind(choice, kind), strings.EqualFold(strings.ReplaceAll(choice, " ", ""), source):
			_, err := c.readers(text)
			return text, err
		}
	}
	return "", fmt.Errorf("is not a key of this rule, which counts by %s: want one as weir explain shows it", told(" and ", parts))
}

// addressKey is what a client with that address is counted under, or "" if it is none.
func (c *checker) addressKey(text string) (string, error) {
	bits := 64
	if p := c.file.Proxies; p != nil && p.IPv6Prefix != nil && *p.IPv6Prefix >= 32 && *p.IPv6Prefix <= 128 {
		bits = int(*p.IPv6Prefix)
	}
	if prefix, err := netip.ParsePrefix(text); err == nil {
		if prefix.Addr().Is6() && prefix.Bits() == bits && prefix == prefix.Masked() {
			return text, nil // as keyfunc writes it
		}
		return "", errors.New("is a network, and a key is one client: give clients of a network a tier")
	}
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return "", nil
	}
	f, err := keyfunc.NewIP(keyfunc.IPv6Prefix(bits))
	if err != nil {
		return "", err
	}
	return f(&http.Request{RemoteAddr: netip.AddrPortFrom(ip, 1).String()})
}
