package rules

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/weirgo/weir/internal/reading"
	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/tokens"
)

// A Settlement says how the answer to a request settles what a rule reserved.
type Settlement struct {
	// Header is the field of the answer with the cost in units. Empty: the usage of tokens settles, with Weights.
	Header  string
	Weights tokens.Weights

	// Ask says that streams of chat completions are to be asked for their usage; see [tokens.Ask].
	Ask bool

	// Max is the field with a maximum of tokens that a body without one gets, with the value MaxTokens. Empty: none.
	Max       string
	MaxTokens int64
	limits    []amount
}

// Settlement returns how the answer to a request settles what the rule of that name reserved. It returns false if the
// answer does not.
func (r *Rules) Settlement(rule string) (Settlement, bool) {
	s, ok := r.settlements[rule]
	return s, ok
}

// Stated returns the units that the answer states in its field s.Header, which it removes. It returns false if the
// answer states none. An answer with status 400 or above that states none cost nothing.
func (s *Settlement) Stated(answer *http.Response) (units int64, ok bool) {
	units, ok = inHeader(&http.Request{Header: answer.Header}, s.Header)
	answer.Header.Del(s.Header)
	if !ok && answer.StatusCode >= http.StatusBadRequest {
		return 0, true
	}
	return units, ok
}

// of returns what the request costs by its answer, whose body was read.
func (s *Settlement) of(answer *http.Response, body []byte, reserved int64) (units int64) {
	res := *answer
	res.Header, res.Body = answer.Header.Clone(), io.NopCloser(bytes.NewReader(body))
	if s.Header != "" {
		if units, ok := s.Stated(&res); ok {
			return units
		}
		return reserved
	}
	tokens.Watch(&res, tokens.Options{}, func(r tokens.Report) { units = r.Units(s.Weights, reserved) })
	_, _ = io.Copy(io.Discard, res.Body)
	return units
}

// WithMax returns the JSON body of a request, with s.MaxTokens as its s.Max if the request has no maximum.
func (s *Settlement) WithMax(r *http.Request, body []byte) []byte {
	for _, limit := range s.limits {
		if n, _, err := limit(r); n > 0 || err != nil {
			return body
		}
	}
	var members map[string]json.RawMessage
	if s.Max == "" || json.Unmarshal(body, &members) != nil || members == nil {
		return body
	}
	if _, isUnset := members[s.Max]; isUnset { // such as null: of two members a service may read the first
		members[s.Max] = fmt.Append(nil, s.MaxTokens)
		changed, _ := json.Marshal(members) // it was valid
		return changed
	}
	end := bytes.LastIndexByte(body, '}')
	comma := ","
	if bytes.HasSuffix(bytes.TrimRight(body[:end], " \t\r\n"), []byte("{")) {
		comma = ""
	}
	return slices.Concat(body[:end], fmt.Appendf(nil, "%s%q:%d", comma, s.Max, s.MaxTokens), body[end:])
}

// A reservation makes the cost of requests.
type reservation struct {
	limits, times []amount // fields of the body
	weights       tokens.Weights
	missing       int64
	bytes         int64 // for a token of input; 0: the input costs nothing
	needsLimit    bool  // a body without a maximum is answered 400
}

