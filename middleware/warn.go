package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir/limiter/store"
)

// Warnings are for mistakes that New cannot see. Each is logged once, has a code that docs/warnings.md
// explains, and never contains a key.

// A onceWarning is logged once.
type onceWarning struct{ given atomic.Bool }

func (o *onceWarning) warn(logger *slog.Logger, code, message string, attrs ...slog.Attr) {
	if !o.given.Load() && o.given.CompareAndSwap(false, true) {
		warn(logger, code, message, attrs...)
	}
}

func warn(logger *slog.Logger, code, message string, attrs ...slog.Attr) {
	if logger == nil {
		logger = slog.Default()
	}
	attrs = append([]slog.Attr{slog.String("code", code)}, attrs...)
	logger.LogAttrs(context.Background(), slog.LevelWarn, message, attrs...)
}

// claim claims the names of the rules' counters in the store, and warns if another limiter has claimed one:
// the two then share counters. The error is the store's.
func (l *RateLimit) claim(set *ruleset) error {
	names := map[string]bool{}
	for _, quota := range set.quotas {
		if err := l.checkQuota(quota); err != nil {
			return err
		}
		names[quota.Rule()] = true
	}
	claimer, ok := store.As[store.Claimer](l.store)
	if !ok {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if l.claimed[name] {
			continue
		}
		err := claimer.Claim(name)
		switch {
		case errors.Is(err, store.ErrClaimed):
			warn(set.Logger, "weir-shared-counter",
				"weir: two limiters share a store and a rule name, so they share counters; rename one, or give each its own store",
				slog.String("rule", name))
		case err != nil:
			return fmt.Errorf("middleware: Config.Store: %w", err)
		}
		l.claimed[name] = true
	}
	return nil
}

func (w *onceWarning) warnKeyFailure(logger *slog.Logger, err error, what string, attrs ...slog.Attr) {
	if !w.given.Load() {
		w.warn(logger, "weir-key-failed", "weir: a key function failed; "+what, append(attrs, shortError(err))...)
	}
}

// shortError returns the first 200 bytes of an error whose text may come from clients.
func shortError(err error) slog.Attr {
	text := err.Error()
	return slog.String("error", text[:min(len(text), 200)])
}

func (r *rule) warnKeyFailure(logger *slog.Logger, err error) {
	r.notes.failure.warnKeyFailure(logger, err,
		"ambiguous requests are answered 400, and Rule.OnOutage decides about the others", slog.String("rule", r.Name))
}

func (l *RateLimit) warnStoreFailure(set *ruleset, err error) {
	l.storeFailure.warn(set.Logger, "weir-store-failed",
		"weir: the store could not decide; such requests are answered 503 until it can",
		slog.String("error", err.Error()))
}

// An unroutedDetector detects a Route that sees all requests before they are routed.
type unroutedDetector struct {
	pattern string // that needs a route; empty: none does
	routed  atomic.Bool
	blanks  atomic.Int32
}

// unroutedRequests is how many requests must lack a pattern, and none have one, before the detector warns:
// fewer may be unknown paths.
const unroutedRequests = 20

func (d *unroutedDetector) seen() {
	if !d.routed.Load() {
		d.routed.Store(true)
	}
}

// blank counts a request without a pattern.
func (d *unroutedDetector) blank(logger *slog.Logger) {
	if d.pattern == "" || d.routed.Load() || d.blanks.Load() >= unroutedRequests || d.blanks.Add(1) != unroutedRequests {
		return
	}
	warn(logger, "weir-unrouted",
		"weir: a rule matches a route, but requests reach the limiter before they are routed, so it never applies; use the router's adapter",
		slog.String("route", d.pattern))
}

// notices are the warnings about a limiter. They survive a change of its rules.
type notices struct {
	twice      onceWarning
	unsettled  onceWarning
	unreturned onceWarning
	allow      onceWarning
	unknown    atomic.Int32 // tiers and rules in warnings

	mu      sync.Mutex
	noticed map[[2]string]bool
}

// notes are what was noticed about a rule. They survive a change of the rules, so that no warning is
// repeated.
type notes struct {
	failure    onceWarning
	escalation onceWarning
	notOwn     onceWarning
	shadowed   shadowCount
	unlimited  onceWarning

	further       furtherNames
	limitFailure  onceWarning
	tooManyLimits onceWarning
}

// isNew reports whether this is the first notice about a name of the configuration.
func (n *notices) isNew(rule, what string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.noticed[[2]string{rule, what}] {
		return false
	}
	if n.noticed == nil {
		n.noticed = map[[2]string]bool{}
	}
	n.noticed[[2]string{rule, strings.Clone(what)}] = true
	return true
}
