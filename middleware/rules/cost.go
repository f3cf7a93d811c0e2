package rules

import (
	"errors"
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
	isRead := given.Header != "" || given.Param != ""
	hasBounds := given.Per != nil || given.Missing != nil || given.Max != nil
	switch {
	case given.Units != nil && (isRead || hasBounds):
		c.at(path, "has units and a header: a cost is either fixed or read from a header")
		return none
	case given.Header != "" && given.Param != "":
		c.at(path, "has a header and a param: a cost is read from one of them")
		return none
	case given.Units != nil && given.Settle:
		units := *given.Units
		return middleware.Reserve(func(*http.Request) int64 { return units })
	case given.Units != nil:
		return middleware.Units(*given.Units)
	case !isRead:
		if given.Settle && !hasBounds { // New says what it needs
			return middleware.Reserve(nil)
		}
		c.at(path, "has neither units nor a header to read them from")
		return none
	}
	kind, name := "header", given.Header
	if given.Param != "" {
		kind, name = "param", given.Param
	}
	key, err := keyfunc.Parse(kind+":"+name, nil)
	if err != nil {
		c.at(sub(path, kind), "is not the name of a header")
		return none
	}
	name = http.CanonicalHeaderKey(name)
	amount := func(r *http.Request) (int64, bool) { return inHeader(r, name) }
	if kind == "param" {
		amount = func(r *http.Request) (int64, bool) { return inParam(r, key) }
	} else if name != contentLength && !given.Settle {
		c.warnings.at(sub(path, "header"), "comes from the client, so a client that sends a smaller number pays less: let your proxy set it, or settle what a request really cost")
	}
	per, missing, most := int64(1), int64(1), int64(math.MaxInt64)
	if given.Per != nil {
		per = given.Per.n
	}
	if given.Missing != nil {
		missing = *given.Missing
	} else if kind == "header" && name == contentLength {
		c.warnings.at(path, "a chunked body has no Content-Length, so it costs 1 whatever its length: set its cost with missing. A cost above the limit refuses it")
	}
	if given.Max != nil {
		most = *given.Max
	}
	of := func(r *http.Request) int64 {
		n, ok := amount(r)
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

// inParam is the number that an argument of a tool call is. An argument that is there twice costs the most.
func inParam(r *http.Request, key keyfunc.Func) (int64, bool) {
	text, err := key(r)
	if errors.Is(err, keyfunc.ErrAmbiguous) {
		return math.MaxInt64, true
	}
	_, _, value := keyfunc.KindOf(text)
	return number(value)
}

// inHeader is the number in a header of r; the largest, should there be several.
func inHeader(r *http.Request, name string) (int64, bool) {
	if name == contentLength { // which net/http has checked; -1 if the body is chunked
		return r.ContentLength, r.ContentLength >= 0
	}
	most := int64(-1)
	for _, value := range r.Header[name] {
		n, ok := number(strings.TrimSpace(value))
		if !ok {
			return 0, false
		}
		most = max(most, n)
	}
	return most, most >= 0
}

// number is the number that a text of digits is; at most the largest.
func number(text string) (int64, bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		n = math.MaxInt64
	}
	return n, true
}
