package middleware

import (
	"errors"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/internal/missing"
	"github.com/weirgo/weir/internal/waiting"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// A RateLimit limits HTTP requests. [New] makes one. It is safe for use by many goroutines.
type RateLimit struct {
	rules   atomic.Pointer[ruleset]
	store   limiter.Store
	memory  *limiter.Memory // the store, if it is a Memory: charges then stay on the stack
	routers atomic.Pointer[routers]
	room    waiting.Room[counterKey] // requests that wait for a slot
	visits  sync.Pool                // of *visit

	requests  atomic.Int32 // met, up to two
	namesakes *namesakes   // nil: the store may be another limiter's too

	immediate bool                         // the store decides in this process
	clock     interface{ Now() time.Time } // of a store with its own time, such as a simulation's; nil: the process's

	// What warnings are about. It survives a change of the rules.
	warned  sync.Map     // true by [2]string: a code, and what the warning is about
	unknown atomic.Int32 // tiers and rules in warnings
	tiers   missing.Detector
	routes  missing.Detector

	changing sync.Mutex
	claimed  map[string]bool // the names of counters in the store that this limiter claimed, at most mostClaimed
}

// New returns a limiter with these rules. The error joins everything that is wrong with c.
func New(c Config) (*RateLimit, error) { return newLimiter(c, false) }

// newLimiter is New. If the rules go by the client's address alone, they need no route.
func newLimiter(c Config, byAddress bool) (*RateLimit, error) {
	l := &RateLimit{store: c.Store, claimed: map[string]bool{}}
	l.routers.Store(&routers{})
	if l.store == nil {
		var err error
		if l.store, err = limiter.NewMemory(limiter.MemoryOptions{}); err != nil {
			return nil, err
		}
	}
	l.memory, _ = l.store.(*limiter.Memory)
	l.clock, _ = l.store.(interface{ Now() time.Time })
	l.immediate = l.memory != nil || l.clock != nil
	l.room.Shared = !l.immediate
	if err := l.install(c, byAddress); err != nil {
		return nil, err
	}
	if set := l.rules.Load(); c.Store == nil && len(set.all) > 0 {
		l.namesakes = namesakesOf(set)
	}
	return l, nil
}

// install puts the rules of c in force.
func (l *RateLimit) install(c Config, byAddress bool) error {
	set, err := compile(c, l)
	if err != nil {
		return err
	}
	if err := l.claim(set); err != nil {
		return err
	}
	set.needsRoute = set.needsRoute && !byAddress
	for _, r := range set.all {
		for _, f := range r.families {
			r.notes.add(f)
			for _, override := range f.overrides {
				r.notes.add(override)
			}
		}
	}
	set.warnUnheld()
	l.rules.Store(set)
	l.room.Changed()
	return nil
}

// now returns the time of the store's clock, or of the process's.
func (l *RateLimit) now() time.Time {
	if l.clock != nil {
		return l.clock.Now()
	}
	return time.Now()
}

// Reconfigure replaces the rules at once, for all requests that come later. If c is wrong, it returns
// everything that is wrong and changes nothing. Requests in progress keep the rules that they came
// under. Requests that wait for a slot begin again with the new rules, bans first, and keep their places.
// Requests that wait for a turn in a LeakyBucket or for Config.Overload are charged already: of the new rules
// only bans apply to them.
//
// Counters stay: they are stored under the rule's name, tier and key. What was used of a limit that
// changes stays used. Config.Store must be nil, or the store that the limiter has.
func (l *RateLimit) Reconfigure(c Config) error {
	if c.Store != nil && !sameStore(c.Store, l.store) {
		return invalid.New("middleware", "Config.Store is another store: Reconfigure keeps the present one")
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	return l.install(c, false)
}

func sameStore(a, b limiter.Store) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// Must returns l, and panics if err is not nil. It is for limiters whose rules are written in code.
func Must(l *RateLimit, err error) *RateLimit {
	if err != nil {
		panic(err)
	}
	return l
}

// NewPerIP returns a limiter with one rule: limit for each client address, as [keyfunc.IP] finds it.
// Behind a proxy, pass one of keyfunc's Trust options.
func NewPerIP(limit limiter.Limit, options ...keyfunc.IPOption) (*RateLimit, error) {
	key, keyErr := keyfunc.NewIP(options...)
	// The limit is part of the name, so that the header fields distinguish a router's PerIP from a
	// route's.
	l, err := newLimiter(Config{Rules: []Rule{{Name: "ip:" + limit.String(), Key: key, Limit: limit}}}, true)
	if err := errors.Join(keyErr, err); err != nil {
		return nil, err
	}
	return l, nil
}

// PerIP limits requests for each client address:
//
//	handler := middleware.PerIP(limiter.PerMinute(100))(mux)
//
// The client is the peer of the connection, and all addresses of an IPv6 /64 are one client. Behind a
// proxy the peer is the proxy, so name it: PerIP(limit, keyfunc.TrustProxies("10.0.0.0/8")).
//
// Each call makes a limiter with counters of its own: two handlers that one call's result wraps share
// one limit, and handlers with a call each have a limit each. PerIP panics if the limit is invalid; use
// [NewPerIP] for a limit that comes from a file.
func PerIP(limit limiter.Limit, options ...keyfunc.IPOption) func(http.Handler) http.Handler {
	return Must(NewPerIP(limit, options...)).Handler
}

// checkQuota returns why the store cannot count by q, or nil.
func (l *RateLimit) checkQuota(q *limiter.Quota) error {
	if err := limiter.CheckQuota(l.store, q); err != nil {
		return invalid.New("middleware", "Config.Store: %w", err)
	}
	return nil
}