// reserve returns the cost of the rule of that name, which reserves tokens.
func (c *checker) reserve(path []string, name string, given *cost) (none middleware.Cost) {
	of, settle := given.Reserve, cmp.Or(given.Settle, &settlement{})
	at := sub(path, "reserve")
	if given.Units != nil || given.Header != "" || given.Param != "" || given.JSON != "" || given.Per != nil || given.Missing != nil || given.Max != nil {
		c.at(at, "stands beside another cost: want reserve alone, with settle, weights and usage")
	}
	if c.noted(at) || of.Missing == nil {
		return none
	}
	made := &reservation{weights: c.weights(path, given.Weights), missing: *of.Missing}
	for i, field := range of.JSON {
		made.limits = append(made.limits, c.number(c.doc.Element(sub(at, "json"), i), field))
	}
	times := of.Times
	if times == nil && (of.JSON != nil || of.Input != nil) {
		times = []string{"n"}
	}
	for i, field := range times {
		made.times = append(made.times, c.number(c.doc.Element(sub(at, "times"), i), field))
	}
	if of.Input != nil {
		made.bytes = of.Input.BytesPerUnit
	}
	u := cmp.Or(given.Usage, &usage{})
	made.needsLimit = u.NoMax == "bad_request"
	asks := u.Ask == nil || *u.Ask
	switch {
	case given.Settle == nil || settle.By == "false":
		c.at(at, "needs settle: usage or {header: X-Cost}, or true if the application settles: without it each request costs what it reserves")
	case settle.By != "" && settle.Header != "", settle.By == "" && settle.Header == "":
		c.at(sub(path, "settle"), "needs one of usage, {header: X-Cost} and true")
	case settle.Header != "" && !isField(settle.Header):
		c.at(sub(path, "settle", "header"), "%.64q is not the name of a field that can have a cost, such as X-Cost", settle.Header)
	case given.Usage != nil && settle.By != "usage":
		c.at(sub(path, "usage"), "needs settle: usage")
	case !asks && u.NoMax == "":
		c.at(sub(path, "usage"), "has ask: false, so a stream may never report its usage: say with no_max: bad_request that a body without a maximum of tokens is refused, or with no_max: missing that it gets the missing of reserve")
	case u.NoMax != "" && len(of.JSON) == 0:
		c.at(sub(path, "usage", "no_max"), "needs reserve.json, the fields with the maximum")
	case u.NoMax == "missing" && strings.Contains(of.JSON[0], "."):
		c.at(sub(path, "usage", "no_max"), "is missing: the first field of reserve.json must then stand at the top of the body")
	}
	s := Settlement{Header: http.CanonicalHeaderKey(settle.Header), Weights: made.weights, Ask: asks && settle.By == "usage"}
	if u.NoMax == "missing" && len(of.JSON) > 0 {
		s.Max, s.MaxTokens, s.limits = of.JSON[0], made.missing, made.limits
	}
	if settle.By != "true" {
		c.settlements[name] = s
	}
	return middleware.TryCostOf(made.cost).Reserved()
}

// isField reports whether name is a field of answers that can have a cost.
func isField(name string) bool {
	_, err := keyfunc.Parse("header:"+name, nil)
	field := http.CanonicalHeaderKey(name)
	return err == nil && field != contentLength && !route.IsOfConnection(field)
}

// whole warns of a reservation that takes the whole limit.
func (c *checker) whole(p *scopedRule) {
	path := sub(p.path, "cost")
	if p.Cost == nil || p.Cost.Reserve == nil || c.noted(path) {
		return
	}
	units := c.weights(path, p.Cost.Weights).Units(tokens.Usage{Output: *p.Cost.Reserve.Missing})
	quotas, _ := limiter.NewQuotas(p.name, "", p.made.Limit) // an error is noted elsewhere
	for _, quota := range quotas {
		if most := quota.Capacity(); units >= most && !quota.InFlight() {
			c.warnings.at(sub(path, "reserve"), "a request without a maximum of tokens reserves %d units, and %v allows %d at once: it passes only while nothing is used, and others wait for its end", units, quota.Limit(), most)
		}
	}
}

// weights returns the weights of a file, which are 1 by default, or an input's.
func (c *checker) weights(path []string, given *weights) tokens.Weights {
	if given == nil {
		given = &weights{}
	}
	one := &weight{1}
	in := cmp.Or(given.Input, one)
	w := tokens.Weights{
		Input: in.float64, Cached: cmp.Or(given.Cached, in).float64, Written: cmp.Or(given.Written, in).float64,
		Output: cmp.Or(given.Output, one).float64,
	}
	if w == (tokens.Weights{}) {
		c.at(sub(path, "weights"), "are all 0, so that nothing costs anything")
	}
	return w
}

// cost is the units to reserve for a request.
func (v *reservation) cost(r *http.Request) (int64, error) {
	var used tokens.Usage
	given := false
	for _, limit := range v.limits {
		n, _, err := limit(r)
		if err != nil {
			return 0, err
		}
		given, used.Output = given || n > 0, max(used.Output, n) // some services take 0 for no maximum
	}
	switch {
	case !given && v.needsLimit:
		return 0, errNoLimit
	case !given:
		used.Output = v.missing
	}
	for _, factor := range v.times {
		n, ok, err := factor(r)
		switch {
		case err != nil:
			return 0, err
		case ok && n > math.MaxInt64/max(1, used.Output):
			used.Output = math.MaxInt64
		case ok:
			used.Output *= max(1, n)
		}
	}
	if v.bytes > 0 {
		text, err := keyfunc.Body(r, reading.MostJSON)
		if err != nil {
			return 0, err
		}
		used.Input = (int64(len(text)) + v.bytes - 1) / v.bytes
	}
	return v.weights.Units(used), nil
}

var errNoLimit error = &reading.Error{Status: http.StatusBadRequest, Text: "rules: the request has no maximum of tokens"}
