package answer

import (
	"strconv"
	"strings"
)

// A Format is the format of an answer's body.
type Format uint8

// If a client accepts several formats with the same weight, the first one wins.
const (
	Problem Format = iota // only if the client names it
	JSON                  // also for clients that accept anything or send no Accept
	Text                  // also for text/html, for browsers
	RPC                   // an error of JSON-RPC, in place of JSON; see ForAgents
	AI                    // an error that the SDKs of OpenAI and Anthropic parse, in place of JSON
)

var contentTypes = [...]string{
	Problem: "application/problem+json",
	JSON:    "application/json",
	Text:    "text/plain; charset=utf-8",
	RPC:     "application/json",
	AI:      "application/json",
}

// ContentType returns the value of the header field Content-Type.
func (f Format) ContentType() string { return contentTypes[f] }

// ranges says how specifically each media range names each format; 0: not at all.
var ranges = map[string][len(contentTypes)]int{
	"application/problem+json": {Problem: 3},
	"application/json":         {JSON: 3},
	"text/plain":               {Text: 3},
	"text/html":                {Text: 3},
	"application/*":            {JSON: 2},
	"text/*":                   {Text: 2},
	"*/*":                      {JSON: 1, Text: 1},
}

// The longest Accept field that is read, over all its lines. Browsers send some 150 bytes and ten
// elements. A refusal must be cheap, whatever the client sends.
const (
	mostAcceptBytes    = 2048
	mostAcceptElements = 64
)

// isReadable reports whether an Accept field is short enough to be read.
func isReadable(accept []string) bool {
	bytes, elements := 0, 0
	for _, line := range accept {
		if bytes += len(line) + 1; bytes > mostAcceptBytes {
			return false
		}
		if elements += 1 + strings.Count(line, ","); elements > mostAcceptElements {
			return false
		}
	}
	return true
}

// Negotiate returns the format for the lines of an Accept field (RFC 9110 section 12.5.1). For each format
// the most specific range counts, and the highest weight wins. A field that is too long is ignored.
func Negotiate(accept []string) Format {
	if !isReadable(accept) {
		return JSON
	}
	var weights [len(contentTypes)]float64
	var specific [len(contentTypes)]int
	for _, line := range accept {
		for element := range strings.SplitSeq(line, ",") {
			media, params, _ := strings.Cut(element, ";")
			q := weight(params)
			for format, specificity := range ranges[strings.ToLower(strings.TrimSpace(media))] {
				switch {
				case specificity > specific[format]:
					specific[format], weights[format] = specificity, q
				case specificity == specific[format] && specificity > 0:
					weights[format] = max(weights[format], q)
				}
			}
		}
	}
	best, most := JSON, 0.0
	for format, weight := range weights {
		if weight > most {
			best, most = Format(format), weight
		}
	}
	return best
}

// ForAgents returns RPC for a client that calls a method by MCP and accepts JSON. A notification is answered by no
// JSON-RPC message, so it keeps its format.
func ForAgents(format Format, method string) Format {
	if format == JSON && !strings.HasPrefix(method, "notifications/") {
		return RPC
	}
	return format
}

// weight returns the q of a media range's parameters: 1 if there is none, 0 if it is malformed.
func weight(params string) float64 {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
		if !strings.EqualFold(name, "q") {
			continue
		}
		q, err := strconv.ParseFloat(value, 64)
		if err != nil || !(q >= 0 && q <= 1) {
			return 0
		}
		return q
	}
	return 1
}
