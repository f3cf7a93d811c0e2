package document_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules/internal/document"
)

// A house is what the tests read: something of every kind, and nothing of rate limits.
type house struct {
	Version int              `yaml:"version" required:"true"`
	Open    bool             `yaml:"open"`
	Name    string           `yaml:"name"`
	Small   int8             `yaml:"small"`
	Colors  []color          `yaml:"colors"`
	Rooms   map[string]*room `yaml:"rooms"`
	Cellar  *room            `yaml:"cellar"`
	address
	Secret string `yaml:"-"`
}

type address struct {
	Street string `yaml:"street"`
	Number int64  `yaml:"number"`
}

// A color is text that is not always one.
type color string

func (c *color) UnmarshalText(text []byte) error {
	if strings.ContainsAny(string(text), " 0123456789") {
		return errors.New("that is no color")
	}
	*c = color(text)
	return nil
}

// A room may be written as its size alone.
type room struct {
	Size    size     `yaml:"size" required:"true" short:"true"`
	Windows []window `yaml:"windows"`
}

type size string

func (s *size) UnmarshalText(text []byte) error {
	*s = size(text)
	return nil
}

type window struct {
	Width  int64      `yaml:"width"`
	Panes  [][]int    `yaml:"panes"`
	Frames []struct{} `yaml:"frames"`
}

// read reads what must be right.
func read(t *testing.T, text string) (house, *document.Document) {
	t.Helper()
	var h house
	d, problems := decode(text, &h)
	require.Empty(t, problems)
	return h, d
}

// A problem is what Decode reports.
type problem struct {
	document.Position
	path    []string
	message string
}

