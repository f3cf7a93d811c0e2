package middleware

import (
	"strconv"
	"strings"
)

// The formats of a refusal's body. If a client accepts several with the same weight, the first one wins.
const (
	formatProblem = iota // only if the client names it
	formatJSON           // also for clients that accept anything or send no Accept
	formatText           // also for text/html, for browsers
)

// ranges says how specifically each media range names each format; 0: not at all.
var ranges = map[string][3]int{
	"application/problem+json": {formatProblem: 3},
	"application/json":         {formatJSON: 3},
	"text/plain":               {formatText: 3},
	"text/html":                {formatText: 3},
	"application/*":            {formatJSON: 2},
	"text/*":                   {formatText: 2},
	"*/*":                      {formatJSON: 1, formatText: 1},
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

// negotiate picks the format for an Accept field (RFC 9110 section 12.5.1). For each format the most
// specific range counts, and the highest weight wins. A field that is too long is ignored.
func negotiate(accept []string) int {
	if !isReadable(accept) {
		return formatJSON
	}
	var weights [3]float64
	var specific [3]int
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
	best := formatJSON
	for _, format := range []int{formatText, formatProblem} {
		if weights[format] > weights[best] || weights[format] == weights[best] && format < best && weights[format] > 0 {
			best = format
		}
	}
	return best
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
