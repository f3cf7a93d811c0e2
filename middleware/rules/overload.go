package rules

import (
	"reflect"
	"slices"

	"github.com/weirgo/weir/middleware"
)

// A bound is the limiter that Options.Overload made, and the section that it was made of.
type bound struct {
	of *overload
	is middleware.Overload
}

// overload makes Config.Overload, or keeps the one in force.
func (c *checker) overload() {
	o, path := c.file.Overload, []string{"overload"}
	if o == nil {
		return
	}
	before := len(c.list)
	c.priority(sub(path, "priority"), o.Priority)
	routes := c.routes(sub(path, "exempt"), o.Exempt, "", "so nothing is bounded: name some routes, or leave overload out")
	switch {
	case c.config.Overload != nil:
		c.atKey(path, "is set, and so is the application's Config.Overload: keep one")
		return
	case c.options.Overload == nil:
		c.atKey(path, "needs rules.Options.Overload, such as shed.FromRules, which this program does not set")
		return
	case len(c.list) > before || c.noted(path):
		return
	}
	if c.bound = c.options.bound; c.bound.is == nil || !reflect.DeepEqual(c.bound.of, o) {
		options := middleware.OverloadOptions{Priority: o.Priority, PerRoute: o.PerRoute}
		if o.MaxWait != nil {
			options.MaxWait = o.MaxWait.Duration
		}
		if len(routes) > 0 {
			options.Exempt = middleware.Route(routes...)
		}
		is, err := c.options.Overload(options)
		switch {
		case err != nil:
			c.reject(path, err)
			return
		case is == nil:
			c.at(path, "needs a limiter, and rules.Options.Overload returned nil")
			return
		}
		c.bound = bound{o, is}
	}
	c.config.Overload = c.bound.is
}

// priority checks the tiers.
func (c *checker) priority(path []string, tiers []string) {
	for i, tier := range tiers {
		at := c.doc.Element(path, i)
		switch {
		case c.noted(at):
		case slices.Contains(tiers[:i], tier):
			c.at(at, "names %q twice", tier)
		default:
			c.tier(at, tier)
		}
	}
}
