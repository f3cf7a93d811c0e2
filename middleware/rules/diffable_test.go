package rules

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/middleware/rules/internal/document"
)

// What a document is read into can be shown by a diff as it is written.
func TestAllThatIsReadFromTextCanBeWrittenAsText(t *testing.T) {
	t.Parallel()
	var walk func(of reflect.Type, path string)
	walk = func(of reflect.Type, path string) {
		switch {
		case of.Kind() == reflect.Pointer, of.Kind() == reflect.Slice, of.Kind() == reflect.Map:
			walk(of.Elem(), path)
		case document.IsObject(of):
			for _, f := range document.FieldsOf(of) {
				if !slices.Contains(limitNames, f.Name) { // which a diff shows as an allowance
					walk(f.Type, path+"."+f.Name)
				}
			}
		case document.IsText(of):
			assert.True(t, of.Implements(reflect.TypeFor[fmt.Stringer]()), "%s: %v has no String", path, of)
		}
	}
	walk(reflect.TypeFor[file](), "")
}
