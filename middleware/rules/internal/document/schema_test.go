package document_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules/internal/document"
)

func TestTheSchemaSaysWhatIsRead(t *testing.T) {
	t.Parallel()
	type wall struct {
		Version int              `yaml:"version" doc:"Of the <format>." required:"true" default:"1"`
		Open    bool             `yaml:"open" default:"true"`
		Name    string           `yaml:"name"`
		Colors  []color          `yaml:"colors" doc:"Of the walls." default:"white"`
		Rooms   map[string]*room `yaml:"rooms"`
		address
	}
	const (
		integer = `"type": ["integer", "string"], "pattern": "^-?(0|[1-9][0-9]*(_[0-9]+)*)$"`
		room    = `"anyOf": [{"type": ["string", "number"]}, {"type": "object", "properties": {
			"size": {"description": "As it is said.", "type": "string"},
			"windows": {"anyOf": [{"$ref": "#/$defs/window"}, {"type": ["array", "null"], "items": {"$ref": "#/$defs/window"}}]}
		}, "required": ["size"], "additionalProperties": false}]`
		panes  = `{"anyOf": [{` + integer + `}, {"type": ["array", "null"], "items": {` + integer + `}}]}`
		window = `"type": "object", "properties": {
			"width": {` + integer + `},
			"panes": {"anyOf": [` + panes + `, {"type": ["array", "null"], "items": ` + panes + `}]},
			"frames": {"anyOf": [{"type": "object", "properties": {}, "additionalProperties": false}, {"type": ["array", "null"], "items": {"type": "object", "properties": {}, "additionalProperties": false}}]}
		}, "additionalProperties": false`
	)
	schema := document.Schema(wall{}, "https://example.com/wall.json", "A wall")
	require.JSONEq(t, `{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"$id": "https://example.com/wall.json",
		"title": "A wall",
		"type": "object",
		"properties": {
			"version": {"description": "Of the <format>.", "default": 1, `+integer+`},
			"open": {"default": true, "type": "boolean"},
			"name": {"type": "string"},
			"colors": {"description": "Of the walls.", "default": "white", "anyOf": [
				{"$ref": "#/$defs/color"}, {"type": ["array", "null"], "items": {"$ref": "#/$defs/color"}}]},
			"rooms": {"type": ["object", "null"], "additionalProperties": {"$ref": "#/$defs/room"}},
			"street": {"type": "string"},
			"number": {`+integer+`}
		},
		"required": ["version"],
		"additionalProperties": false,
		"$defs": {
			"color": {"type": "string", "title": "color", "pattern": "^[a-z]+$"},
			"room": {`+room+`},
			"window": {`+window+`}
		}
	}`, string(schema))
	require.Equal(t, schema, document.Schema(new(wall), "https://example.com/wall.json", "A wall"), "the same each time")
	require.Contains(t, string(schema), "Of the <format>.", "for people")
	require.Regexp(t, `(?s)^{\n  "\$schema".*"version".*"open".*"name".*"colors".*"rooms".*"street".*"number".*\n}\n$`, string(schema), "in the order of the struct")
	require.NotContains(t, string(document.Schema(wall{}, "", "A wall")), "$id")
}

// A gate has parts that say something of each other, by itself and in a list.
type gate struct {
	Open  bool  `yaml:"open"`
	Shut  bool  `yaml:"shut"`
	Posts posts `yaml:"posts"`
}

type posts []string

func (gate) JSONConstraints() []map[string]any {
	return []map[string]any{{"not": map[string]any{"required": []string{"open", "shut"}}}}
}

func (posts) JSONConstraints() []map[string]any { return []map[string]any{{"minItems": 2}} }

func TestTheSchemaSaysWhatPartsSayOfEachOther(t *testing.T) {
	t.Parallel()
	const properties = `"open": {"type": "boolean"}, "shut": {"type": "boolean"}, "posts": {"$ref": "#/$defs/posts"}`
	const list = `{"anyOf": [{"type": "string"}, {"type": ["array", "null"], "items": {"type": "string"}}], "allOf": [{"minItems": 2}]}`
	require.JSONEq(t, `{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A gate",
		"type": "object", "properties": {`+properties+`}, "additionalProperties": false,
		"allOf": [{"not": {"required": ["open", "shut"]}}], "$defs": {"posts": `+list+`}
	}`, string(document.Schema(gate{}, "", "A gate")))
	require.JSONEq(t, `{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A gate",
		"type": "object", "additionalProperties": false,
		"properties": {`+properties+`, "garden": {
			"description": "The whole of it, as a part of a larger configuration.", "type": "object", "properties": {
				"open": {"$ref": "#/properties/open"}, "shut": {"$ref": "#/properties/shut"}, "posts": {"$ref": "#/properties/posts"}
			}, "additionalProperties": false, "allOf": [{"$ref": "#/$defs/whole"}]
		}},
		"if": {"required": ["garden"]}, "then": {"propertyNames": {"enum": ["open", "garden"]}}, "else": {"allOf": [{"$ref": "#/$defs/whole"}]},
		"$defs": {"posts": `+list+`, "whole": {"allOf": [{"not": {"required": ["open", "shut"]}}]}}
	}`, string(document.Schema(gate{}, "", "A gate", document.Wrapper{Key: "garden", Implied: map[string]string{"open": "true"}})))
}

func TestTheSchemaIsJSON(t *testing.T) {
	t.Parallel()
	require.True(t, json.Valid(document.Schema(house{}, "", "")))
	require.Panics(t, func() { document.Schema(1, "", "") })
}

func TestTheReferenceHasARowForEachField(t *testing.T) {
	t.Parallel()
	require.Equal(t, []document.Field{
		{Path: "version", Type: "a whole number", Default: "(required)", Doc: "The version of this format."},
		{Path: "open", Type: "true or false", Default: "true", Doc: "Whether anybody may come in."},
		{Path: "name", Type: "text", Doc: "What is written on the door."},
		{Path: "small", Type: "a whole number", Default: "5"},
		{Path: "colors", Type: "color, or a list", Default: "white", Doc: "Of the walls."},
		{Path: "rooms", Type: "a mapping", Doc: "The rooms, by what is written on their doors."},
		{Path: "rooms.*.size", Type: "text", Default: "(required)", Doc: "As it is said."},
		{Path: "rooms.*.windows", Type: "a mapping, or a list"},
		{Path: "rooms.*.windows[].width", Type: "a whole number"},
		{Path: "rooms.*.windows[].panes", Type: "a whole number, or a list, or a list"},
		{Path: "rooms.*.windows[].frames", Type: "a mapping, or a list"},
		{Path: "cellar", Type: "text, or a mapping", Doc: "Where it is cold."},
		{Path: "cellar.size", Type: "text", Default: "(required)", Doc: "As it is said."},
		{Path: "cellar.windows", Type: "a mapping, or a list"},
		{Path: "cellar.windows[].width", Type: "a whole number"},
		{Path: "cellar.windows[].panes", Type: "a whole number, or a list, or a list"},
		{Path: "cellar.windows[].frames", Type: "a mapping, or a list"},
		{Path: "street", Type: "text"},
		{Path: "number", Type: "a whole number"},
	}, document.Fields(new(house)))
}
