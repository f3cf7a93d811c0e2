package rules

import "github.com/weirgo/weir/middleware/rules/internal/document"

// Schema is the JSON Schema (draft 2020-12) of rules files, for editors to complete them
// by. It is made from the types that they are read into.
func Schema() []byte {
	return document.Schema(file{}, "https://github.com/weirgo/weir/rules.schema.json", "Weir rules", wrapper)
}
