package document_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules/internal/document"
)

func TestEveryMistakeIsSaidWithItsPlace(t *testing.T) {
	t.Parallel()
	const fine = "version: 1\n"
	for claim, c := range map[string]struct {
		text string
		want []string
	}{
		"all mistakes are found, in the order of the document": {
			"opne: true\nversion: x\nrooms:\n  hall: {windows: [{width: 1.5}, {high: 1}], size: a}\n",
			[]string{
				`1:1: opne: unknown field "opne": did you mean "open"?`,
				`2:10: version: is text: want a whole number, written in digits: 1000, or 1_000`,
				`4:28: rooms.hall.windows.0.width: is "1.5": want a whole number, written in digits: 1000, or 1_000`,
				`4:35: rooms.hall.windows.1: unknown field: want one of width, panes, frames`,
			},
		},
		"an unknown field far from all others gets the list":  {fine + "zzzzz: 1", []string{`2:1: unknown field: want one of version, open, name, small, colors, rooms, cellar, street, number`}},
		"a name in other spelling is near":                    {fine + "Street: a", []string{`2:1: Street: unknown field "Street": did you mean "street"?`}},
		"swapped letters are near":                            {fine + "nmae: a", []string{`2:1: nmae: unknown field "nmae": did you mean "name"?`}},
		"the first of a duplicate counts":                     {fine + "name: a\nname: {}\n", []string{`3:1: name: duplicate key: the first is on line 2`}},
		"keys that somebody chose can't be duplicates either": {fine + "rooms:\n  a b: 1\n  \"a b\": 2\n", []string{`4:3: rooms."a b": duplicate key: the first is on line 3`}},
		"duplicates are found in JSON":                        {`{"version": 1, "name": "a", "name": "b"}`, []string{`1:29: name: duplicate key: the first is on line 1`}},
		"a colon makes a mapping":                             {fine + "name: {a: b}", []string{`2:7: name: is a mapping: want text; what has a colon in it needs quotes`}},
		"a list is no text":                                   {fine + "name: [a]", []string{`2:7: name: is a list: want text`}},
		"a mapping is no list":                                {fine + "rooms: {a: {size: b, windows: {panes: {}}}}", []string{`2:39: rooms.a.windows.panes: is a mapping: want a whole number`}},
		"a list is no mapping":                                {fine + "rooms: [a]", []string{`2:8: rooms: is a list: want a mapping`}},
		"a list is no shorthand":                              {fine + "cellar: [a]", []string{`2:9: cellar: is a list: want text, or a mapping`}},
		"a number is no text":                                 {fine + "name: 10", []string{`2:7: name: is a number: want text, so put it in quotes`}},
		"yes is not true":                                     {fine + "open: yes", []string{`2:7: open: is text: want true or false, without quotes`}},
		"1 is not true":                                       {fine + "open: 1", []string{`2:7: open: is a number: want true or false`}},
		"a type's own complaint is the message":               {fine + "colors:\n  - red\n  - sky blue\n", []string{`4:5: colors.1: that is no color`}},
		"a single element's complaint is at the list":         {fine + "colors: 7", []string{`2:9: colors: that is no color`}},
		"an integer fits":                                     {fine + "small: 128", []string{`2:8: small: is "128": the number is out of range`}},
		"an integer fits 64 bits":                             {fine + "number: 9223372036854775808", []string{`2:9: number: is "9223372036854775808": the number is out of range`}},
		"a required field is missed where its mapping is named": {"rooms:\n  hall: {}\n", []string{
			`1:1: version: is required, and missing`, `2:3: rooms.hall.size: is required, and missing`}},
		"a field has a value":            {fine + "name:\nopen: ~\ncellar:\nrooms:\n  # hall: large\ncolors:\n", []string{`2:1: name: has no value`, `3:1: open: has no value`, `4:1: cellar: has no value`, `5:1: rooms: has no value`, `7:1: colors: has no value`}},
		"an element has a value":         {fine + "colors:\n  - red\n  -\n", []string{`4:4: colors.1: has no value`}},
		"a value in a mapping is one":    {fine + "rooms:\n  hall:\n", []string{`3:3: rooms.hall: has no value`}},
		"null is no value in JSON":       {`{"version": null}`, []string{`1:2: version: has no value`}},
		"nothing is empty":               {"", []string{"1:1: the document is empty"}},
		"comments are empty":             {"# a\n---\n# b\n", []string{"1:1: the document is empty"}},
		"null is empty":                  {"null", []string{"1:1: the document is empty"}},
		"text is no document":            {"hello", []string{"1:1: is text: want a mapping"}},
		"a list is no document":          {"- a", []string{"1:1: is a list: want a mapping"}},
		"there is one document":          {"version: 1\n---\nversion: 2\n", []string{"2:1: another document begins here: want one"}},
		"there is nothing after the end": {"version: 1\n...\nversion: 2\n", []string{"3:1: another document begins here: want one"}},
		"YAML is not indented with tabs": {"rooms:\n\thall: 1\n", []string{`2:1: syntax: lines are indented with spaces, not with tabs`}},
		"a quote ends":                   {"version: 1\nname: \"a\n", []string{"2:7: syntax: found unexpected end of stream, while scanning a quoted scalar"}},
		"a list ends":                    {"colors: [red\n", []string{"1:9: syntax: did not find expected ',' or ']', while parsing a flow sequence"}},
		"a mapping ends":                 {"{\"version\": 1", []string{"1:1: syntax: did not find expected ',' or '}', while parsing a flow mapping"}},
		"two colons are one too many":    {"name: a: b\n", []string{"1:8: syntax: mapping values are not allowed in this context"}},
		"keys are text": {fine + "rooms: {404: big, true: b, ~: c}\n", []string{
			`2:9: the key is not text: put it in quotes`, `2:19: the key is not text: put it in quotes`, `2:28: the key is not text: put it in quotes`}},
		"lists are no keys":                   {fine + "rooms: {[a]: b}\n", []string{"2:9: the key is a list, a mapping or an alias: want text"}},
		"complex keys are not supported":      {"? {version: 1}\n: 1\n", []string{"1:3: the key is a list, a mapping or an alias: want text"}},
		"merge keys are not supported":        {"rooms: &r\n  a: b\ncellar:\n  <<: *r\n", []string{"4:3: merge keys (<<) are not supported; write the fields, or give the whole mapping an alias"}},
		"tags are not supported":              {"version: !!int 1\nname: !x a\n", []string{"1:10: tags (!name) are not supported; text that begins with ! needs quotes", "2:7: tags (!name) are not supported; text that begins with ! needs quotes"}},
		"directives are not supported":        {"%YAML 1.2\n---\nversion: 1\n", []string{"1:1: directives (%NAME) are not supported; text that begins with % needs quotes"}},
		"an alias has an anchor":              {"rooms:\n  *: big\n", []string{"2:3: unknown alias: no anchor of its name stands before it; text that begins with * needs quotes"}},
		"an anchor stands before its aliases": {"name: *a\nstreet: &a b\n", []string{"1:7: unknown alias: no anchor of its name stands before it; text that begins with * needs quotes"}},
		"an alias is not in its own anchor":   {"rooms: &a {b: *a}\n", []string{"1:15: the alias is within its own anchor"}},
		"a document is UTF-8":                 {"name: é\xff\n", []string{"1:8: the byte 0xff is not UTF-8"}},
		"control characters are refused":      {"a: 1\r\nname: é\x00\n", []string{"2:8: the control character U+0000 is not allowed"}},
		"columns are characters": {"{version: 1, é: ü, ö: x}", []string{
			`1:14: unknown field: want one of version, open, name, small, colors, rooms, cellar, street, number`,
			`1:20: unknown field: want one of version, open, name, small, colors, rooms, cellar, street, number`}},
		"what is quoted of a document is short": {fine + strings.Repeat("é", 200) + ": 1", []string{
			`2:1: unknown field: want one of version, open, name, small, colors, rooms, cellar, street, number`}},
	} {
		assert.Equal(t, c.want, complaints(c.text), claim)
	}
}

func TestANumberHasOneMeaning(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"0": 0, "-1": -1, "1000": 1000, "10_000": 10000, "1_2_3": 123, `"7"`: 7, "-10_0": -100} {
		h, _ := read(t, "version: 1\nnumber: "+text+"\n")
		assert.Equal(t, want, h.Number, text)
	}
	for _, text := range []string{"010", "0x10", "0o10", "0b1", "1e3", "1.0", "+5", "1__0", "1_", "_1", "-", "1,000", "1 000", "'1 '", "''", ".5", ".inf", ".nan", "0_1", "١"} {
		assert.Len(t, complaints("version: 1\nnumber: "+text+"\n"), 1, text)
	}
}

func TestAPathIsReadable(t *testing.T) {
	t.Parallel()
	require.Equal(t, `endpoints."POST /login".key.0.""`, document.JoinPath([]string{"endpoints", "POST /login", "key", "0", ""}))
}
