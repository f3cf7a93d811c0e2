package dashboard

import (
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// followed has the last minutes of some clients: of those that were refused of late, and of
// those that an operator looks at. A client is a key. How many are followed is bounded; one more
// takes the place of the one that has not been seen for longest. Where many keys are refused once,
// as an attacker makes them up, a few of them in each second take the place of one that was seen
// lately: so to refuse them costs little, and others are not lost among them.
type followed struct {
	digests keyfunc.Digester
	sets    [followedSets]clientSet
}

const (
	followedSets = 64
	followedWays = 8

	pinnedFor  = 600 // seconds for which a client is kept that an operator has looked at
	eventsKept = 32
	countsKept = 8 // rules, and routes, that are told apart
	clientStep = 10
	clientKept = span/clientStep + 1 // the current one is not complete
)

// A clientSet has the clients of one part of all hashes.
type clientSet struct {
	hashes  [followedWays]atomic.Uint64 // 0: free
	clients [followedWays]client
	crowded atomic.Int64 // one more than the second in which one gave way that had been seen lately
	mu      sync.Mutex   // guards which clients are followed; locked before a client
}

// A client is what became of the requests of one key.
type client struct {
	seen   atomic.Int64  // the last second
	pinned atomic.Int64  // the second until which it is kept
	missed atomic.Uint32 // requests that came while another one was counted

	mu     sync.Mutex // guards what follows
	hash   uint64
	key    clientKey
	class  keyfunc.Class // of its last request; Own before that
	since  int64         // the second from which on it is followed
	steps  [clientKept]clientCount
	rules  [countsKept]ruleCount
	routes [countsKept]routeCount
	latest [eventsKept]event
	events int // all that there were
}

// A clientKey is a key or, of one for which there is no room, its digest.
type clientKey struct {
	text   [64]byte
	size   int // -1: there is the digest alone
	digest keyfunc.Digest
}

type clientCount struct {
	step           int64
	asked, refused uint32
}

type ruleCount struct {
	*series
	asked, refused uint32
}

type routeCount struct {
	pattern        string
	asked, refused uint32
}

// An event is one request.
type event struct {
	second  int64
	outcome middleware.Outcome
	route   string  // its pattern
	rule    *series // the first that said no to it, if one did
	shadow  bool    // and refuses nothing
}

func (f *followed) set(hash uint64) *clientSet { return &f.sets[hash>>32%followedSets] }

// find is the client of a hash, or nil.
func (f *followed) find(hash uint64) *client {
	s := f.set(hash)
	for i := range s.hashes {
		if s.hashes[i].Load() == hash {
			return &s.clients[i]
		}
	}
	return nil
}

// follow is the client of a key, from now on if it was not followed. It allocates nothing.
func (f *followed) follow(hash uint64, key string, now int64) *client {
	s := f.set(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := f.find(hash); c != nil {
		return c
	}
	at, lately := s.last(now)
	if lately {
		s.crowded.Store(now + 1)
	}
	s.clients[at].begin(hash, f.keyOf(key), now)
	s.hashes[at].Store(hash)
	return &s.clients[at]
}

// last is the place of a client that gives way: one that is free, else the one that has not been
// seen for longest of those that are not pinned. lately says that it has been seen lately.
func (s *clientSet) last(now int64) (last int, lately bool) {
	rank := func(i int) (class int, since int64) {
		c := &s.clients[i]
		switch until := c.pinned.Load(); {
		case s.hashes[i].Load() == 0:
			return 0, 0
		case until > now:
			return 2, until
		}
		return 1, c.seen.Load()
	}
	lowest, oldest := rank(0)
	for i := 1; i < followedWays; i++ {
		if class, since := rank(i); class < lowest || class == lowest && since < oldest {
			last, lowest, oldest = i, class, since
		}
	}
	return last, lowest > 0 && now-s.clients[last].seen.Load() < clientStep
}

func (f *followed) keyOf(key string) (k clientKey) {
	if len(key) > len(k.text) {
		return clientKey{size: -1, digest: f.digests.Digest(key)}
	}
	k.size = copy(k.text[:], key)
	return k
}

// whole is all of the key, if it is known.
func (k *clientKey) whole() (string, bool) {
	if k.size < 0 {
		return "", false
	}
	return string(k.text[:k.size]), true
}

func (f *followed) digestOf(k *clientKey) keyfunc.Digest {
	if text, ok := k.whole(); ok {
		return f.digests.Digest(text)
	}
	return k.digest
}

func (c *client) begin(hash uint64, key clientKey, now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen.Store(now)
	c.pinned.Store(0)
	c.missed.Store(0)
	c.hash, c.key, c.class, c.since, c.events = hash, key, keyfunc.Own, now, 0
	clear(c.steps[:])
	clear(c.rules[:])
	clear(c.routes[:])
}

// observe counts a request for the client with the key of rule i, which is the first with that
// key. It is in the path of every request, and allocates nothing.
func (f *followed) observe(c *counts, o *middleware.Observation, i int, hash uint64, now int64) {
	key := o.Rules[i].Key
	for j := range i {
		if o.Rules[j].Key == key {
			return // it has been
		}
	}
	known := f.find(hash)
	if known == nil {
		if o.Err != nil || f.set(hash).crowded.Load() == now+1 || !saysNo(o.Rules[i:], key) {
			return
		}
		known = f.follow(hash, key, now)
	}
	known.count(c, o, i, hash, now)
}

func saysNo(rules []middleware.RuleResult, key string) bool {
	for i := range rules {
		if !rules[i].Allowed && rules[i].Key == key {
			return true
		}
	}
	return false
}

func (k *client) count(c *counts, o *middleware.Observation, first int, hash uint64, now int64) {
	if !k.mu.TryLock() { // a request does not wait for that
		k.missed.Add(1)
		return
	}
	defer k.mu.Unlock()
	if k.hash != hash {
		return // it has given way
	}
	k.class = o.Rules[first].Class
	e := event{second: now, outcome: o.Outcome, route: o.Request.Pattern}
	for i := first; i < len(o.Rules); i++ {
		rule := &o.Rules[i]
		if rule.Key != o.Rules[first].Key {
			continue
		}
		s, no := c.of(rule.Rule), !rule.Allowed && o.Err == nil
		k.countRule(s, no)
		if no && (e.rule == nil || e.shadow) {
			e.rule, e.shadow = s, rule.Rule.Shadow
		}
	}
	k.add(e)
}

// add counts a request. The client is locked.
func (k *client) add(e event) {
	k.seen.Store(e.second)
	k.latest[k.events%eventsKept] = e
	k.events++
	step := e.second / clientStep
	now := &k.steps[step%clientKept]
	if now.step != step {
		*now = clientCount{step: step}
	}
	now.asked++
	if e.refused() {
		now.refused++
	}
	for i := range k.routes {
		route := &k.routes[i]
		last := i == countsKept-1 // all others
		if route.asked == 0 && !last {
			route.pattern = e.route
		}
		if last || route.pattern == e.route {
			route.asked++
			if e.refused() {
				route.refused++
			}
			return
		}
	}
}

func (k *client) countRule(s *series, no bool) {
	for i := range k.rules {
		rule := &k.rules[i]
		last := i == countsKept-1 // all others
		if rule.asked == 0 && !last {
			rule.series = s
		}
		if last || rule.series == s {
			rule.asked++
			if no {
				rule.refused++
			}
			return
		}
	}
}

// refused reports whether the request did not pass.
func (e *event) refused() bool {
	switch e.outcome {
	case middleware.OutcomeAllowed, middleware.OutcomeOverdrawn, middleware.OutcomeExempt:
		return false
	}
	return true
}

// banned counts a request that is refused for a ban.
func (f *followed) banned(o *middleware.Observation, now int64) {
	if o.Ban.Key == "" {
		return
	}
	key, _ := keyfunc.Classify(o.Ban.Key)
	h := hash(key)
	if k := f.find(h); k != nil && k.mu.TryLock() {
		if k.hash == h {
			k.add(event{second: now, outcome: o.Outcome, route: o.Request.Pattern})
		}
		k.mu.Unlock()
	}
}

// byDigest is the client that a digest stands for, or nil.
func (f *followed) byDigest(digest keyfunc.Digest) *client {
	for i := range f.sets {
		s := &f.sets[i]
		for j := range s.clients {
			if s.hashes[j].Load() == 0 {
				continue
			}
			k := &s.clients[j]
			if key, _ := k.who(); f.digestOf(&key) == digest {
				return k
			}
		}
	}
	return nil
}

// shares reports whether a key is one that clients are known to share.
func (f *followed) shares(key string) bool {
	if key == "global" || key == "no-ip" {
		return true
	}
	h := hash(key)
	k := f.find(h)
	if k == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.hash == h && k.class != keyfunc.Own
}

// who is the client's key, and its hash.
func (k *client) who() (clientKey, uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.key, k.hash
}
