package keyfunc

import (
	"errors"
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
// All parts are needed: if one has no key, neither has Join ([ErrNoKey]). It is [Shared] if
// all parts are, and [InDoubt] if one is.
//
// Join panics if it is given no function or a nil one.
func Join(fs ...Func) Func { return join(mustFuncs("Join", fs), false) }

// JoinPresent is [Join] for keys of which some may be missing: a part that a request has
// no key for is left blank, unless all are.
//
//	keyfunc.JoinPresent(keyfunc.User, keyfunc.IP())   // a user at an address, a guest at an address
//
// A client that can leave a part out, or make it up, is a new client each time: a part like
// that needs a rule beside this one that counts the client without it.
//
// JoinPresent panics where Join does.
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
