package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Join combines the keys of fs:
//
//	keyfunc.Join(keyfunc.User, keyfunc.Route)   // each user on each route
//
// The length of each part stands before it ("join:7:user:42" + "12:route:GET /x"), so different lists of
// parts never have the same key. If one part has no key, Join has none ([ErrNoKey]). The key is
// [InDoubt] if one part is, else [Own] if one part is, else [Claimed] or [Network] if one part is.
//
// Join panics if it is given no function or a nil one.
func Join(fs ...Func) Func { return join(mustFuncs("Join", fs), false) }

// JoinPresent is [Join] with a blank for each part that has no key, unless all have none.
//
//	keyfunc.JoinPresent(keyfunc.User, keyfunc.IP())   // a user at an address, a guest at an address
//
// A client that can leave a part out or forge it has a new key each time: put a rule beside this one
// that counts the client without that part.
//
// JoinPresent panics if Join would.
func JoinPresent(fs ...Func) Func { return join(mustFuncs("JoinPresent", fs), true) }

func join(fs []Func, blanks bool) Func {
	return func(r *http.Request) (string, error) {
		var few [4]string // keeps the usual list off the heap
		parts := few[:0]
		size, present := len(joinTag), false
		class := Shared
		for i, f := range fs {
			part, err := f.key(r)
			if err != nil && !(blanks && errors.Is(err, ErrNoKey)) {
				return "", fmt.Errorf("keyfunc: part %d of Join: %w", i+1, err)
			}
			part, of := Classify(part)
			parts = append(parts, part)
			size += len("65536:") + len(part)
			if part != "" {
				present = true
				class = class.with(of)
			}
		}
		if !present {
			return "", ErrNoKey
		}
		var key strings.Builder
		key.Grow(len(class.mark()) + size)
		key.WriteString(class.mark())
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
