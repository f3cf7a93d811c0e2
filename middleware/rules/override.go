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

// allowance makes the limits of a tier or a single key: its own, and the rule's where it has none.
func (c *checker) allowance(path []string, f *limitFields, limits []limiter.Limit, atOnce limiter.Concurrency) limiter.Allowance {
	if given := c.limits(path, f, false); given != nil {
		limits = given
	}
	if c.doc.Has(sub(path, "concurrency")...) {
		atOnce = c.concurrency(path, f)
	}
	return limiter.Join(limits, atOnce)
}

// overrides makes the limits of single keys of a rule.
func (c *checker) overrides(
	p *scopedRule, limits []limiter.Limit, atOnce limiter.Concurrency,
) map[string]middleware.Override {
	path, parts := sub(p.path, "overrides"), p.parts
	if len(p.Overrides) == 0 || len(parts) == 0 || c.noted(sub(p.path, "key")) {
		return nil
	}
	made := make(map[string]middleware.Override, len(p.Overrides))
	for _, text := range slices.Sorted(maps.Keys(p.Overrides)) {
		at, given := sub(path, text), p.Overrides[text]
		its := middleware.Override{Until: given.Until.Time, Because: given.Because}
		its.Limit = c.allowance(at, &given.limitFields, limits, atOnce)
		c.doubtEnd(sub(at, "until"), given.Until)
		key, err := c.keyOf(parts, text)
		if err != nil {
			c.atKey(at, "%s", err)
			continue
		}
		if _, twice := made[key]; twice {
			c.atKey(at, "is the same key as another entry")
		}
		made[key] = its
	}
	if part := c.canBe(parts, madeUpKinds); part != "" {
		c.warnings.atKey(path, "are for keys by %s: any client can send one to get another client's limit", keyText("", []string{part}))
	}
	return made
}

// keyOf returns the key that text names, if a rule with a key of these parts can have it. Errors do not
// quote text.
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
		case choice == "ip", strings.HasPrefix(choice, "ip/"):
			if key, err := c.addressKey(choice, text); key != "" || err != nil {
				return key, err
			}
		case isOfKind(choice, kind), strings.EqualFold(strings.ReplaceAll(choice, " ", ""), source):
			_, err := c.readers(text)
			return text, err
		}
	}
	return "", fmt.Errorf("is not a key of this rule, which counts by %s: want one as weir explain shows it", keyText(" and ", parts))
}

// addressKey returns the key of a client with this address or network, for the choice ip or, say,
// ip/24/48. It returns "" for other texts.
func (c *checker) addressKey(choice, text string) (string, error) {
	ip, err := netip.ParseAddr(text)
	prefix, wrong := netip.ParsePrefix(text)
	isPrefix := wrong == nil
	if isPrefix {
		ip = prefix.Masked().Addr()
	} else if err != nil {
		return "", nil
	}
	key, _ := c.ipKey(choice, ip)
	if isPrefix && key != text {
		return "", errors.New("is a network, not a key of this rule: write a client's address, or give clients of a network a tier")
	}
	return key, nil
}

// ipKey returns the key of a client with this address, for the choice ip or, say, ip/24/48, and its class.
// The key is "" if the choice is wrong, which is noted where it is written.
func (c *checker) ipKey(choice string, ip netip.Addr) (key string, class keyfunc.Class) {
	var widths []keyfunc.IPOption
	if p := c.file.Proxies; p != nil && p.IPv6Prefix != nil {
		widths = append(widths, keyfunc.IPv6Prefix(int(*p.IPv6Prefix)))
	}
	if f, err := keyfunc.Parse(choice, nil, widths...); err == nil {
		key, _ = f(&http.Request{RemoteAddr: netip.AddrPortFrom(ip, 1).String()}) // always has a key
	}
	return keyfunc.Classify(key)
}

var addressSamples = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}

// networks returns of which addresses, IPv4 or IPv6, the key's choice counts networks that neighbors share.
func (c *checker) networks(choice string) (families []string) {
	if choice != "ip" && !strings.HasPrefix(choice, "ip/") {
		return nil
	}
	for _, ip := range addressSamples {
		if _, class := c.ipKey(choice, ip); class == keyfunc.Network {
			families = append(families, map[bool]string{true: "IPv4", false: "IPv6"}[ip.Is4()])
		}
	}
	return families
}
