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
	names            []string // in RateLimit
	left             []int64  // r of each
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
	f := fields{limit: legacy("X-RateLimit-Limit"), remaining: legacy("X-RateLimit-Remaining")}
	reset := time.Until(time.Unix(legacy("X-RateLimit-Reset"), 0))
	if reset < -time.Minute || reset > 3*time.Hour {
		s.Fatalf("X-RateLimit-Reset is in %v, want seconds since 1970, from now to two periods on", reset)
	}
	policies, _ := readList(s, h, "RateLimit-Policy", "q")
	f.names, f.left = readList(s, h, "RateLimit", "r")
	// In a refusal RateLimit has the rules of the limiter that refused, which come first in RateLimit-Policy.
	equalLists(s, policies[:min(len(policies), len(f.names))], f.names, "RateLimit lists the rules of RateLimit-Policy")
	return f
}

// A structured field (RFC 9651), as far as Weir needs it: a list of strings with parameters, which are integers or
// strings.
const aMember = `"([^"\\]*)"((?:;[a-z]+=(?:[0-9]{1,15}|"[^"\\]*"))*)`

var (
	members = regexp.MustCompile(aMember)
	list    = regexp.MustCompile(`^` + aMember + `(?:, ` + aMember + `)*$`)
)

// readList reads the names of a field's members and the values of a parameter.
func readList(s *suite, h http.Header, name, param string) (names []string, values []int64) {
	s.Helper()
	text := strings.Join(h.Values(name), ", ")
	if !list.MatchString(text) {
		s.Fatalf("%s: %s, want a list of strings with parameters", name, text)
	}
	for _, member := range members.FindAllStringSubmatch(text, -1) {
		rule, params := member[1], strings.Split(member[2], ";"+param+"=")
		equal(s, 2, len(params), fmt.Sprintf("%s has one parameter %s: %s: parts", name, param, text))
		value, _, _ := strings.Cut(params[1], ";")
		n, err := strconv.ParseInt(value, 10, 64)
		must(s, err, name)
		names, values = append(names, rule), append(values, n)
	}
	return names, values
}
