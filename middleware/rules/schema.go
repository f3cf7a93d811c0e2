package rules

import (
	"bytes"
	_ "embed"
)

// TestTheSchemaIsThatOfTheTypes writes it, from the types that files are read into:
// WEIR_UPDATE=1 go test ./middleware/rules -run TheSchemaIs
//
//go:embed schema.json
var schema []byte

// Schema is the JSON Schema (draft 2020-12) of rules files. Editors complete fields by it.
func Schema() []byte { return bytes.Clone(schema) }
