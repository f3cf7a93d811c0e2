package offenders

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/middleware"
)

// Options are what [New] takes. The zero value consists of the defaults.
type Options struct {
	// K is how many keys are told apart, as the package comment says: from 1 to 10,000.
	// Zero: 100, so that nobody with more than 1% of a rule's refusals is missed.
	//
	// A rule takes 56 times K counters of 24 bytes and up to 8 more to find them: 170 KB
	// for 100, of which what no key needs is not touched. With ShowKeys it is 530 KB.
	K int

	// Window is how far back it goes: from a second to 366 days. Zero: an hour. It moves
	// in sixths, so up to a sixth more is counted.
	Window time.Duration

	// MaxRules bounds how many rules are followed: from 1 to 10,000. Zero: 100. A rule
	// that nobody met for all of Window gives way to another. [Sketch.Unfollowed] counts
	// what was not looked at.
	MaxRules int

	// ShowKeys makes Offender.Key the key itself, for those who may know it: addresses,
	// names of users, and whatever else rules have for keys. Otherwise it is a digest
	// under a secret that this process made up.
	ShowKeys bool
}

const (
	defaultK        = 100
	maxK            = 10_000
	defaultWindow   = time.Hour
	minWindow       = time.Second
	maxWindow       = 366 * 24 * time.Hour
	defaultMaxRules = 100
	maxMaxRules     = 10_000
)

// A Sketch is what is known of who asks and who is refused: a [middleware.Observer]. It has
// no goroutine, and nothing to close.
//
// To observe allocates nothing once the rule is known. It takes a lock, for some 20 ns, that
// nobody else has: a rule has four parts, and whichever is free will do.
type Sketch struct {
	k        int
	maxRules int
	showKeys bool
	clock    *clock
	seed     maphash.Seed
	secret   [32]byte
	sampling sampling

	rules      atomic.Pointer[map[string]*rule] // by name; never changed, but replaced
	unfollowed atomic.Uint64
	full       atomic.Int64 // the last step in which no rule could give way

	mu sync.Mutex // guards the replacement
}

// New returns an empty sketch, or everything that is wrong with o.
func New(o Options) (*Sketch, error) {
	var errs []error
	if o.K < 0 || o.K > maxK {
		errs = append(errs, fmt.Errorf("offenders: K is %d: it must be from 1 to %d, or 0 for %d", o.K, maxK, defaultK))
	}
	if o.Window != 0 && (o.Window < minWindow || o.Window > maxWindow) {
		errs = append(errs, fmt.Errorf("offenders: Window is %v: it must be from %v to %v, or 0 for %v", o.Window, minWindow, maxWindow, defaultWindow))
	}
	if o.MaxRules < 0 || o.MaxRules > maxMaxRules {
		errs = append(errs, fmt.Errorf("offenders: MaxRules is %d: it must be from 1 to %d, or 0 for %d", o.MaxRules, maxMaxRules, defaultMaxRules))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	s := &Sketch{
		k:        cmp.Or(o.K, defaultK),
		maxRules: cmp.Or(o.MaxRules, defaultMaxRules),
		showKeys: o.ShowKeys,
		clock:    newClock(cmp.Or(o.Window, defaultWindow) / steps),
		seed:     maphash.MakeSeed(),
	}
	rand.Read(s.secret[:])
	s.rules.Store(&map[string]*rule{})
	return s, nil
}

// Observe implements [middleware.Observer].
func (s *Sketch) Observe(o *middleware.Observation) {
	if len(o.Rules) == 0 {
		return
	}
	now := s.clock.now()
	for i := range o.Rules {
		seen := &o.Rules[i]
		name, n := seen.Rule.Name, uint64(1)
		refused := o.Err == nil && !seen.Decision.Allowed
		if !refused {
			n = s.sampling.weight(name, now)
		}
		if n > 0 {
			s.add(now, name, seen.Key, n, refused)
		}
	}
}

func (s *Sketch) add(now int64, rule, key string, n uint64, refused bool) {
	r := s.rule(rule, now)
	if r == nil {
		s.unfollowed.Add(n)
		return
	}
	total := r.add(now, maphash.String(s.seed, key), key, n, refused)
	s.sampling.note(rule, now, total)
}

// rule is the one of that name, or nil if there are too many.
func (s *Sketch) rule(name string, now int64) *rule {
	if r := (*s.rules.Load())[name]; r != nil {
		return r
	}
	if s.full.Load() == now {
		return nil
	}
	return s.follow(name, now)
}

// follow makes room for a rule, or returns nil.
func (s *Sketch) follow(name string, now int64) *rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := *s.rules.Load()
	if r := known[name]; r != nil {
		return r
	}
	next := maps.Clone(known)
	if len(next) >= s.maxRules {
		maps.DeleteFunc(next, func(_ string, r *rule) bool {
			_, asked := r.totals(now)
			return asked == 0
		})
	}
	if len(next) >= s.maxRules {
		s.full.Store(now)
		return nil
	}
	r := newRule(s.k, s.showKeys)
	next[name] = r
	s.rules.Store(&next)
	return r
}

// Unfollowed is how often a request met a rule beyond Options.MaxRules, and was not counted
// for it.
func (s *Sketch) Unfollowed() uint64 { return s.unfollowed.Load() }
