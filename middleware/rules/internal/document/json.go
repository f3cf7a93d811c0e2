package document

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// readJSON builds the nodes of data, which is valid JSON. Not the YAML parser: it takes
// tabs amiss, and long lines long.
func readJSON(data []byte) (*node, problems) {
	r := &jsonReader{data: data, at: Position{1, 1}, decoder: json.NewDecoder(bytes.NewReader(data))}
	r.decoder.UseNumber()
	root := r.value(0)
	if r.refused {
		root = nil
	}
	return root, r.problems
}

type jsonReader struct {
	builder
	decoder *json.Decoder
	data    []byte
	seen    int      // bytes of data that at has passed
	at      Position // of data[seen]
}

// token is the next token, and where it begins. Data is valid: there are no errors.
func (r *jsonReader) token() (json.Token, Position) {
	from := int(r.decoder.InputOffset())
	for bytes.IndexByte([]byte(" \t\r\n,:"), r.data[from]) >= 0 {
		from++
	}
	t, _ := r.decoder.Token()
	for ; r.seen < from; r.seen++ {
		switch c := r.data[r.seen]; {
		case c == '\n', c == '\r' && !bytes.HasPrefix(r.data[r.seen+1:], []byte("\n")):
			r.at = Position{r.at.Line + 1, 1}
		case utf8.RuneStart(c):
			r.at.Column++
		}
	}
	return t, r.at
}

func (r *jsonReader) value(depth int) *node {
	t, at := r.token()
	n := &node{Position: at, values: 1}
	if depth > maxDepth {
		r.refuse(at, "%s", tooDeep())
		return n
	}
	switch t := t.(type) {
	case nil:
		n.kind = null
	case string:
		n.kind, n.text = text, t
	case json.Number:
		n.kind, n.text = number, t.String()
	case bool:
		n.kind, n.text = boolean, map[bool]string{false: "false", true: "true"}[t]
	case json.Delim:
		n.kind = list
		if t == '{' {
			n.kind = mapping
		}
		for !r.refused && r.decoder.More() {
			var e entry
			if n.kind == mapping {
				t, at := r.token()
				e.key, e.at = t.(string), at
			}
			e.value = r.value(depth + 1)
			r.add(n, e)
		}
		if !r.refused {
			r.token() // what closes it
		}
	}
	return n
}
