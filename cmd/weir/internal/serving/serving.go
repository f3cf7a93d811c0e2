// Package serving has what the services of weir serve share. The services are the gateway, the answers
// to other proxies, and the rate limit service.
package serving

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

// Limits has the limiter and the rules that a Service decides with.
type Limits struct {
	RateLimit *middleware.RateLimit // stays the same when the rules are reloaded
	Watcher   *rules.Watcher        // has the rules in force
	Store     limiter.Store         // RateLimit's
	Observer  middleware.Observer   // RateLimit's
	Logger    *slog.Logger
	Bodies    *Memory // for bodies that are read ahead; nil: no bound
	Waiting   bool    // whether Start is called before there are rules: RateLimit refuses every request
}

// What happens to an ambiguous path, which servers may read as another path, and to a request with two methods.
const (
	PathsStrict = "strict" // the answer is 400
	PathsFold   = "fold"   // the same, and routes ignore upper and lower case
	PathsAsIs   = "as-is"  // it is passed on, unless RateLimit.Gateway refuses it
)

// CheckPaths returns an error if paths, the value of --paths, is none of these.
func CheckPaths(paths string) error {
	if paths != PathsStrict && paths != PathsFold && paths != PathsAsIs {
		return fmt.Errorf("--paths is %q: want %s, %s or %s", paths, PathsStrict, PathsFold, PathsAsIs)
	}
	return nil
}

// Gateway is RateLimit.Gateway, with --paths.
func (l Limits) Gateway(next http.Handler, paths string) http.Handler {
	limited := l.RateLimit.Gateway(next, paths == PathsFold)
	if paths == PathsAsIs {
		return limited
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		why := ""
		switch {
		case route.IsAmbiguous(r.URL):
			why = "The path can be read in more than one way."
		case route.HasOtherMethod(r):
			why = "The request has two methods: send the second as the method itself."
		case l.hasSimilarField(r):
			why = "The request has a field that can be read as one of another name."
		}
		if why != "" {
			w.Header().Set("Cache-Control", "no-store")
			http.Error(w, why, http.StatusBadRequest)
			return
		}
		limited.ServeHTTP(w, r)
	})
}

// hasSimilarField reports whether servers may take a field of r, such as X_Key, for a field that the rules read. A
// gateway removes it before.
func (l Limits) hasSimilarField(r *http.Request) bool {
	if l.Watcher == nil { // nobody's file
		return false
	}
	inForce := l.Watcher.Rules()
	for name := range r.Header {
		if reads, similar := inForce.ReadsField(name); similar && !reads {
			return true
		}
	}
	return false
}

// A Service is one way to ask for decisions, with a listener of its own. Its constructor checks the
// flags; an error names the flag.
type Service interface {
	// Lacks returns why the service cannot give a rule an input, or "" if it can. It is called before
	// Start and at every reload. See rules.Options.Lacks.
	Lacks(*rules.Proxies, rules.Need) string

	// Start listens, and serves in the background until Drain. An error names the flag and the
	// address. If the service fails later, it calls failed.
	Start(l Limits, failed func(error)) error

	// Drain serves for the length of grace, and closes each connection of HTTP/1 after its next response. Then
	// it accepts nothing new, and returns when all requests have ended. When ctx ends, Drain breaks
	// off the requests that are left. It may be called if Start was not.
	Drain(ctx context.Context, grace time.Duration)
}
