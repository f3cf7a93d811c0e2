// Package bunlimit is Weir's middleware for bunrouter.
package bunlimit

import (
	"net/http"

	"github.com/uptrace/bunrouter"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// New returns a bunrouter middleware for limits. A rule with Counts needs the status of the
// answer, so put middleware that answers errors behind the limiter.
func New(limits *middleware.RateLimit) bunrouter.MiddlewareFunc {
	return func(next bunrouter.HandlerFunc) bunrouter.HandlerFunc {
		return func(w http.ResponseWriter, req bunrouter.Request) error {
			req.Pattern = req.Route()
			keyfunc.WithPathValues(req.Request, req.Params().Get)
			entered := limits.Enter(w, req.Request, nil)
			if entered == nil {
				return nil // Enter has answered
			}
			status := http.StatusInternalServerError // after a panic
			defer func() { entered.End(status) }()
			req.Request = entered.Request
			err := next(entered.Writer, req)
			status = http.StatusOK
			return err
		}
	}
}
