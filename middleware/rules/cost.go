package rules

import (
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weirgo/weir/internal/reading"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// cost is what a request costs by the rule of that name.
func (c *checker) cost(path []string, name string, given *cost) (none middleware.Cost) {
	if given == nil {
		return none
	}
	if path = sub(path, "cost"); c.noted(path) {
		return none
	}
	if given.Reserve != nil {
		return c.reserve(path, name, given)
	}
	sources := len(slices.DeleteFunc([]string{given.Header, given.Param, given.JSON}, func(s string) bool { return s == "" }))
	isRead, settles := sources > 0, c.settles(path, given)
	hasBounds := given.Per != nil || given.Missing != nil || given.Max != nil
	switch {
	case given.Units != nil && (isRead || hasBounds):
		c.at(path, "has units and a header: a cost is either fixed or read from a header")
		return none
	case given.Header != "" && given.Param != "":
		c.at(path, "has a header and a param: a cost is read from one of them")
		return none
	case sources > 1:
		c.at(path, "has json and another place: a cost is read from one of them")
		return none
	case given.Units != nil && settles:
		units := *given.Units
		return middleware.Reserve(func(*http.Request) int64 { return units })
	case given.Units != nil:
		return middleware.Units(*given.Units)
	case !isRead:
		if settles && !hasBounds { // New says what it needs
			return middleware.Reserve(nil)
		}
		c.at(path, "has neither units nor a header to read them from")
		return none
	}
	read, kind := c.amount(path, given)
	if read == nil {
		return none
	}
	if kind == "header" && given.Header != contentLength && !settles {
		c.warnings.at(sub(path, "header"), "comes from the client, so a client that sends a smaller number pays less: let your proxy set it, or settle what a request really cost")
	}
	per, missing, most := int64(1), int64(1), int64(math.MaxInt64)
	if given.Per != nil {
		per = given.Per.n
	}
	if given.Missing != nil {
		missing = *given.Missing
	} else if kind == "header" && http.CanonicalHeaderKey(given.Header) == contentLength {
		c.warnings.at(path, "a chunked body has no Content-Length, so it costs 1 whatever its length: set its cost with missing. A cost above the limit refuses it")
	}
	if given.Max != nil {
		most = *given.Max
	}
	made := middleware.TryCostOf(func(r *http.Request) (int64, error) {
		n, ok, err := read(r)
		if err != nil || !ok {
			return min(missing, most), err
		}
		units := n / per
		if n%per > 0 {
			units++
		}
		return min(max(1, units), most), nil
	})
	if settles {
		return made.Reserved()
	}
	return made
}

// settles reports whether the application settles a cost without a reserve.
func (c *checker) settles(path []string, given *cost) bool {
	if s := given.Settle; s != nil && (s.By == "usage" || s.Header != "") {
		c.at(sub(path, "settle"), "needs reserve, which says what is reserved until the answer has the cost")
	}
	for name, isGiven := range map[string]bool{"weights": given.Weights != nil, "usage": given.Usage != nil} {
		if isGiven {
			c.at(sub(path, name), "needs reserve")
		}
	}
	return given.Settle != nil && given.Settle.By == "true"
}

// An amount is the number in a request that its cost is made of, if it is there.
type amount func(r *http.Request) (n int64, ok bool, err error)

// amount returns how to read a cost, and where it is. The amount is nil if something is wrong.
func (c *checker) amount(path []string, given *cost) (read amount, kind string) {
	kind, name := "header", given.Header
	switch {
	case given.JSON != "":
		return c.number(sub(path, "json"), given.JSON), "json"
	case given.Param != "":
		kind, name = "param", given.Param
	}
	key, err := keyfunc.Parse(kind+":"+name, nil)
	if err != nil {
		c.at(sub(path, kind), "is not the name of a header")
		return nil, kind
	}
	if name = http.CanonicalHeaderKey(name); kind == "header" {
		return func(r *http.Request) (int64, bool, error) { n, ok := inHeader(r, name); return n, ok, nil }, kind
	}
	return func(r *http.Request) (int64, bool, error) { n, ok := inParam(r, key); return n, ok, nil }, kind
}

// number returns how to read the number at a path in a JSON body, or nil if the path is wrong.
func (c *checker) number(path []string, field string) amount {
	read, err := keyfunc.JSONNumber(field, reading.MostJSON)
	if err != nil {
		c.at(path, "%s", errors.Unwrap(err))
		return nil
	}
	return func(r *http.Request) (int64, bool, error) {
		n, err := read(r)
		if errors.Is(err, keyfunc.ErrNoKey) {
			return 0, false, nil
		}
		return n, err == nil, err
	}
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
