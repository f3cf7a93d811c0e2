package route

import (
	"errors"
	"net/http"
	"reflect"
)

// A Match is a middleware.Match, for packages that must not import middleware.
type Match interface{ Matches(r *http.Request) bool }

// Wrong returns why m cannot match anything, or nil. A field without a Match has nothing wrong.
func Wrong(m Match) error {
	if v := reflect.ValueOf(m); (v.Kind() == reflect.Func || v.Kind() == reflect.Pointer) && v.IsNil() {
		return errors.New("it is a nil " + v.Type().String())
	}
	if checked, ok := m.(interface{ WrongPattern() error }); ok {
		return checked.WrongPattern()
	}
	return nil
}

// PatternsOf are the patterns that a Match goes by, as far as it says so.
func PatternsOf(m any) []string {
	if listed, ok := m.(interface{ Patterns() []string }); ok {
		return listed.Patterns()
	}
	return nil
}
