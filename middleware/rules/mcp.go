package rules

import (
	"cmp"
	"reflect"

	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/middleware"
)

// A rule's mcp becomes a rule of its own, which comes before all others of the endpoint.

// mcpVersion is a version of MCP; empty: none.
type mcpVersion string

func (v mcpVersion) String() string { return string(v) }

func (v *mcpVersion) UnmarshalText(text []byte) error {
	*v = mcpVersion(text)
	return route.Wrong(middleware.MCPVersion(string(text)).Match)
}

// splitMCP returns the rule that mcp stands for, or nil, and r without mcp, or nil if nothing else is set. A rule
// without a name gets one from the scope's.
func (r *rule) splitMCP(scope string) (version, rest *rule) {
	if r.MCP == "" {
		return nil, r
	}
	bare := *r
	bare.MCP = ""
	version = &rule{Name: cmp.Or(r.Name, scope) + " mcp", MCP: r.MCP, Mode: r.Mode}
	if version.Mode == "" || version.Mode == "enforce" {
		version.Mode = "deny"
	}
	if reflect.DeepEqual(bare, rule{Name: r.Name, Mode: r.Mode}) {
		version.Name = cmp.Or(r.Name, version.Name)
		return version, nil
	}
	return version, &bare
}

// mcp makes the rule that mcp stands for.
func (c *checker) mcp(p *scopedRule) middleware.Rule {
	if p.section != "endpoints" {
		c.at(sub(p.path, "mcp"), "is only for endpoints, such as \"POST /mcp\"")
	}
	if p.Mode == "shadow" {
		c.at(sub(p.path, "mode"), "is shadow, and mcp refuses requests: write mcp as a rule of its own")
	}
	p.made = middleware.MCPVersion(string(p.MCP))
	p.made.Name = p.name
	c.name(p.path, p.name)
	return p.made
}
