// Package answer writes the texts of refusals, in the format that the client accepts.
package answer

import (
	"strconv"
	"strings"
)

// Facts are what the answer to a refused request says.
type Facts struct {
	Kind     Kind
	Status   int      // of the answer
	Seconds  int64    // until a retry may pass; 0: unknown, or waiting does not help. Programs get Wait
	Stop     bool     // clients should not retry, though they may wait
	AtOnce   int64    // with the Kind AtOnce: how many requests may be in progress
	Violated []string // the names of the rules whose limits refuse, as JSON strings

	// The application's texts. Type is a URI. If Type is set and Title is empty, there is no title. If any
	// other text is empty, the Kind has it.
	Type, Title, Message string

	// What {rule} and {limit} stand for in Message.
	Rule, Limit string
}

// MostWait is the longest wait that programs get, in seconds: 24 days. Timers of JavaScript overflow after 2^31 ms, and
// then fire at once.
const MostWait = 24 * 24 * 3600

// Wait returns Seconds, or MostWait if that is less. Only the sentence, for humans, has Seconds.
func (f *Facts) Wait() int64 { return min(f.Seconds, MostWait) }

// Append appends the body of the answer to b. It allocates nothing if b has room.
func Append(b []byte, format Format, f *Facts) []byte {
	switch format {
	case Problem:
		return f.appendProblem(b)
	case JSON:
		return f.appendJSON(b)
	case RPC:
		return f.appendRPC(b)
	case AI:
		return f.appendAI(b)
	}
	return append(f.appendMessage(b, false), '\n')
}

// appendProblem appends a problem object (RFC 9457). Draft-11 may still rename its last member.
func (f *Facts) appendProblem(b []byte) []byte {
	kind := &kinds[f.Kind]
	uri, title := kind.problem, kind.title
	if f.Type != "" {
		uri, title = f.Type, ""
	}
	if f.Title != "" {
		title = f.Title
	}
	b = append(b, '{')
	if uri != "" {
		b = append(append(append(b, `"type":"`...), uri...), `",`...)
	}
	if title != "" {
		b = append(appendString(append(b, `"title":"`...), title, true), `",`...)
	}
	b = strconv.AppendInt(append(b, `"status":`...), int64(f.Status), 10)
	b = append(f.appendMessage(append(b, `,"detail":"`...), true), '"')
	if len(f.Violated) > 0 {
		b = append(b, `,"violated-policies":[`...)
		for i, name := range f.Violated {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, name...)
		}
		b = append(b, ']')
	}
	return f.appendEnd(b)
}

// appendJSON appends an object for clients that did not ask for a problem object.
func (f *Facts) appendJSON(b []byte) []byte {
	b = append(append(append(b, `{"error":"`...), kinds[f.Kind].code...), `","message":"`...)
	b = append(f.appendMessage(b, true), '"')
	return f.appendWait(b)
}

// appendWait appends the time to wait, and the end of the object.
func (f *Facts) appendWait(b []byte) []byte {
	if f.Seconds > 0 {
		b = strconv.AppendInt(append(b, `,"retry_after":`...), f.Wait(), 10)
	}
	return f.appendEnd(b)
}

// appendAI appends an error as OpenAI and Anthropic have them: the SDKs of both parse it.
func (f *Facts) appendAI(b []byte) []byte {
	kind := &kinds[f.Kind]
	b = append(append(append(b, `{"type":"error","error":{"type":"`...), kind.ai...), `","code":"`...)
	b = append(append(b, kind.code...), `","message":"`...)
	b = append(f.appendMessage(b, true), `","param":null}`...)
	return f.appendWait(b)
}

// appendEnd appends the end of an object of a refusal.
func (f *Facts) appendEnd(b []byte) []byte {
	if f.Stop {
		b = append(b, `,"retry":false`...)
	}
	return append(b, '}')
}

