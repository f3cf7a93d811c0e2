package dashboard

import (
	"fmt"
	"reflect"
	"strconv"
	"time"
	"unicode"

	"github.com/weirgo/weir/limiter"
)

// A figure is one thing that a store tells of itself.
type figure struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// A storeStats is what a store's Stats method says.
type storeStats struct {
	known       bool // it has one, with a field Degraded
	degraded    bool
	degradedFor time.Duration
	lastError   string
	figures     []figure
}

// mostWrappers ends the search where a store unwraps to itself.
const mostWrappers = 16

// statsOf asks a store for its Stats, whatever struct that is: so the page does not compile
// every store that there is. What a store around another one does not tell, the inner one is
// asked.
func statsOf(store any) (stats storeStats) {
	for range mostWrappers {
		if value := reflect.ValueOf(store); store == nil || value.Kind() == reflect.Pointer && value.IsNil() {
			break
		}
		for _, method := range []string{"Stats", "Health"} {
			s := told(store, method)
			figures := stats.figures
			if figures == nil {
				figures = s.figures
			}
			if !stats.known {
				stats = s
			}
			stats.figures = figures
		}
		w, ok := store.(limiter.Wrapper)
		if !ok {
			break
		}
		store = w.Unwrap()
	}
	return stats
}

// told is what one method of a store says.
func told(store any, name string) (stats storeStats) {
	value := reflect.ValueOf(store)
	method := value.MethodByName(name)
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 || method.Type().Out(0).Kind() != reflect.Struct {
		return stats
	}
	value = method.Call(nil)[0]
	for _, field := range reflect.VisibleFields(value.Type()) {
		if field.Anonymous || !field.IsExported() {
			continue
		}
		v := value.FieldByIndex(field.Index)
		if field.Name == "LastError" {
			stats.lastError = errorText(v)
		}
		switch {
		case field.Name == "Degraded" && v.Kind() == reflect.Bool:
			stats.known, stats.degraded = true, v.Bool()
		case field.Name == "DegradedFor" && v.Type() == reflect.TypeFor[time.Duration]():
			stats.degradedFor = time.Duration(v.Int())
		default:
			if text, ok := figureText(field.Name, v); ok {
				stats.figures = append(stats.figures, figure{words(field.Name), text})
			}
		}
	}
	return stats
}

// errorText is what a field that is an error or a string says.
func errorText(v reflect.Value) string {
	if err, ok := v.Interface().(error); ok && err != nil {
		return err.Error()
	}
	if v.Kind() == reflect.String {
		return v.String()
	}
	return ""
}

func figureText(name string, v reflect.Value) (string, bool) {
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		return time.Duration(v.Int()).Round(time.Millisecond).String(), true
	case name == "Bytes" && v.CanInt():
		return bytesText(v.Int()), true
	case v.CanInt():
		return grouped(strconv.FormatInt(v.Int(), 10)), true
	case v.CanUint():
		return grouped(strconv.FormatUint(v.Uint(), 10)), true
	case v.CanFloat():
		return strconv.FormatFloat(v.Float(), 'g', 4, 64), true
	case v.Kind() == reflect.Bool:
		return strconv.FormatBool(v.Bool()), true
	case v.Kind() == reflect.String:
		return quoteKey(v.String()), true
	}
	return "", false
}

// words is a field's name as people write: "DegradedFor" is "Degraded for".
func words(name string) string {
	var b []rune
	for i, c := range name {
		if i > 0 && unicode.IsUpper(c) {
			b = append(b, ' ')
			c = unicode.ToLower(c)
		}
		b = append(b, c)
	}
	return string(b)
}

// grouped puts a comma between thousands.
func grouped(digits string) string {
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

func bytesText(n int64) string {
	const unit = 1024
	switch {
	case n < unit:
		return fmt.Sprintf("%d B", n)
	case n < unit*unit:
		return fmt.Sprintf("%.1f KiB", float64(n)/unit)
	case n < unit*unit*unit:
		return fmt.Sprintf("%.1f MiB", float64(n)/unit/unit)
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/unit/unit/unit)
}
