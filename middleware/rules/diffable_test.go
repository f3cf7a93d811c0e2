package rules

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/yamlfile"
)

// What a document is read into can be shown by a diff as it is written, and read from the schema's examples.
func TestAllThatIsReadFromTextCanBeWrittenAsText(t *testing.T) {
	t.Parallel()
	var walk func(of reflect.Type, path string)
	walk = func(of reflect.Type, path string) {
		switch {
		case of.Kind() == reflect.Pointer, of.Kind() == reflect.Slice, of.Kind() == reflect.Map:
			walk(of.Elem(), path)
		case yamlfile.IsObject(of):
			for _, f := range yamlfile.FieldsOf(of) {
				if !slices.Contains(limitNames, f.Name) { // which a diff shows as an allowance
					walk(f.Type, path+"."+f.Name)
				}
			}
		case yamlfile.IsText(of):
			assert.True(t, of.Implements(reflect.TypeFor[fmt.Stringer]()), "%s: %v has no String", path, of)
			schema := scalars[of.Name()]
			require.NotNil(t, schema, "%v has no schema", of)
			if of.Name() == "algorithm" {
				schema = says{"examples": algorithms}
			}
			for i, examples := 0, reflect.ValueOf(schema["examples"]); examples.IsValid() && i < examples.Len(); i++ {
				example := fmt.Sprint(examples.Index(i).Interface())
				assert.NoError(t, reflect.New(of).Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(example)), "%v: %s", of, example)
			}
		}
	}
	walk(reflect.TypeFor[file](), "")
}
