package rules

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// What a document is read into can be shown by a diff as it is written.
func TestAllThatIsReadFromTextCanBeWrittenAsText(t *testing.T) {
	t.Parallel()
	var walk func(of reflect.Type, path string)
	walk = func(of reflect.Type, path string) {
		switch {
		case of.Kind() == reflect.Pointer, of.Kind() == reflect.Slice, of.Kind() == reflect.Map:
			walk(of.Elem(), path)
		case isSection(of):
			for name, f := range fieldsOf(of) {
				if !slices.Contains(limitNames, name) { // which a diff shows as an allowance
					walk(f.Type, path+"."+name)
				}
			}
		case reflect.PointerTo(of).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
			assert.True(t, of.Implements(reflect.TypeFor[fmt.Stringer]()), "%s: %v has no String", path, of)
		}
	}
	walk(reflect.TypeFor[file](), "")
}
