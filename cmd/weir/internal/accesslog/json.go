package accesslog

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/valyala/fastjson"
)

// An object reads lines of JSON: the values at some paths.
type object struct {
	json  fastjson.Parser
	paths []path
	room  []byte
}

// A path leads to a value, such as $.request.headers["User-Agent"][0].
type path struct {
	mapping
	names    []string // of members, and indexes of elements
	isMapped bool     // by Options.Map
	met      bool     // a line had it, perhaps as null
}

// step is one name of a path, or an index.
var step = regexp.MustCompile(`^(?:\.([^.\[]+)|\["(.+?)"\]|\[([0-9]{1,5})\])`)

func splitPath(path string) (names []string, err error) {
	rest, ok := strings.CutPrefix(path, "$")
	for ok && rest != "" {
		found := step.FindStringSubmatch(rest)
		if ok = found != nil; ok {
			names, rest = append(names, found[1]+found[2]+found[3]), rest[len(found[0]):]
		}
	}
	if names == nil || !ok {
		return nil, fmt.Errorf("%q is no path in JSON such as $.user.id or $.headers[\"X-Device\"][0]", path)
	}
	return names, nil
}

// parse implements lineParser.
func (o *object) parse(p *parser, e *Entry, line []byte) (at int, wrong string) {
	if !bytes.HasPrefix(bytes.TrimLeft(line, " \t"), []byte("{")) {
		return 0, "is not a JSON object"
	}
	v, err := o.json.ParseBytes(line)
	if err != nil {
		return 0, fmt.Sprintf("is no JSON: %.200s", strings.TrimPrefix(err.Error(), "cannot parse JSON: "))
	}
	for i := range o.paths {
		path := &o.paths[i]
		found := v.Get(path.names...)
		if found == nil {
			continue
		}
		path.met = true
		text, ok := o.text(found), true
		if elements := found.GetArray(); elements != nil {
			text, ok = o.lines(elements)
			ok = ok && slices.Contains(p.headers, path.slot.name)
		}
		if (!ok || found.Type() == fastjson.TypeObject) && path.isMapped {
			name := path.names[len(path.names)-1]
			return max(1, bytes.Index(line, []byte(name))), fmt.Sprintf("%s is an %v: say where in it", path.place, found.Type())
		}
		if !ok || text == "" || text == "-" { // as if there were nothing
			continue
		}
		if wrong := p.put(e, path.slot, text); wrong != "" {
			return max(1, bytes.Index(line, []byte(text))), fmt.Sprintf("%s %.80q %s", path.place, text, wrong)
		}
	}
	return 0, ""
}

// lines joins the lines of a header. It is not ok if an element is not a text.
func (o *object) lines(elements []*fastjson.Value) (text string, ok bool) {
	var lines []string
	for _, element := range elements {
		lines = append(lines, o.text(element))
	}
	return strings.Join(lines, "\n"), !slices.Contains(lines, "")
}

// text returns a copy of a value's text, as the parser reuses its own. Null, an object and an array have
// no text.
func (o *object) text(v *fastjson.Value) string {
	switch v.Type() {
	case fastjson.TypeString:
		b, _ := v.StringBytes()
		return string(b)
	case fastjson.TypeNumber, fastjson.TypeTrue, fastjson.TypeFalse:
		o.room = v.MarshalTo(o.room[:0])
		return string(o.room)
	}
	return ""
}
