package rules

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/weirgo/weir/internal/envoy"
	"github.com/weirgo/weir/internal/yamlfile"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// Descriptors returns the limits for Envoy in the order of the file, without those that are off. Only
// `weir serve --rls` reads them.
func (r *Rules) Descriptors() []envoy.Descriptor { return slices.Clone(r.descriptors) }

type descriptor struct {
	Domain  string  `yaml:"domain" required:"true" doc:"The domain that the client's filter names."`
	Entries []entry `yaml:"entries" min:"1" required:"true" doc:"The entries of the descriptor, in their order."`

	FromRequest bool `yaml:"limit_from_request" default:"false" doc:"A limit in Envoy's request replaces this one."`
	rule
}

type entry struct {
	Key   string  `yaml:"key" required:"true" doc:"The key."`
	Value *string `yaml:"value" default:"any, each counted apart" doc:"The value."`
}

// inDescriptors are the fields of a rule that mean something in a descriptor: there is no HTTP request,
// and nobody says when one ends.
var inDescriptors = append([]string{"domain", "entries", "limit_from_request", "name", "on_outage", "mode", "when"}, limitNames...)

// of is what the file and its messages call a descriptor, and the name of its rule by default.
func (d *descriptor) of() string {
	texts := make([]string, len(d.Entries))
	for i, e := range d.Entries {
		if texts[i] = e.Key; e.Value != nil {
			texts[i] += "=" + *e.Value
		}
	}
	return d.Domain + "/" + strings.Join(texts, ",")
}

// descriptorScopes are those of the section descriptors, each of which has one rule.
func (f *file) descriptorScopes(doc *yamlfile.Document) (all []*scope) {
	for i := range f.Descriptors {
		d := &f.Descriptors[i]
		at := &scope{section: "descriptors", of: d.of(), path: doc.Element([]string{"descriptors"}, i), fromRequest: d.FromRequest}
		at.rules = []scopedRule{{at, &d.rule, at.path, cmp.Or(d.Name, at.of), nil, middleware.Rule{}}}
		all = append(all, at)
	}
	return all
}

// checkDescriptors makes what the section says.
func (c *checker) checkDescriptors() {
	c.descriptorScopes = c.file.descriptorScopes(c.doc)
	first := map[string][]string{}
	for i, at := range c.descriptorScopes {
		d, p := &c.file.Descriptors[i], &at.rules[0]
		if other := first[at.of]; other != nil {
			c.at(at.path, "is for the same descriptor as %s: keep one", yamlfile.Join(other))
		}
		first[at.of] = at.path
		if !c.isDescriptor(d, at.path) || c.noted(at.path) {
			continue
		}
		whole, after := p.rule, d.When != nil && d.When.Charge == "after"
		bare := *whole
		bare.When, p.rule = nil, &bare // the service charges by it, and not package middleware
		made := c.rule(p)
		p.rule = whole
		limits, _, _ := limiter.Split(made.Limit)
		if slices.ContainsFunc(limits, func(l limiter.Limit) bool { return l.Algorithm == limiter.LeakyBucket }) {
			c.at(at.path, "has a leaky bucket, but Envoy does not wait for a request's turn: write token_bucket")
		}
		if d.Mode == "off" {
			continue
		}
		of := envoy.Descriptor{
			Domain: d.Domain, Name: made.Name, Limit: made.Limit, OnOutage: made.OnOutage, Shadow: made.Mode == middleware.Shadow,
			After: after, FromRequest: d.FromRequest,
		}
		for _, e := range d.Entries {
			var value string
			if e.Value != nil {
				value = *e.Value
			}
			of.Entries = append(of.Entries, envoy.Entry{Key: e.Key, Value: value})
		}
		c.descriptors = append(c.descriptors, of)
	}
}

// isDescriptor reports whether all that a descriptor says means something, and notes what does not.
func (c *checker) isDescriptor(d *descriptor, path []string) bool {
	ok := true
	wrong := func(field, text string) {
		c.at(sub(path, field), "%s", text)
		ok = false
	}
	for _, f := range yamlfile.FieldsOf(reflect.TypeFor[descriptor]()) {
		if c.doc.Has(sub(path, f.Name)...) && !slices.Contains(inDescriptors, f.Name) {
			wrong(f.Name, "does not apply to a descriptor: want "+strings.Join(inDescriptors, ", "))
		}
	}
	if !c.doc.Has(sub(path, "domain")...) && !c.noted(sub(path, "domain")) {
		wrong("domain", "is required: a descriptor is a mapping with domain, entries and a limit")
	}
	if d.isConditional() {
		wrong("when", "has header or query, but a descriptor has no request: want before or after")
	}
	if d.Mode == "deny" {
		wrong("mode", "is deny: in a descriptor it must be enforce, shadow or off")
	}
	return ok
}
