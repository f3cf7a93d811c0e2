package rules

import (
	"cmp"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/weirgo/weir/keyfunc"
)

// cost is what a request costs, or nil for one unit.
func (c *checker) cost(path []string, given *cost) func(*http.Request) int64 {
	if given == nil {
		return nil
	}
	path = sub(path, "cost")
	positive := func(name string, n *int64) int64 {
		if n == nil {
			return 0
		}
		if *n < 1 {
			at := sub(path, name)
			if !c.doc.Has(at...) {
				at = path
			}
			c.at(at, "is %d: it must be at least 1", *n)
		}
		return *n
	}
	units, missing, most := positive("units", given.Units), positive("missing", given.Missing), positive("max", given.Max)
	switch {
	case given.Units != nil && (given.Header != "" || given.Per != nil || given.Missing != nil || given.Max != nil):
		c.at(path, "has units and a header: a cost is either fixed or read from a header")
		return nil
	case given.Units != nil:
		return func(*http.Request) int64 { return units }
	case given.Header == "" && c.noted(path):
		return nil // which may be why there is none
	case given.Header == "":
		c.at(path, "has neither units nor a header to read them from")
		return nil
	}
	if _, err := keyfunc.Parse("header:"+given.Header, nil); err != nil {
		c.at(sub(path, "header"), "is not the name of a header")
		return nil
	}
	per := int64(1)
	if given.Per != nil {
		per = given.Per.n
	}
	name := http.CanonicalHeaderKey(given.Header)
	if name == contentLength && missing == 0 {
		c.warn(path, "a body that is sent in chunks has no Content-Length, and costs 1 whatever its length: say what it costs with missing")
	}
	missing, most = cmp.Or(missing, 1), cmp.Or(most, math.MaxInt64)
	return func(r *http.Request) int64 {
		n, ok := amount(r, name)
		if !ok {
			return min(missing, most)
		}
		units := n / per
		if n%per > 0 {
			units++
		}
		return min(max(1, units), most)
	}
}

const contentLength = "Content-Length"

// amount is the number in a header of r; the largest, should there be several.
func amount(r *http.Request, name string) (int64, bool) {
	if name == contentLength { // which net/http has checked; -1 if the body is chunked
		return r.ContentLength, r.ContentLength >= 0
	}
	most := int64(-1)
	for _, value := range r.Header[name] {
		value = strings.TrimSpace(value)
		n, err := strconv.ParseInt(value, 10, 64)
		if value == "" || strings.Trim(value, "0123456789") != "" {
			return 0, false
		}
		if err != nil {
			n = math.MaxInt64 // digits, and too many of them
		}
		most = max(most, n)
	}
	return most, most >= 0
}
