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

// Options is what [New] takes. The zero Options are the defaults.
type Options struct {
	// Priority names tiers, as [middleware.WithTier] sets them, whose requests are admitted
	// before others, in this order. Requests in another tier or in none come last. Nil: all are
	// equal.
	Priority []string

	// MaxWait is how long a request may wait for a place under overload, from 1 ms to 10 s:
	// add it to what a client is ready to wait for an answer. Zero: 300 ms.
	MaxWait time.Duration

	// PerRoute gives each route a limit of its own, by r.Pattern, for routes that depend on
	// different things: each has its queue then, and a priority goes before others of its
	// route only. False: there is one for the whole service.
	PerRoute bool

	// Exempt says which requests are admitted in any case and not counted, such as health
	// checks and long polls, that wait without work. It must not go by what clients can write.
	// Nil: none.
	Exempt middleware.Match
}

const (
	defaultMaxWait  = 300 * time.Millisecond
	shortestMaxWait = time.Millisecond
	longestMaxWait  = 10 * time.Second
)

// A Limiter is a [middleware.Overload]. [New] makes one; it is used by many goroutines at
// once, and by one RateLimit or several: what it bounds is all that they let pass.
type Limiter struct {
	options Options
	levels  []string // by name, the first to be served first
	all     *gate

	mu     sync.RWMutex
	routes map[string]*gate
}

// New returns a limiter that knows nothing of the service yet, or everything that is wrong with
// the options.
func New(o Options) (*Limiter, error) {
	levels, errs := levelsOf(o.Priority)
	if o.MaxWait == 0 {
		o.MaxWait = defaultMaxWait
	}
	if o.MaxWait < shortestMaxWait || o.MaxWait > longestMaxWait {
		errs = append(errs, invalid.New("shed", "%s is %v: it must be from %v to %v; the default is %v",
			invalid.Name("Options.MaxWait"), o.MaxWait, shortestMaxWait, longestMaxWait, defaultMaxWait))
	}
	if err := route.Wrong(o.Exempt); err != nil {
		errs = append(errs, invalid.New("shed", "%s: %w", invalid.Name("Options.Exempt"), err))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Limiter{options: o, levels: levels, all: newGate(len(levels), o.MaxWait), routes: map[string]*gate{}}, nil
}

// FromRules is [New] for the overload section of a rules file: what Options.Overload of
// package rules takes.
func FromRules(o middleware.OverloadOptions) (middleware.Overload, error) {
	l, err := New(Options(o))
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Must is for a limiter written in code: it panics where [New] returns an error.
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

// Patterns are the routes of Options.Exempt, for [middleware.RateLimit.Gateway].
func (l *Limiter) Patterns() []string { return route.PatternsOf(l.options.Exempt) }

// exempt is the place of all requests that need none.
type exempt struct{}

func (exempt) Streams(bool) {}
func (exempt) Waits(bool)   {}
func (exempt) Leave()       {}

// retryAfter spreads requests that are refused together, and would come back together, and
// has the whole seconds of the header field differ.
func retryAfter() time.Duration {
	return time.Second + rand.N(9*time.Second)
}

// mostRoutes bounds how many routes have a limit of their own. A router has fewer, or its
// patterns are made of what clients send.
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
