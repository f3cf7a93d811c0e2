package rules

import (
	"fmt"
	"math"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules/internal/document"
)

// concurrency is how many requests may be in progress at once, and how many wait. What is wrong
// is noted, and the zero Concurrency returned.
func (c *checker) concurrency(path []string, f *limitFields) (of limiter.Concurrency) {
	path = sub(path, "concurrency")
	given := f.Concurrency
	if given == nil || c.noted(path) {
		return of
	}
	before := len(c.list)
	queueAt, waitAt := sub(path, "queue"), sub(path, "max_wait")
	if given.Max == nil {
		c.at(path, "has no max, how many requests may be in progress at once")
	} else if of.Max = *given.Max; (limiter.Concurrency{Max: of.Max}).Validate() != nil {
		at := sub(path, "max")
		if !c.doc.Has(at...) {
			at = path
		}
		c.at(at, "is %d: it must be from 1 to 1,000,000,000", of.Max)
	}
	if given.Queue != nil {
		of.Queue = int(min(*given.Queue, math.MaxInt32))
		if of.Queue < 1 || (limiter.Concurrency{Max: 1, Queue: of.Queue, MaxWait: 1}).Validate() != nil {
			c.at(queueAt, "is %d: it must be from 1 to 10,000", *given.Queue)
		} else if given.MaxWait == nil {
			c.at(queueAt, "needs a max_wait, how long a request waits at most")
		}
	}
	if given.MaxWait != nil {
		if of.MaxWait = given.MaxWait.Duration; given.Queue == nil {
			c.at(waitAt, "needs a queue, how many requests wait")
		}
	}
	if len(c.list) > before {
		return limiter.Concurrency{}
	}
	if err := of.Validate(); err != nil {
		c.at(path, "%s", inFile(err))
	}
	return of
}

// withoutLimit notes what is said of a rule that has nothing but a concurrency.
func (c *checker) withoutLimit(path []string, made *middleware.Rule) {
	if made.Concurrency == (limiter.Concurrency{}) || made.Limit != (limiter.Limit{}) || made.Limits != nil || c.hasLimit(path) {
		return
	}
	for _, field := range []string{"cost", "counts", "when"} {
		if at := sub(path, field); c.doc.Has(at...) && !c.noted(at) {
			c.at(at, "needs a limit: of a concurrency each request takes one place, and returns it when it ends")
		}
	}
}

// hasLimit reports whether a limit is written at path, right or wrong.
func (c *checker) hasLimit(path []string) bool {
	for _, field := range []string{"limit", "limits", "requests", "window", "algorithm", "burst"} {
		if c.doc.Has(sub(path, field)...) {
			return true
		}
	}
	return false
}

// UnmarshalText is for a number alone.
func (c *concurrency) UnmarshalText(text []byte) error {
	n, err := document.ParseInteger(string(text), 64)
	if err != nil {
		return fmt.Errorf("%.64q is neither a whole number nor a mapping", text)
	}
	c.Max = &n
	return nil
}

// Places implements limiter.Placer.
func (nopStore) Places(*limiter.Quota) error { return nil }
