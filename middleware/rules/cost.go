package rules

import (
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// cost is what a request costs.
func (c *checker) cost(path []string, given *cost) (none middleware.Cost) {
	if given == nil {
		return none
	}
	if path = sub(path, "cost"); c.noted(path) {
		return none
	}
	fromHeader := given.Per != nil || given.Missing != nil || given.Max != nil
	switch {
	case given.Units != nil && (given.Header != "" || fromHeader):
		c.at(path, "has units and a header: a cost is either fixed or read from a header")
		return none
	case given.Units != nil && given.Settle:
		units := *given.Units
		return middleware.Reserve(func(*http.Request) int64 { return units })
	case given.Units != nil:
		return middleware.Units(*given.Units)
	case given.Header == "":
		if given.Settle && !fromHeader { // New says what it needs
			return middleware.Reserve(nil)
		}
		c.at(path, "has neither units nor a header to read them from")
		return none
	}
	if _, err := keyfunc.Parse("header:"+given.Header, nil); err != nil {
		c.at(sub(path, "header"), "is not the name of a header")
		return none
	}
	name := http.CanonicalHeaderKey(given.Header)
	if name != contentLength && !given.Settle {
		c.warnings.at(sub(path, "header"), "comes from the client, so a client that sends a smaller number pays less: let your proxy set it, or settle what a request really cost")
	}
	per, missing, most := int64(1), int64(1), int64(math.MaxInt64)
	if given.Per != nil {
		per = given.Per.n
	}
	if given.Missing != nil {
		missing = *given.Missing
	} else if name == contentLength {
		c.warnings.at(path, "a chunked body has no Content-Length, so it costs 1 whatever its length: set its cost with missing. A cost above the limit refuses it")
	}
	if given.Max != nil {
		most = *given.Max
	}
	of := func(r *http.Request) int64 {
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
	if given.Settle {
		return middleware.Reserve(of)
	}
	return middleware.CostOf(of)
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
