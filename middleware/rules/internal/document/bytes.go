package document

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// checkBytes refuses what is no text, and what only some parsers take for the end of a
// line. It returns the rest without its byte order mark.
func checkBytes(data []byte) ([]byte, problems) {
	var found problems
	if len(data) > MaxBytes {
		found.add(Position{1, 1}, nil, "the document is %d bytes long: want at most %d", len(data), MaxBytes)
		return nil, found
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	at := Position{1, 1}
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			found.add(at, nil, "the byte %#x is not UTF-8", data[i])
			return nil, found
		case strings.ContainsRune("\n\r\t", r):
		case r < ' ', r >= 0x7f && r < 0xa0, strings.ContainsRune("\u2028\u2029\ufeff\ufffe\uffff", r):
			found.add(at, nil, "the control character %U is not allowed", r)
			return nil, found
		}
		at.Column++
		if r == '\n' || r == '\r' && !bytes.HasPrefix(data[i+1:], []byte("\n")) {
			at = Position{at.Line + 1, 1}
		}
		i += size
	}
	return data, found
}
