package shed

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/middleware"
)

// Options are the settings of [New]. The zero Options are the defaults.
type Options struct {
	// Priority lists tiers, as [middleware.WithTier] sets them, the most important first. Requests in
	// other tiers or in none come last. Nil: all requests are equal.
	Priority []string

	// MaxWait is how long a request may wait for a slot under overload, from 1 ms to 10 s. It adds to
	// the time that a client waits for its answer. Zero: 300 ms.
	MaxWait time.Duration

	// PerRoute gives each route, by r.Pattern, its own limit and queue, for routes that depend on
	// different things. Priority then orders the requests of each route. False: the whole service has
	// one limit.
	PerRoute bool

	// Exempt matches requests that are always admitted and never counted, such as health checks and
	// long polls. It must not depend on what any client can write, such as a header field. Nil: none.
	Exempt middleware.Match
}

const (
	defaultMaxWait  = 300 * time.Millisecond
	shortestMaxWait = time.Millisecond
	longestMaxWait  = 10 * time.Second
)

// A Limiter is a [middleware.Overload]. It may be used by many goroutines at once. If several RateLimits
// share it, it bounds their requests together.
type Limiter struct {
	options Options
	levels  []string // by name, the first to be served first
	all     *gate

	mu     sync.RWMutex
	routes map[string]*gate
}

// New returns a limiter that has measured nothing yet, or everything that is wrong with the options.
func New(o Options) (*Limiter, error) {
	levels, errs := levelsOf(o.Priority)
	if o.MaxWait == 0 {
		o.MaxWait = defaultMaxWait
	}
	if o.MaxWait < shortestMaxWait || o.MaxWait > longestMaxWait {
		errs = append(errs, invalid.Field("shed", "Options.MaxWait", "is %v: it must be from %v to %v; the default is %v",
			o.MaxWait, shortestMaxWait, longestMaxWait, defaultMaxWait))
	}
	if err := route.Wrong(o.Exempt); err != nil {
		errs = append(errs, invalid.Field("shed", "Options.Exempt", ": %w", err))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Limiter{options: o, levels: levels, all: newGate(len(levels), o.MaxWait), routes: map[string]*gate{}}, nil
}

// FromRules is [New] for the overload section of a rules file. It fits Options.Overload of package rules.
func FromRules(o middleware.OverloadOptions) (middleware.Overload, error) {
	l, err := New(Options(o))
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Must returns l, and panics if [New] returned an error. Use it for options that are written in code.
func Must(l *Limiter, err error) *Limiter {
	if err != nil {
		panic(err)
	}
	return l
}

// Admit implements [middleware.Overload].
func (l *Limiter) Admit(r *http.Request) (middleware.Slot, time.Duration) {
	if l.options.Exempt != nil && l.options.Exempt.Matches(r) {
		return exempt{}, 0
	}
	g := l.gate(r)
	if p := g.admit(r.Context(), l.level(r)); p != nil {
		return p, 0
	}
	return nil, retryAfter()
}

// Patterns returns the routes of Options.Exempt, for [middleware.RateLimit.Gateway].
func (l *Limiter) Patterns() []string { return route.PatternsOf(l.options.Exempt) }

// exempt is the slot of requests that are not counted.
type exempt struct{}

func (exempt) Streams(bool) {}
func (exempt) Waits(bool)   {}
func (exempt) Leave()       {}

// retryAfter spreads clients that are refused together over several seconds, so that they do not come
// back together.
func retryAfter() time.Duration {
	return time.Second + rand.N(9*time.Second)
}

// mostRoutes bounds how many routes have their own limit. Beyond it, patterns are probably made of what
// clients send.
const mostRoutes = 1000

func (l *Limiter) gate(r *http.Request) *gate {
	if !l.options.PerRoute || r.Pattern == "" {
		return l.all
	}
	l.mu.RLock()
	g := l.routes[r.Pattern]
	l.mu.RUnlock()
	if g != nil {
		return g
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if g = l.routes[r.Pattern]; g != nil {
		return g
	}
	if len(l.routes) >= mostRoutes {
		return l.all
	}
	g = newGate(len(l.levels), l.options.MaxWait)
	l.routes[r.Pattern] = g
	return g
}
