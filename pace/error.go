package pace

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir/limiter"
)

// A WaitError reports that a request was not sent, because it would have waited for longer than
// Options.MaxWait or than its context lasts. The request has used up nothing.
//
//	var tooLong *pace.WaitError
//	if errors.As(err, &tooLong) {
//		return later(tooLong.RetryAfter())
//	}
type WaitError struct {
	// Rule is the name of the rule that paces the request.
	Rule string

	// Wait is the shortest possible wait. It is [limiter.Never] if an operator banned the key
	// without an end.
	Wait time.Duration

	// Cooldown reports that the key is in a cooldown: the server refused a request, or said that
	// nothing of a quota remains. False: too many requests wait already, in all processes that share
	// the Store.
	Cooldown bool
}

// RetryAfter returns e.Wait.
func (e *WaitError) RetryAfter() time.Duration { return e.Wait }

func (e *WaitError) Error() string {
	switch {
	case e.Wait == limiter.Never:
		return fmt.Sprintf("pace: %s: an operator holds requests back, until the ban is lifted", e.Rule)
	case e.Cooldown:
		return fmt.Sprintf("pace: %s: the server accepts no requests for %v, which is too long to wait", e.Rule, e.Wait)
	}
	return fmt.Sprintf("pace: %s: this request's turn would come in %v, which is too long to wait", e.Rule, e.Wait)
}

// ErrNoRule is wrapped by the errors of requests that no rule matches, if [Options.RefuseUnmatched] is
// set.
var ErrNoRule = errors.New("pace: no rule matches this request")