// decode reads a document, and returns its problems in their order.
func decode(text string, into *house) (d *document.Document, problems []problem) {
	d = document.Decode([]byte(text), into, document.Wrapper{}, func(at document.Position, path []string, format string, args ...any) {
		problems = append(problems, problem{at, slices.Clone(path), fmt.Sprintf(format, args...)})
	})
	slices.SortStableFunc(problems, func(a, b problem) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	return d, problems
}

// complaints are the problems of a document, a line for each.
func complaints(text string) (lines []string) {
	_, problems := decode(text, new(house))
	for _, p := range problems {
		line := fmt.Sprintf("%d:%d: ", p.Line, p.Column)
		if len(p.path) > 0 {
			line += document.JoinPath(p.path) + ": "
		}
		lines = append(lines, line+p.message)
	}
	return lines
}

func TestADocumentIsReadIntoAStruct(t *testing.T) {
	t.Parallel()
	want := house{
		Version: 1, Open: true, Name: "10", Small: -128, Colors: []color{"red"},
		Rooms: map[string]*room{
			"GET /a/*": {Size: "30 m²", Windows: []window{{Width: 10_000, Panes: [][]int{{1}, {2, 3}}}}},
			"hall":     {Size: "0x10"},
		},
		Cellar:  &room{Size: "huge", Windows: []window{{Width: 1}, {}}},
		address: address{Street: "a\nb", Number: 9223372036854775807},
	}
	for name, text := range map[string]string{
		"YAML": `# a comment
version: 1
open: true
name: "10"
small: -128
colors: red          # one of a list
rooms:
  GET /a/*: {size: 30 m², windows: {width: 10_000, panes: [1, [2, 3]]}}
  hall: 0x10         # all of a mapping
cellar:
  size: huge
  windows:
  - width: 1
  - {}
street: "a\nb"
number: 9_223_372_036_854_775_807
`,
		"JSON with tabs": "{\n\t\"version\": 1,\t\"open\":true,\"name\": \"10\", \"small\": -128,\n\t\"colors\": [\"red\"],\n" +
			"\t\"rooms\": {\n\t\t\"GET \\/a/*\": {\"size\": \"30 m\\u00b2\", \"windows\": [{\"width\": \"10_000\", \"panes\": [1, [2, 3]]}]},\n" +
			"\t\t\"hall\": \"0x10\"\n\t},\n\t\"cellar\": {\"size\": \"huge\", \"windows\": [{\"width\": 1}, {}]},\n" +
			"\t\"street\": \"a\\nb\", \"number\": 9223372036854775807\n}\n",
		"JSON in one line": `{"version":1,"open":true,"name":"10","small":-128,"colors":"red","rooms":{"GET /a/*":{"size":"30 m²","windows":{"width":10000,"panes":[1,[2,3]]}},"hall":"0x10"},` +
			`"cellar":{"size":"huge","windows":[{"width":1},{}]},"street":"a\nb","number":9223372036854775807}`,
		"YAML with Windows' line ends": "\ufeffversion: 1\r\nopen: True\r\nname: '10'\r\nsmall: -128\r\ncolors:\r\n- red\r\n" +
			"rooms:\r\n  GET /a/*:\r\n    size: 30 m²\r\n    windows:\r\n    - width: 10000\r\n      panes:\r\n      - 1\r\n      - - 2\r\n        - 3\r\n  hall: 0x10\r\n" +
			"cellar: {size: huge, windows: [{width: 1}, {}]}\r\nstreet: |-\r\n  a\r\n  b\r\nnumber: 9223372036854775807\r\n...\r\n",
	} {
		got, _ := read(t, text)
		assert.Equal(t, want, got, name)
	}
}

func TestAnAliasIsTheValueOfItsAnchor(t *testing.T) {
	t.Parallel()
	h, d := read(t, `version: 1
rooms:
  hall: &large
    size: &size "40"
    windows: {width: 2}
  kitchen: *large
cellar: {size: *size}
`)
	require.Equal(t, h.Rooms["hall"], h.Rooms["kitchen"])
	require.NotSame(t, h.Rooms["hall"], h.Rooms["kitchen"])
	require.EqualValues(t, "40", h.Cellar.Size)
	require.Equal(t, document.Position{Line: 6, Column: 12}, d.Position("rooms", "kitchen"))
	require.Equal(t, document.Position{Line: 5, Column: 22}, d.Position("rooms", "kitchen", "windows", "width"), "what is in it is where it is written")
}

func TestADocumentKnowsWhereThingsAre(t *testing.T) {
	t.Parallel()
	_, d := read(t, `version: 1
colors: [red,
  "green"]
rooms:
  "a b":
    size: big
    windows:
    - width:	2 # behind a tab
    - width: 3
`)
	for _, c := range []struct {
		path       []string
		value, key document.Position
	}{
		{nil, document.Position{Line: 1, Column: 1}, document.Position{Line: 1, Column: 1}},
		{[]string{"version"}, document.Position{Line: 1, Column: 10}, document.Position{Line: 1, Column: 1}},
		{[]string{"colors"}, document.Position{Line: 2, Column: 9}, document.Position{Line: 2, Column: 1}},
		{[]string{"colors", "0"}, document.Position{Line: 2, Column: 10}, document.Position{Line: 2, Column: 10}},
		{[]string{"colors", "1"}, document.Position{Line: 3, Column: 3}, document.Position{Line: 3, Column: 3}},
		{[]string{"rooms", "a b"}, document.Position{Line: 6, Column: 5}, document.Position{Line: 5, Column: 3}},
		{[]string{"rooms", "a b", "windows"}, document.Position{Line: 8, Column: 5}, document.Position{Line: 7, Column: 5}},
		{[]string{"rooms", "a b", "windows", "0", "width"}, document.Position{Line: 8, Column: 14}, document.Position{Line: 8, Column: 7}},
		{[]string{"rooms", "a b", "windows", "1", "width"}, document.Position{Line: 9, Column: 14}, document.Position{Line: 9, Column: 7}},
	} {
		assert.Equal(t, c.value, d.Position(c.path...), "value of %q", c.path)
		assert.Equal(t, c.key, d.Key(c.path...), "key of %q", c.path)
		assert.True(t, d.Has(c.path...), "has %q", c.path)
	}
	require.Equal(t, d.Position("rooms", "a b"), d.Position("rooms", "a b", "door", "width"), "the nearest that exists")
	for _, path := range [][]string{{"door"}, {"colors", "2"}, {"colors", "01"}, {"colors", "-1"}, {"version", "0"}, {"rooms", "a"}} {
		require.False(t, d.Has(path...), "has %q", path)
	}
}

func TestOfADocumentThatCantBeReadNothingIsKnown(t *testing.T) {
	t.Parallel()
	d, problems := decode("a: [b", new(house))
	require.NotEmpty(t, problems)
	require.False(t, d.Has())
	require.Zero(t, d.Position("a"))
	require.Zero(t, d.Key("a"))
}

func TestWhatCouldBeReadIsThere(t *testing.T) {
	t.Parallel()
	var h house
	_, problems := decode("version: one\nname: x\nrooms:\n  hall: {size: '1', door: 2}\ncolors: [red, 12]\n", &h)
	require.Len(t, problems, 3, "%v", problems)
	require.Equal(t, "x", h.Name)
	require.EqualValues(t, "1", h.Rooms["hall"].Size)
	require.Equal(t, []color{"red", ""}, h.Colors)
}
