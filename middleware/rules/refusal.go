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
		made.Status = int(min(max(*given.Status, 0), 1000))
		switch {
		case c.noted(sub(path, "status")):
		case denies && made.Status != http.StatusForbidden && made.Status != http.StatusTooManyRequests && made.Status != http.StatusServiceUnavailable:
			c.at(sub(path, "status"), "is %d: with mode: deny it must be 403, 429 or 503", *given.Status)
		case made.Status < 400 || made.Status > 599:
			c.at(sub(path, "status"), "is %d: it must be from 400 to 599", *given.Status)
		}
	}
	check("type", middleware.Refusal{Type: given.Type})
	check("title", middleware.Refusal{Title: given.Title})
	check("message", middleware.Refusal{Message: given.Message})
	for field, text := range map[string]string{"type": given.Type, "title": given.Title, "message": given.Message} {
		if text == "" && c.doc.Has(sub(path, field)...) {
			c.at(sub(path, field), "is empty: leave it out for what Weir says")
		}
	}
	if given.RetryAfter != nil {
		made.RetryAfter = given.RetryAfter.Duration
		if !denies {
			c.at(sub(path, "retry_after"), "is for mode: deny: a limit knows by itself when to come back")
		}
	}
	return made
}
