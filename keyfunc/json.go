package keyfunc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirgo/weir/internal/reading"
	"github.com/weirgo/weir/internal/route"
)

// mostDeep is how many objects a path may lead through, with the outermost.
const mostDeep = 4

// A jsonMember is a member of JSON bodies.
type jsonMember struct {
	path   string
	names  []string // of path
	folded []string // names by route.Fold
	most   int      // bytes of a body

	errTwo, errLong error
}

// newJSONMember returns the member at a path, in bodies of up to most bytes.
func newJSONMember(path string, most int, errLong error) (*jsonMember, error) {
	m := &jsonMember{
		path: path, names: strings.Split(path, "."), most: most,
		errTwo: ambiguous("two different fields " + path + " in its body"), errLong: errLong,
	}
	for _, name := range m.names {
		if name == "" || strings.Contains(name, ":") {
			return nil, fmt.Errorf("%.64q is not the name of a field, or a path such as generationConfig.maxOutputTokens, without a colon", path)
		}
		m.folded = append(m.folded, route.Fold(name))
	}
	if len(m.names) > mostDeep {
		return nil, fmt.Errorf("the path %.64q is %d names deep: it must be at most %d", path, len(m.names), mostDeep)
	}
	if most < 1 || most > mostBody {
		return nil, fmt.Errorf("maxBytes is %d bytes: it must be from 1 to %d", most, mostBody)
	}
	reading.InUse.Store(true)
	return m, nil
}

// JSONNumber returns a function for costs that reads a field of the JSON object in the request's body. It must be a whole
// number of at least 0, such as the max_tokens of a prompt. The path is as in [JSONField].
//
// The error is [ErrNoKey] if the field is missing or null. It wraps [ErrAmbiguous] in the cases of JSONField, for every
// other value, and if the name is in another case. A body longer than maxBytes is an error that the middleware answers
// 413. JSONNumber returns an error itself if JSONField would panic.
func JSONNumber(path string, maxBytes int) (func(*http.Request) (int64, error), error) {
	m, err := newJSONMember(path, maxBytes, errTooLarge)
	if err != nil {
		return nil, fmt.Errorf("keyfunc: JSONNumber: %w", err)
	}
	return m.number, nil
}

func (m *jsonMember) number(r *http.Request) (int64, error) {
	found, err := m.of(r)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(found.text, 10, 64)
	if err != nil || n < 0 || found.quoted || !found.exact {
		return 0, errOddValue
	}
	return n, nil
}

// newJSON is the key json:PATH.
func newJSON(path string) (Func, error) {
	m, err := newJSONMember(path, reading.MostJSON, errTooLarge)
	if err != nil {
		return nil, fmt.Errorf("keyfunc: %w", err)
	}
	return m.key, nil
}

func (m *jsonMember) key(r *http.Request) (string, error) {
	found, err := m.of(r)
	if err != nil {
		return "", err
	}
	return bodyTag + m.path + ":" + found.text, nil
}

var errTooLarge error = &reading.Error{
	Status: http.StatusRequestEntityTooLarge, Text: "keyfunc: the request has a body that is too long to read its fields",
}

// of returns the member of r's body.
func (m *jsonMember) of(r *http.Request) (found scalar, err error) {
	_, isHeld := r.Body.(*reading.Held)
	if !isHeld && m.errLong != errLongBody && r.ContentLength > int64(m.most) {
		return found, m.errLong // before it takes memory
	}
	text, err := Body(r, m.most)
	tooLong := errors.Is(err, errLongBody)
	switch {
	case tooLong && m.errLong != errLongBody:
		return found, m.errLong
	case err != nil && !tooLong:
		return found, err
	}
	object := bytes.TrimLeft(bytes.TrimPrefix(text, []byte("\ufeff")), jsonSpace)
	switch {
	case len(object) == 0 && !tooLong:
		return found, ErrNoKey
	case strings.Join(r.Header["Content-Encoding"], "") != "" || !isUTF8(r.Header["Content-Type"], text):
		return found, errEncoded
	case len(object) > 0 && object[0] != '{' && mayBeObject(text):
		return found, errNoJSON
	case len(object) > 0 && object[0] != '{':
		return found, ErrNoKey
	case tooLong:
		return found, m.errLong
	case isForm(r) && m.isInForm(string(text)):
		return found, errBoth
	}
	b, _ := reading.Behind[*body](r.Body)
	return b.member(m, object)
}

