package offenders

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// Options is what [New] takes. The zero Options are the defaults.
type Options struct {
	// K bounds the error of a rule's counts: no key with more than 1/K of the rule's refusals is
	// missed. K is from 1 to 10,000. Zero: 100.
	//
	// For each rule, the Sketch keeps 14 times K counters of 24 bytes, a map to find them and 64 bytes
	// for each key: 165 KB if K is 100.
	K int

	// Window is how far back requests are counted: from a second to 366 days. It moves in
	// steps of a sixth, so up to a sixth more is counted. Zero: an hour.
	Window time.Duration

	// MaxRules bounds how many rules are counted: from 1 to 10,000. Beyond that, a new rule replaces a
	// rule that no request has met for a whole Window. If there is none, requests of the new rule are
	// not counted; [Sketch.Unfollowed] says how many there were. Zero: 100.
	MaxRules int

	// ShowKeys makes Offender.Key the key itself: an address, the name of a user, or whatever
	// else a rule's key is. False: Offender.Key is a digest. The sketch has the keys in memory
	// either way.
	ShowKeys bool

	// Latest is for [Sketch.Find]: the sketch remembers when each key was last seen. It takes 6 KB more for
	// each rule if K is 100. False: Find finds nothing.
	Latest bool

	// Secret is the HMAC key of the digests: 16 bytes or more, and the same as in redisstore.Options,
	// so that a client has one digest everywhere. Empty: the digests are SHA-256, so whoever tries all
	// addresses finds the address; see [keyfunc.Digester].
	Secret []byte
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

// A Sketch is a [middleware.Observer] that counts the requests and refusals of keys. It has no
// goroutine, and needs no Close.
//
// Observe allocates nothing once the rule is known. It holds a lock of the rule for some 50 ns.
type Sketch struct {
	k        int
	maxRules int
	showKeys bool
	latest   bool
	digests  keyfunc.Digester
	start    time.Time
	step     time.Duration
	seed     maphash.Seed

	rules      atomic.Pointer[map[string]*rule] // by name; never changed, but replaced
	unfollowed atomic.Uint64
	full       atomic.Int64 // the last step in which no rule could be replaced

	mu sync.Mutex // guards the replacement
}

// New returns an empty Sketch, or an error with everything that is wrong with o.
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
	if err := errors.Join(append(errs, keyfunc.CheckSecret("offenders", o.Secret))...); err != nil {
		return nil, err
	}
	s := &Sketch{
		k:        cmp.Or(o.K, defaultK),
		maxRules: cmp.Or(o.MaxRules, defaultMaxRules),
		showKeys: o.ShowKeys,
		latest:   o.Latest,
		digests:  keyfunc.NewDigester(o.Secret),
		start:    time.Now(),
		step:     cmp.Or(o.Window, defaultWindow) / steps,
		seed:     maphash.MakeSeed(),
	}
	s.rules.Store(&map[string]*rule{})
	return s, nil
}

// Must returns s, or panics on an error of [New].
func Must(s *Sketch, err error) *Sketch {
	if err != nil {
		panic(err)
	}
	return s
}

// Observe implements [middleware.Observer].
func (s *Sketch) Observe(o *middleware.Observation) {
	if len(o.Rules) == 0 {
		return
	}
	since := time.Since(s.start)
	now := s.stepOf(since)
	for i := range o.Rules {
		seen := &o.Rules[i]
		if r := s.rule(seen.Rule.Name, now); r != nil {
			refused := o.Err == nil && !seen.Decision.Allowed
			r.observe(now, s.hash(seen.Key), seen.Key, refused, o.Outcome == middleware.OutcomeAllowed, newSight(since, seen.Class))
		}
	}
}

// Count counts one request of a key, as Observe does for each rule of an observation. It is for a caller that
// chooses the key, such as the client's address where the rule has one counter for everybody.
func (s *Sketch) Count(rule, key string, refused bool) {
	now := s.now()
	if r := s.rule(rule, now); r != nil {
		r.add(now, s.hash(key), key, refused)
	}
}

// now is the current step, from 1.
func (s *Sketch) now() int64 { return s.stepOf(time.Since(s.start)) }

func (s *Sketch) stepOf(since time.Duration) int64 { return int64(since/s.step) + 1 }

func (s *Sketch) hash(key string) uint64 { return maphash.String(s.seed, key) }

// rule is the rule of that name. If there are too many, it is nil, and a request is not counted.
func (s *Sketch) rule(name string, now int64) (r *rule) {
	if r = (*s.rules.Load())[name]; r == nil && s.full.Load() != now {
		r = s.follow(name, now)
	}
	if r == nil {
		s.unfollowed.Add(1)
	}
	return r
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
	r := newRule(s.k, s.digests)
	if s.latest {
		r.keepLatest()
	}
	next[name] = r
	s.rules.Store(&next)
	return r
}

// Unfollowed returns how often a request met a rule beyond Options.MaxRules, and was not counted for
// that rule.
func (s *Sketch) Unfollowed() uint64 { return s.unfollowed.Load() }
