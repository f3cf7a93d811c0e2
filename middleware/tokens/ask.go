package tokens

import (
	"bytes"
	"slices"
)

// Ask returns the body of a request for a chat completion of OpenAI, changed so that a stream ends with its usage:
// stream_options.include_usage is true. It reports whether the body was changed: then give [Watch] the option Asked.
// Each other byte stays the same. The body is not changed if it asks for no stream, if it asks for the usage itself, or
// if it is not JSON or has one of the members twice. As append does, Ask reuses the memory of body if it has room, which
// 40 bytes are.
//
// Other APIs answer 400 to the member: call Ask only for paths that end in /completions.
func Ask(body []byte) ([]byte, bool) {
	var a asker
	a.start(request)
	a.visitor = &a
	a.write(body)
	if a.broken || a.depth > 0 || !a.members[whole].isObject || !a.streams || a.asks || a.unclear {
		return body, false
	}
	const member = `"include_usage":true`
	in, insert := a.members[whole], `"stream_options":{`+member+`},`
	from, to := in.begin+1, in.begin+1 // before the first member
	options, usage := a.members[options], a.members[includeUsage]
	switch {
	case usage.given:
		from, to, insert = usage.begin, usage.end, "true"
	case options.isObject:
		from, to, insert = options.begin+1, options.begin+1, member+","
		if bytes.HasPrefix(bytes.TrimLeft(body[from:], " \t\r\n"), []byte{'}'}) {
			insert = member
		}
	case options.given: // null
		from, to, insert = options.begin, options.end, "{"+member+"}"
	}
	return slices.Replace(body, int(from), int(to), []byte(insert)...), true
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
	streams bool
	asks    bool
	unclear bool
}

// A member is the place of a member's value in a body.
type member struct {
	given, isObject bool
	begin, end      int64
}

// begin implements visitor.
func (a *asker) begin(n *node, c byte) {
	m := &a.members[n.use]
	a.unclear = a.unclear || m.given
	*m = member{given: true, isObject: c == '{', begin: a.at}
}

// end implements visitor.
func (a *asker) end(n *node, c byte, value []byte, _ int64) {
	a.members[n.use].end = a.at
	isTrue, isNull := string(value) == "true" && c == 't', string(value) == "null" && c == 'n'
	switch n.use {
	case streams:
		a.streams = isTrue
	case options:
		a.unclear = a.unclear || c != '{' && !isNull
	case includeUsage:
		a.asks = isTrue
		a.unclear = a.unclear || !isTrue && !isNull && (c != 'f' || string(value) != "false")
	}
}
