package pace

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir/limiter"
)

// A WaitError is why a request was not sent: it would have had to wait for longer than
// Options.MaxWait, or than its context lasts. It has used up nothing.
//
//	var tooLong *pace.WaitError
//	if errors.As(err, &tooLong) {
//		return later(tooLong.RetryAfter())
//	}
type WaitError struct {
	// Rule is the name of the rule that it would have waited for.
	Rule string

	// Wait is how long it would have been at least. It is [limiter.Never] if there is no end
	// to it, as the key is banned by hand.
	Wait time.Duration

	// Cooldown says that the server refused a request, or said that nothing of a quota is left,
	// and requests wait until it takes them again. Else it was too many of our own: of all
	// processes that share the Store.
	Cooldown bool
}

// RetryAfter is Wait.
func (e *WaitError) RetryAfter() time.Duration { return e.Wait }

func (e *WaitError) Error() string {
	switch {
	case e.Wait == limiter.Never:
		return fmt.Sprintf("pace: %s: requests are held back until that is lifted by hand", e.Rule)
	case e.Cooldown:
		return fmt.Sprintf("pace: %s: the server wants no requests now; it would be asked again in %v, which is too long to wait", e.Rule, e.Wait)
	}
	return fmt.Sprintf("pace: %s: it would be this request's turn in %v, which is too long to wait", e.Rule, e.Wait)
}

// ErrNoRule is what the error of a request to a host wraps that no rule is for, with
// [Options.RefuseUnmatched].
var ErrNoRule = errors.New("pace: no rule is for this request")
