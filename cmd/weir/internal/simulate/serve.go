package simulate

import (
	"iter"
	"math"
	"net/http"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/serving"
	"github.com/weirgo/weir/middleware"
)

// Serve decides on a request as weir serve would, at a time in microseconds since 1970, no earlier than the last. If
// the request passes, the service answers at once, and the request ends after the time that it takes. Requests that end
// at this time have ended. The header has the limiter's fields. If the gateway cannot tell what is requested, the
// outcome is OutcomeUndecided, and the status 400. The Decision is valid until the next call.
func (s *Simulation) Serve(
	r *http.Request, at int64, takes time.Duration, service http.HandlerFunc,
) (*Decision, http.Header) {
	d, w := s.advance(at+1, at), discarding{}
	next, _ := iter.Pull(func(passed func(struct{}) bool) {
		serving.Limits{RateLimit: s.limits}.Gateway(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			service(w, r)
			passed(struct{}{}) // until it ends
		}), serving.PathsStrict).ServeHTTP(w, r)
	})
	_, passed := next()
	switch {
	case passed:
		s.endAfter(takes, func() { next() })
	case d.Passed():
		d.Outcome, d.Refusal.Status = middleware.OutcomeUndecided, http.StatusBadRequest
	case d.Outcome == middleware.OutcomeNoKey:
		d.Refusal.Rule = s.limits.Explain(r).Keyless
	}
	return d, http.Header(w)
}

// Advance sets the time, no earlier than the last, and ends the requests that end until then.
func (s *Simulation) Advance(to int64) { s.advance(to+1, to) }

// Close ends all requests.
func (s *Simulation) Close() { s.advance(math.MaxInt64, 0) }