// isInForm reports whether a form has a field at the path of m, as in {"account":"jane","x":"&account=joe&"}.
func (m *jsonMember) isInForm(form string) bool {
	for pair := range strings.FieldsFuncSeq(form, func(c rune) bool { return c == '&' || c == ';' }) {
		if name, _, _ := strings.Cut(pair, "="); route.MayName(strings.ToLower(name), strings.ToLower(m.path)) {
			return true
		}
	}
	return false
}

// A foundMember is what was found in a body.
type foundMember struct {
	*jsonMember
	value scalar
	err   error
}

// member finds m in the object of the body, once.
func (b *body) member(m *jsonMember, object []byte) (scalar, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, known := range b.members {
		if known.path == m.path {
			return known.value, known.err
		}
	}
	if len(b.members) == 0 && (!utf8.Valid(object) || !json.Valid(object)) {
		return scalar{}, errNoJSON
	}
	found := foundMember{jsonMember: m}
	found.value, found.err = m.in(object, 0)
	b.members = append(b.members, found)
	return found.value, found.err
}

// in returns the member in an object of valid JSON, to which the first names of the path have led.
func (m *jsonMember) in(object []byte, depth int) (found scalar, err error) {
	var inner []byte
	exact := true
	for name, value := range members(object) {
		folded := route.Fold(name)
		if end := strings.IndexAny(folded, odd); end >= 0 && folded[:end] == m.folded[depth] {
			return found, errNoJSON
		}
		if folded != m.folded[depth] {
			continue
		}
		exact = exact && name == m.names[depth]
		if depth+1 < len(m.names) {
			if inner != nil {
				return found, m.errTwo
			}
			inner = value
			continue
		}
		given, err := scalarOf(value)
		switch {
		case err != nil:
			return found, err
		case given.text == "": // which changes nothing in a reader, or leaves nothing
		case found.text != "" && given != found:
			return found, m.errTwo
		default:
			found = given
		}
	}
	if len(inner) > 0 && inner[0] == '{' {
		found, err = m.in(inner, depth+1)
		exact = exact && found.exact
	} else if found.text == "" {
		err = ErrNoKey
	}
	found.exact = exact
	return found, err
}

// members yields the names and values of an object of valid JSON.
func members(object []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for rest := object[1:]; ; {
			var name, value []byte
			if name, rest = nextValue(rest); name == nil {
				return
			}
			value, rest = nextValue(rest)
			text := string(name[1 : len(name)-1])
			if strings.Contains(text, `\`) {
				_ = json.Unmarshal(name, &text) // it is valid
			}
			if !yield(text, value) {
				return
			}
		}
	}
}

// nextValue splits valid JSON behind its next value, and leaves out what separates values. The value is nil at the end
// of an object or array.
func nextValue(text []byte) (value, rest []byte) {
	text = bytes.TrimLeft(text, jsonSpace+",:")
	if text[0] == '}' || text[0] == ']' {
		return nil, text
	}
	end := 0
	for depth := 0; ; {
		switch text[end] {
		case '"':
			for end++; text[end] != '"'; end++ {
				if text[end] == '\\' {
					end++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		default:
			if depth == 0 { // a literal
				end += bytes.IndexAny(text[end:], jsonSpace+",}]") - 1
			}
		}
		if end++; depth == 0 {
			return text[:end], text[end:]
		}
	}
}

// A scalar is a string, or a whole number in its one spelling. Without text it is null or empty.
type scalar struct {
	text   string
	quoted bool
	exact  bool // its name is spelled as it is meant
}

func scalarOf(value []byte) (s scalar, err error) {
	switch text := string(value); {
	case text == "null":
		return s, nil
	case text[0] == '"':
		if err := json.Unmarshal(value, &s.text); err != nil {
			return s, errNoJSON
		}
		if strings.ContainsAny(s.text, odd) {
			return scalar{}, errOddValue
		}
		s.quoted = true
		return s, nil
	default:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && strconv.FormatInt(n, 10) == text {
			return scalar{text: text}, nil
		}
		return s, errOddValue
	}
}
