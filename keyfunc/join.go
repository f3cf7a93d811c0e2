package keyfunc

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Join is all the keys of fs as one:
//
//	keyfunc.Join(keyfunc.User, keyfunc.Route)   // each user on each route
//
// Every part begins with its length, so that no two lists of parts make the same
// key, whatever a client puts into them: "join:7:user:42" + "12:route:GET /x".
// All parts are needed: if one has no key, neither has Join ([ErrNoKey]).
//
// Join panics if it is given no function or a nil one.
func Join(fs ...Func) Func {
	fs = mustFuncs("Join", fs)
	return func(r *http.Request) (string, error) {
		var few [4]string // keeps the usual list off the heap
		parts := few[:0]
		size := len(joinTag)
		for i, f := range fs {
			part, err := f.key(r)
			if err != nil {
				return "", fmt.Errorf("keyfunc: part %d of Join: %w", i+1, err)
			}
			parts = append(parts, part)
			size += len("65536:") + len(part)
		}
		var key strings.Builder
		key.Grow(size)
		key.WriteString(joinTag)
		for _, part := range parts {
			var digits [20]byte
			key.Write(strconv.AppendInt(digits[:0], int64(len(part)), 10))
			key.WriteByte(':')
			key.WriteString(part)
		}
		return key.String(), nil
	}
}
