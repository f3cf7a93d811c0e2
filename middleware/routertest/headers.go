package routertest

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// fields is what the fields of a response say about limits.
type fields struct {
	limit, remaining int64
	left             map[string]int64 // r by name
	order            []string         // names in RateLimit
}

// readFields reads the fields and checks what is true of every response.
func readFields(s *suite, h http.Header) fields {
	s.Helper()
	legacy := func(name string) int64 {
		equal(s, 1, len(h.Values(name)), "number of fields "+name)
		n, err := strconv.ParseInt(h.Get(name), 10, 64)
		must(s, err, name)
		return n
	}
	f := fields{limit: legacy("X-RateLimit-Limit"), remaining: legacy("X-RateLimit-Remaining"), left: map[string]int64{}}
	reset := time.Until(time.Unix(legacy("X-RateLimit-Reset"), 0))
	if reset < -time.Minute || reset > 3*time.Hour {
		s.Fatalf("X-RateLimit-Reset is in %v, want seconds since 1970, from now to two periods on", reset)
	}
	policies := readList(s, h, "RateLimit-Policy", "q", map[string]int64{})
	f.order = readList(s, h, "RateLimit", "r", f.left)
	equalLists(s, policies, f.order, "RateLimit lists the rules of RateLimit-Policy")
	return f
}

// A structured field (RFC 9651), as far as Weir needs it: a list of strings with parameters, which are integers or
// strings.
const aMember = `"([^"\\]*)"((?:;[a-z]+=(?:[0-9]{1,15}|"[^"\\]*"))*)`

var (
	members = regexp.MustCompile(aMember)
	list    = regexp.MustCompile(`^` + aMember + `(?:, ` + aMember + `)*$`)
)

// readList reads a field, and puts the values of a parameter into values, by name.
func readList(s *suite, h http.Header, name, param string, values map[string]int64) (names []string) {
	s.Helper()
	text := strings.Join(h.Values(name), ", ")
	if !list.MatchString(text) {
		s.Fatalf("%s: %s, want a list of strings with parameters", name, text)
	}
	for _, member := range members.FindAllStringSubmatch(text, -1) {
		rule, params := member[1], strings.Split(member[2], ";"+param+"=")
		if _, twice := values[rule]; twice {
			s.Fatalf("%s lists %q twice: %s", name, rule, text)
		}
		equal(s, 2, len(params), fmt.Sprintf("%s has one parameter %s: %s: parts", name, param, text))
		value, _, _ := strings.Cut(params[1], ";")
		n, err := strconv.ParseInt(value, 10, 64)
		must(s, err, name)
		values[rule] = n
		names = append(names, rule)
	}
	return names
}
