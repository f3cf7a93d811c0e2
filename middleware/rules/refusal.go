package rules

import (
	"net/http"
	"strings"

	"github.com/weirgo/weir/middleware"
)

// refusal is what a rule answers that denies, or limits.
func (c *checker) refusal(path []string, given *refusal, denies bool) (made middleware.Refusal) {
	if given == nil {
		return made
	}
	check := func(field string, r middleware.Refusal) {
		if err := r.Validate(); err != nil {
			c.at(sub(path, field), "%s", strings.TrimPrefix(inFile(err), field+" "))
		}
	}
	made.Type, made.Title, made.Message = given.Type, given.Title, given.Message
	if given.Status != nil {
		made.Status = int(*given.Status)
		if denies && !c.noted(sub(path, "status")) && made.Status != http.StatusForbidden && made.Status != http.StatusTooManyRequests && made.Status != http.StatusServiceUnavailable {
			c.at(sub(path, "status"), "is %d: with mode: deny it must be 403, 429 or 503", made.Status)
		}
	}
	check("type", middleware.Refusal{Type: given.Type})
	check("title", middleware.Refusal{Title: given.Title})
	check("message", middleware.Refusal{Message: given.Message})
	if given.RetryAfter != nil {
		made.RetryAfter = given.RetryAfter.Duration
		if !denies {
			c.at(sub(path, "retry_after"), "is for mode: deny: a limit knows by itself when to come back")
		}
	}
	return made
}