// appendRPC appends an error of JSON-RPC 2.0, as MCP has them. It has no id, which MCP allows where the id could not
// be read: the id is in the body, which a client may hold back. Codes from -32768 to -32000 belong to JSON-RPC and MCP.
// SEP-3304, a draft, names the members of data.
func (f *Facts) appendRPC(b []byte) []byte {
	b = append(b, `{"jsonrpc":"2.0","error":{"code":429,"message":"`...)
	b = append(f.appendMessage(b, true), '"')
	if f.Seconds > 0 {
		b = strconv.AppendInt(append(b, `,"data":{"retryAfterMs":`...), f.Wait()*1000, 10)
		b = append(strconv.AppendInt(append(b, `,"retryAfter":`...), f.Wait(), 10), '}')
	}
	return append(b, "}}"...)
}

// appendMessage appends the application's message or the sentences of the kind, which JSON need not escape.
// If there is no time to wait, a message that states the time is not used.
func (f *Facts) appendMessage(b []byte, escape bool) []byte {
	if f.Message != "" && (f.Seconds > 0 || !statesTime(f.Message)) {
		return f.appendOwn(b, escape)
	}
	switch {
	case f.Kind == AtOnce && f.AtOnce == 1:
		b = append(b, "A request is in progress, and no more than one is allowed at once."...)
	case f.Kind == AtOnce:
		b = append(strconv.AppendInt(b, f.AtOnce, 10), " requests are in progress, and no more are allowed at once."...)
	default:
		b = append(b, kinds[f.Kind].message...)
	}
	if f.Seconds > 0 {
		b = append(appendDuration(append(b, " Try again in "...), f.Seconds), '.')
	}
	return b
}

// The placeholders of a message.
const (
	retryAfter = "{retry_after}"
	seconds    = "{seconds}"
	rule       = "{rule}"
	limit      = "{limit}"
)

var placeholders = [...]string{retryAfter, seconds, rule, limit}

func statesTime(message string) bool {
	return strings.Contains(message, retryAfter) || strings.Contains(message, seconds)
}

// StatesLimit reports whether a message needs Facts.Limit.
func StatesLimit(message string) bool { return strings.Contains(message, limit) }

// IsMessage reports whether each { of a message begins a placeholder.
func IsMessage(message string) bool {
	for message != "" {
		var before string
		if before, _, message = cut(message); strings.Contains(before, "{") {
			return false
		}
	}
	return true
}

// cut splits a message around its first placeholder.
func cut(message string) (before, placeholder, after string) {
	for i := range len(message) {
		if message[i] != '{' {
			continue
		}
		for _, name := range placeholders {
			if after, found := strings.CutPrefix(message[i:], name); found {
				return message[:i], name, after
			}
		}
	}
	return message, "", ""
}

// appendOwn appends the application's message.
func (f *Facts) appendOwn(b []byte, escape bool) []byte {
	for rest := f.Message; rest != ""; {
		var before, placeholder string
		before, placeholder, rest = cut(rest)
		b = appendString(b, before, escape)
		switch placeholder {
		case retryAfter:
			b = appendDuration(b, f.Seconds)
		case seconds:
			b = strconv.AppendInt(b, f.Seconds, 10)
		case rule:
			b = appendString(b, f.Rule, escape)
		case limit:
			b = appendString(b, f.Limit, escape)
		}
	}
	return b
}

// appendString appends text, which is UTF-8, as it is or as part of a JSON string.
func appendString(b []byte, text string, escape bool) []byte {
	if !escape {
		return append(b, text...)
	}
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = append(b, `\u00`...)
			b = append(b, "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		default:
			b = append(b, c)
		}
	}
	return b
}

// appendDuration appends seconds in words. From two minutes on it rounds to the nearest minute, hour or
// day.
func appendDuration(b []byte, seconds int64) []byte {
	n, unit := seconds, "second"
	switch {
	case seconds >= 2*24*3600:
		n, unit = (seconds+12*3600)/(24*3600), "day"
	case seconds >= 2*3600:
		n, unit = (seconds+1800)/3600, "hour"
	case seconds >= 2*60:
		n, unit = (seconds+30)/60, "minute"
	}
	b = append(append(strconv.AppendInt(b, n, 10), ' '), unit...)
	if n != 1 {
		b = append(b, 's')
	}
	return b
}
