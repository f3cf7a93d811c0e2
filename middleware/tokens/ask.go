package tokens

import (
	"bytes"
	"slices"
)

// Ask returns the body of a request for a chat completion of OpenAI, changed so that a stream ends with its usage:
// stream_options.include_usage is true. It reports whether the body was changed: then give [Watch] the option Asked.
// Each other byte stays the same. The body is not changed if it asks for no stream, if it asks for the usage itself, or
// if it is not JSON or has one of the members twice. A changed body is a copy.
//
// Other APIs answer 400 to the member: call Ask only for paths that end in /completions.
func Ask(body []byte) ([]byte, bool) {
	var a asker
	a.start(request)
	a.visitor = &a
	a.write(body)
	value := func(u use) string { return string(body[a.members[u].begin:a.members[u].end]) }
	all, o, usage := a.members[whole], a.members[options], a.members[includeUsage]
	if a.broken || a.depth > 0 || a.twice || all.first != '{' || value(streams) != "true" {
		return body, false
	}
	const member = `"include_usage":true`
	from, to, insert := all.begin+1, all.begin+1, `"stream_options":{`+member+`},`
	switch {
	case !o.given:
	case value(options) == "null":
		from, to, insert = o.begin, o.end, "{"+member+"}"
	case o.first != '{':
		return body, false
	case !usage.given:
		from, to, insert = o.begin+1, o.begin+1, member
		if bytes.TrimLeft(body[from:], " \t\r\n")[0] != '}' {
			insert += ","
		}
	case value(includeUsage) == "false" || value(includeUsage) == "null":
		from, to, insert = usage.begin, usage.end, "true"
	default:
		return body, false
	}
	return slices.Concat(body[:from], []byte(insert), body[to:]), true
}

const (
	whole use = iota
	streams
	options
	includeUsage
)

// request has the members that Ask looks for.
var request = tree(map[use][]string{
	streams:      {"stream"},
	options:      {"stream_options"},
	includeUsage: {"stream_options.include_usage"},
})

// An asker finds out whether a request asks for its usage.
type asker struct {
	scanner
	members [includeUsage + 1]member
	twice   bool // a member is there twice
}

// A member is where a member's value is in a body.
type member struct {
	given      bool
	first      byte
	begin, end int // end: of a literal
}

// begin implements visitor.
func (a *asker) begin(n *node, c byte) {
	m := &a.members[n.use]
	a.twice = a.twice || m.given
	*m = member{given: true, first: c, begin: a.at}
}

// end implements visitor.
func (a *asker) end(n *node, _ byte, _ []byte, _ int64) { a.members[n.use].end = a.at }
