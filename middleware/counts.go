package middleware

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weirgo/weir/internal/invalid"
)

// Counts says which answers use up a rule's limit, by their status. With the zero value every
// request does.
//
//	middleware.Statuses(401, 403)                  // failed logins
//	middleware.StatusClass(2)                      // successful requests
//	middleware.Not(middleware.StatusClass(5))      // all but errors of the server
//
// An answer of gRPC, which has status 200, counts by its grpc-status: 16 (UNAUTHENTICATED) is 401, 7 (PERMISSION_DENIED)
// 403, 8 (RESOURCE_EXHAUSTED) 429, 14 (UNAVAILABLE) 503. If Weir does not see the code, because it is in the body
// (gRPC-Web, streams of Connect) or missing, the answer counts, whatever c says. [CountAs] says what it was.
//
// Counts can be copied and compared with ==.
type Counts struct {
	given bool
	after bool   // requests are charged when their answer is known
	wrong string // what is wrong with it, or empty

	statuses [(mostStatus - leastStatus + 64) / 64]uint64 // a bit for each
	others   bool                                         // whether other statuses count
}

const (
	leastStatus = 100
	mostStatus  = 599
)

// Statuses counts answers with one of these statuses. Each must be from 100 to 599.
func Statuses(statuses ...int) Counts {
	c := Counts{given: true}
	if len(statuses) == 0 {
		c.wrong = "there are no statuses, so nothing would count"
	}
	for _, status := range statuses {
		if status < leastStatus || status > mostStatus {
			c.wrong = fmt.Sprintf("the status %d must be from %d to %d", status, leastStatus, mostStatus)
			continue
		}
		c.add(status)
	}
	return c
}

// StatusClass counts answers with a status of one of these classes, from 1 to 5: 2 is for 200
// to 299.
func StatusClass(classes ...int) Counts {
	c := Counts{given: true}
	if len(classes) == 0 {
		c.wrong = "there are no classes of statuses, so nothing would count"
	}
	for _, class := range classes {
		if class < 1 || class > 5 {
			c.wrong = fmt.Sprintf("the class of statuses %d must be from 1 to 5", class)
			continue
		}
		for status := 100 * class; status < 100*(class+1); status++ {
			c.add(status)
		}
	}
	return c
}

// Not counts every answer that c does not count.
func Not(c Counts) Counts {
	if !c.given {
		return Counts{given: true, after: c.after, wrong: "Not is of the zero Counts, so nothing would count"}
	}
	for i := range c.statuses {
		c.statuses[i] = ^c.statuses[i]
	}
	c.others = !c.others
	return c
}

// Afterwards returns c for a rule that charges a request only when its answer is known. A request
// passes while the limit has a unit left, so requests that do not count never block others. The limit
// can be exceeded by the number of requests in progress.
func (c Counts) Afterwards() Counts {
	c.after = true
	return c
}

// ParseCounts reads Counts as text: the statuses and classes that count, such as "401" and "2xx", or
// one status or class that does not count, such as "!5xx".
func ParseCounts(texts ...string) (Counts, error) {
	all := Counts{given: true}
	for _, text := range texts {
		name, not := strings.CutPrefix(text, "!")
		var c Counts
		class, ok := strings.CutSuffix(name, "xx")
		n, err := strconv.Atoi(class)
		switch {
		case err != nil || strconv.Itoa(n) != class:
			return Counts{}, invalid.New("middleware", "%q is neither a status such as 401 nor a class such as 2xx", text)
		case ok:
			c = StatusClass(n)
		default:
			c = Statuses(n)
		}
		switch {
		case not && len(texts) > 1:
			return Counts{}, invalid.New("middleware", "%q must stand alone: remove it, or the others", text)
		case not:
			c = Not(c)
		}
		if c.wrong != "" {
			return Counts{}, invalid.New("middleware", "%q: %s", text, c.wrong)
		}
		all.others = all.others || c.others
		for i, word := range c.statuses {
			all.statuses[i] |= word
		}
	}
	if len(texts) == 0 {
		all = Statuses()
		return Counts{}, invalid.New("middleware", "%s", all.wrong)
	}
	return all, nil
}

func (c *Counts) add(status int) {
	c.statuses[(status-leastStatus)/64] |= 1 << ((status - leastStatus) % 64)
}

func (c *Counts) has(status int) bool {
	if status < leastStatus || status > mostStatus {
		return c.others
	}
	return c.statuses[(status-leastStatus)/64]>>((status-leastStatus)%64)&1 == 1
}

// counts reports whether an answer with that status uses up the limit.
func (c *Counts) counts(status int) bool { return !c.given || c.has(status) }

// String returns c as text: "401, 403", "2xx", "all but 5xx", or "all".
func (c Counts) String() string {
	switch {
	case !c.given:
		return "all"
	case c.wrong != "":
		return c.wrong
	case c.others:
		return "all but " + Not(c).String()
	}
	var names []string
	for class := 100; class < 600; class += 100 {
		of := len(names)
		for status := class; status < class+100; status++ {
			if c.has(status) {
				names = append(names, strconv.Itoa(status))
			}
		}
		if len(names)-of == 100 {
			names = append(names[:of], fmt.Sprintf("%dxx", class/100))
		}
	}
	return strings.Join(names, ", ")
}
