// Package serving is what the services of weir serve have in common: the gateway, the answers to
// other proxies, and the rate limit service.
package serving

import (
	"context"
	"log/slog"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

// Limits are what a Service decides by.
type Limits struct {
	RateLimit *middleware.RateLimit // by the rules in force; it stays the same when they are reloaded
	Watcher   *rules.Watcher        // of these rules
	Store     limiter.Store         // that RateLimit counts in
	Observer  middleware.Observer   // that RateLimit has
	Logger    *slog.Logger
}

// A Service is one way to ask for the limits, with a listener of its own. Its constructor checks the
// flags; an error names the flag.
type Service interface {
	// Lacks says why the service cannot give a rule what it needs; empty: it can. It is asked before
	// Start, and at every reload while the service serves. See rules.Options.Lacks.
	Lacks(rules.Need) string

	// Start listens, and serves in the background until Drain. An error names the flag and the
	// address. If the service must end later on, it calls failed.
	Start(l Limits, failed func(error)) error

	// Drain asks clients to leave and serves them still, for the length of grace. Then it accepts
	// nothing new, and returns when what is in progress has ended. When ctx ends, Drain breaks
	// off what is left. A Service that was not started has nothing to drain.
	Drain(ctx context.Context, grace time.Duration)

	// Reread is called on SIGHUP: files other than the rules, such as certificates, are read anew.
	Reread() error
}
